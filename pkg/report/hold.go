package report

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// wantedForFloor reports whether a pod other than p waits that must have on-demand and could use the node, which the scheduler then holds
// until the node's capacity type is known.
func (v *View) wantedForFloor(n *cluster.Node, p *cluster.Pod) bool {
	return slices.ContainsFunc(v.Snapshot.Pods, func(q *cluster.Pod) bool {
		if q == p || q.Spec.NodeName != "" || !q.Live() || q.Subject == nil || q.Spec.SchedulerName != v.Profile || !unschedulable(q) {
			return false
		}
		settings, _ := v.Policy.Settings(&q.Subject.Pod)
		plan := decision.NewPlan(&q.Subject.Pod, settings, q.Revision.Placed, v.waiting(q))
		return !plan.MayTakeSpot() && len(cluster.NewInspection(v.Snapshot, q).Obstacles(n)) == 0
	})
}

// unschedulable reports whether the scheduler has tried the pod and found no node.
func unschedulable(p *cluster.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
	})
}
