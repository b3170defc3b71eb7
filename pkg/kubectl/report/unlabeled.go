package report

import (
	"slices"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// withheldForFloor reports whether a pod other than p waits for on-demand and could use the node.
// Then the scheduler withholds the node from p until the node's capacity type is known.
func (v *View) withheldForFloor(n *snapshot.Node, p *snapshot.Pod) bool {
	return slices.ContainsFunc(v.Snapshot.Pods, func(q *snapshot.Pod) bool {
		if q == p || q.Spec.NodeName != "" || !q.Live() || q.Subject == nil || q.Spec.SchedulerName != v.Profile || !workload.Unschedulable(q.Pod) {
			return false
		}
		settings, _ := v.Policy.Settings(&q.Subject.Pod)
		plan := decision.NewPlan(&q.Subject.Pod, settings, q.Revision.Placed, v.waiting(q))
		return plan.RequiresOnDemand() && len(simulation.NewInspection(v.Snapshot, q).Obstacles(n)) == 0
	})
}
