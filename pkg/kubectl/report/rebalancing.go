package report

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// searchTimeout is how long Statuses may search for room, as in a round of the controller.
const searchTimeout = time.Second

// HasMisplaced reports whether the controller would move a pod of a workload sooner or later. Then
// Statuses needs View.Rebalancer.
func (v *View) HasMisplaced() bool {
	for _, w := range v.Snapshot.Workloads {
		if s := w.FloorStatus(); w.InScope && !v.NodesUnknown && (s.Healable > 0 || s.Surplus > 0) {
			return true
		}
	}
	return false
}

// obstacles returns why the controller does not move pods now. The planner of the controller itself
// computes them, so they cannot differ from what it does.
func (v *View) obstacles() map[rebalance.Shortfall]rebalance.Obstacle {
	c := v.Rebalancer
	if c == nil || !v.HasMisplaced() {
		return nil
	}
	until := time.Now().Add(searchTimeout)
	room := simulation.NewRoomUntil(v.Snapshot, func() bool { return !time.Now().Before(until) })
	settings := c.Settings
	settings.Provisioning = &simulation.Provisioning{Policy: v.Policy, Memory: settings.Memory}
	settings.Provisioning.SetPools(v.Pools.KnownPools())
	return rebalance.NewPlanner(settings).Explain(v.Snapshot, room, c.Began)
}

// awaited returns what a shortfall waits for, as the end of a reason: ": CAUSE, until TIME". It
// returns "" if that is unknown.
func (v *View) awaited(obstacles map[rebalance.Shortfall]rebalance.Obstacle, w *snapshot.Workload, reason migration.Reason) string {
	o, ok := obstacles[rebalance.Shortfall{Workload: w.Key, Reason: reason}]
	switch {
	case v.Pause.Stops(safety.Cause(reason)): // which have the same names
		return ": the controller is paused " + v.Pause.Switch.String()
	case !ok:
		return ""
	case v.Rebalancer.Inactive != "" && o.Cause != rebalance.NotRecreated:
		return ": " + v.Rebalancer.Inactive
	}
	text := ": " + string(o.Cause)
	if o.Detail != "" {
		text += ": " + o.Detail
	}
	if !o.Until.IsZero() {
		text += ", until " + o.Until.UTC().Format("15:04:05 UTC")
	}
	if o.Cause == rebalance.Planned && v.Namespace != "" {
		text += ", if the pods of other namespaces leave room (-A considers them)"
	}
	return text
}

// maySpot returns a function that reports whether a pod could be on spot: by its own node selector
// and affinity, and by the spot nodes if there are any.
func (v *View) maySpot() func(*snapshot.Pod) bool {
	spot := v.nodesOf(decision.Spot)
	fits := simulation.FitsAnyNode(spot)
	return func(p *snapshot.Pod) bool {
		return !workload.OnlyOnDemand(p.Pod, v.Policy) && (len(spot) == 0 || fits(p))
	}
}

// surplusOf returns the replicas of a workload on on-demand that could be on spot, and how many of
// them are beyond the floor.
func surplusOf(w *snapshot.Workload, maySpot func(*snapshot.Pod) bool) (pods []*snapshot.Pod, surplus int) {
	for _, p := range w.Pods() {
		if p.Node == nil || p.Node.Facts.Capacity.Type != decision.OnDemand {
			continue
		}
		if of := &p.Subject.Pod.Workload; w.Floor > 0 && of.Ordered && of.Ordinal < w.Floor {
			continue // the ordinal belongs to the floor
		}
		if maySpot(p) {
			pods = append(pods, p)
		}
	}
	return pods, min(len(pods), w.FloorStatus().Surplus)
}
