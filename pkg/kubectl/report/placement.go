package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// groups checks every node against the plan and the pod's requirements. siblings are those
// of the pod.
func (v *View) groups(p *snapshot.Pod, plan *decision.Plan, siblings *decision.Distribution) (all []NodeGroup) {
	inspection := simulation.NewInspection(v.Snapshot, p)
	own := workload.NewConstraints(workload.BeforeAssignment(p.Pod, v.Policy), nil)
	index := map[string]int{}
	for _, n := range v.Snapshot.Nodes {
		verdict, obstacles := plan.Admit(n.Facts, 0, siblings.InPool(n.Facts)), inspection.Obstacles(n)
		if i := slices.Index(obstacles, simulation.NotSelected); i >= 0 && own.Matches(n.Node) {
			obstacles[i] = assignedBy(p)
		}
		if v.Scope.KeepsScheduler(p.Pod) {
			verdict = decision.Admitted
		} else if n.Facts.Capacity.Source == decision.Settling && verdict == decision.Admitted && v.withheldForFloor(n) {
			verdict = decision.AdmitReserved(verdict)
		}
		g := NodeGroup{
			Capacity: n.Facts.Capacity.Type.String(), Pool: definedPool(n), Accepts: verdict == decision.Admitted && len(obstacles) == 0,
			Reasons: obstacles, verdict: verdict, obstacles: obstacles, pools: map[string]bool{},
		}
		if reason := plan.Reason(verdict); reason != "" {
			g.Reasons = append([]string{reason}, obstacles...)
		}
		key := strings.Join(append([]string{g.Capacity}, g.Reasons...), "\x00")
		if g.Accepts {
			key += "\x00" + g.Pool // the pool decides between nodes that accept
		}
		at, known := index[key]
		if !known {
			at = len(all)
			index[key], all = at, append(all, g)
		}
		of := &all[at]
		of.Names = append(of.Names, n.Name)
		of.Count++
		if of.pools[g.Pool] = true; len(of.pools) > 1 {
			of.Pool, of.Pools = "", len(of.pools)
		}
	}
	slices.SortStableFunc(all, func(a, b NodeGroup) int {
		return cmp.Or(snapshot.TrueFirst(a.Accepts, b.Accepts), cmp.Compare(b.Count, a.Count),
			strings.Compare(a.Capacity, b.Capacity), strings.Compare(a.Pool, b.Pool))
	})
	return all
}

// withheldForFloor reports whether a pod waits for on-demand and could use the node. Then the
// scheduler withholds the node from other pods until the node's capacity type is known.
func (v *View) withheldForFloor(n *snapshot.Node) bool {
	return slices.ContainsFunc(v.Snapshot.Pods, func(q *snapshot.Pod) bool {
		if q.Spec.NodeName != "" || !q.Live() || q.Subject == nil || q.Spec.SchedulerName != v.Scope.Profile ||
			!workload.Unschedulable(q.Pod) {
			return false
		}
		settings, _ := v.Policy.Settings(&q.Subject.Pod)
		plan := decision.NewPlan(&q.Subject.Pod, settings, q.Revision.Placed, v.waiting(q))
		return plan.RequiresOnDemand() && len(simulation.NewInspection(v.Snapshot, q).Obstacles(n)) == 0
	})
}

// assignedBy explains a requirement that the pod's owner did not write.
func assignedBy(p *snapshot.Pod) string {
	return fmt.Sprintf("the controller assigned %s to it (annotation %s)", p.Subject.Pod.Assigned, spot.AssignedAnnotation)
}

// placementReason explains why a pod is on its node. It counts the siblings that precede the pod
// there (snapshot.ByRank). If more pods are there than the floor or the budget permits, the last
// ones are beyond it.
func (v *View) placementReason(e *Explanation, p *snapshot.Pod, siblings []*snapshot.Pod, waiting decision.WaitTime) string {
	if e.Scheduler != "" {
		return placedBy(p)
	}
	capacity := p.Node.Facts.Capacity.Type
	there := distributionOf(slices.DeleteFunc(slices.Clone(siblings), func(q *snapshot.Pod) bool {
		return q.Node != nil && q.Node.Facts.Capacity.Type == capacity && snapshot.ByRank(q, p) > 0
	}))
	settings, _ := v.Policy.Settings(&p.Subject.Pod)
	plan := decision.NewPlan(&p.Subject.Pod, settings, there.Placed, waiting)
	disrupted := plan.DisruptionReason()
	if disrupted != "" && capacity == decision.OnDemand {
		return disrupted
	}
	switch plan.Outcome(p.Node.Facts, there.InPool(p.Node.Facts)) {
	case decision.OnFloor:
		return "part of the floor"
	case decision.Overflow:
		if plan.ExcludedFromOnDemand() {
			return "beyond the floor, although overflow is Never: the setting, the floor or the replica count has changed since"
		}
		if p.Subject.OnlyOnDemand {
			if p.Subject.Pod.Assigned == decision.AssignedOnDemand {
				return "beyond the floor: " + assignedBy(p)
			}
			return "beyond the floor: " + e.onlyType(decision.OnDemand)
		}
		return "beyond the floor: no spot node had room, or the budget was used up"
	case decision.ByExemption:
		return "the floor does not apply, because " + e.onlyType(decision.Spot)
	case decision.ByScheduleAnyway:
		return "over its budget or cap: whenUnsatisfiable is ScheduleAnyway"
	}
	if !plan.Exempt && !plan.WithinBudget(0) && disrupted != "" {
		return "placed before its Job reached the disruption limit, or it fell back to spot"
	}
	if !plan.Exempt && !plan.WithinBudget(0) {
		return "over its budget: it fell back to spot, or the floor or the replica count has changed since"
	}
	return "within its budget"
}
