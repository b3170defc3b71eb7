package kube

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// NodeReader reads Nodes into decision values. Its fields are not changed after it is built.
type NodeReader struct {
	Policy  *decision.Policy
	Signals []Signal
	// NotReadyAfter is how long a spot node must have been not ready to count as being reclaimed; 0 means NotReadyReclaimAfter.
	NotReadyAfter time.Duration
}

// Read returns what a decision at now needs to know of node, and when that will change although the Node does not (zero: never).
// othersLabeled is as in Policy.Capacity.
func (r *NodeReader) Read(node *v1.Node, othersLabeled bool, now time.Time) (facts decision.Node, until time.Time) {
	age := now.Sub(node.CreationTimestamp.Time)
	facts.Capacity = r.Policy.Capacity(node.Labels, age, othersLabeled)
	if facts.Capacity.Source == decision.Settling {
		until = node.CreationTimestamp.Add(r.Policy.LabelGrace)
	}
	facts.Pool = decision.NewPool(node.Labels[v1.LabelInstanceTypeStable], node.Labels[v1.LabelTopologyZone])
	if node.DeletionTimestamp != nil {
		facts.Signal = decision.Drain
	}
	for i := range r.Signals {
		if s := &r.Signals[i]; s.Class > facts.Signal && s.on(node) {
			facts.Signal = s.Class
		}
	}
	if facts.Capacity.Type == decision.Spot && facts.Signal < decision.Reclaim {
		if since, down := notReadySince(node); down {
			gone := since.Add(cmp.Or(r.NotReadyAfter, NotReadyReclaimAfter))
			if now.Before(gone) {
				until = earlier(until, gone)
			} else {
				facts.Signal = decision.Reclaim
			}
		}
	}
	return facts, until
}

// notReadySince returns since when node has been known not to be ready. A node without a Ready condition has not reported yet.
func notReadySince(node *v1.Node) (time.Time, bool) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.LastTransitionTime.Time, c.Status != v1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
