package gating

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// choice is what becomes of a gated pod.
type choice struct {
	// assigned and why are what kube.AssignedAnnotation is to say.
	assigned decision.Assignment
	why      string
	// require is added to each term of the pod's required node affinity.
	require []v1.NodeSelectorRequirement
	// prefer is added to the pod's preferred node affinity; nil for nothing. Karpenter takes a preference for a requirement until it finds that
	// nothing meets it. Without, it puts overflow on the on-demand nodes that it buys for floors, and buys larger ones.
	prefer []v1.NodeSelectorRequirement
	// granted is what kube.GrantedAnnotation is to say; empty for nothing.
	granted string
	// warning is the note of an event, where the pod cannot get what the policy wants for it; empty for none. If it is ofRevision, it holds for
	// all pods of the revision, and one event is enough.
	warning    string
	ofRevision bool
}

// annotation returns what kube.AssignedAnnotation is to say.
func (c choice) annotation() string {
	word := c.assigned.String()
	if word == "" {
		word = "none"
	}
	return word + ": " + c.why
}

// facts are what a choice depends on beside the pod and its settings.
type facts struct {
	// assigned is how many other live pods of the revision require on-demand, or are about to.
	assigned int
	// granted is what a predecessor of the pod has earned by waiting: kube.GrantedFallback, kube.GrantedRelief or nothing.
	granted string
	// toSpot: the pod replaces one that returns to spot.
	toSpot bool
}

// choose decides what a gated pod is to require. It asks the plan that the scheduler makes, with one difference: what counts as the floor is
// what requires on-demand, wherever it is. A replica that is on on-demand and does not require it is the autoscaler's to move.
func (l *Labels) choose(subject *kube.Subject, settings decision.Settings, f facts) choice {
	pod := *subject.Pod.Replacement() // what it was created with is somebody else's word
	plan := decision.NewPlan(&pod, settings, decision.Placed{OnDemand: f.assigned}, decision.Waiting{})
	ofFloor := !plan.BeyondFloor()
	floor := "beyond the floor of " + pod.Workload.Revision
	switch w := &pod.Workload; {
	case plan.Floor == 0:
		floor = w.Revision + " has no floor"
	case ofFloor && w.Ordered:
		floor = fmt.Sprintf("ordinal %d of %s, the first %d of which are the floor", w.Ordinal, w.Revision, plan.Floor)
	case ofFloor:
		floor = fmt.Sprintf("floor of %s, %d of %d", w.Revision, f.assigned+1, plan.Floor)
	}
	switch {
	case f.granted != "":
		return choice{
			assigned: decision.AssignedAny, why: "granted by " + f.granted + ": its predecessor found no on-demand node", granted: f.granted, prefer: l.preferSpot(),
		}
	case pod.OnlySpot:
		c := choice{why: "its own node selector or affinity admits only spot"}
		if ofFloor {
			c.warning = "It is part of the floor, but its own node selector or affinity admits only spot: autoscalers do not see the floor"
		}
		return c
	case pod.OnlyOnDemand:
		return choice{why: "its own node selector or affinity admits no spot"} // it counts as part of the floor
	case ofFloor && settings.WhenUnsatisfiable == decision.ScheduleAnyway:
		return choice{why: "whenUnsatisfiable ScheduleAnyway: the floor is a preference, " + floor, prefer: l.notSpot}
	case ofFloor:
		return choice{assigned: decision.AssignedOnDemand, why: floor, require: l.notSpot}
	}
	c := choice{assigned: decision.AssignedAny, why: floor, prefer: l.preferSpot()}
	switch {
	case f.toSpot && l.spot != nil:
		c = choice{assigned: decision.AssignedSpot, why: "replaces a replica that returns to spot", require: []v1.NodeSelectorRequirement{*l.spot}}
	case settings.Overflow == decision.NeverOverflow && l.spot != nil:
		c = choice{assigned: decision.AssignedSpot, why: "overflow Never, " + floor, require: []v1.NodeSelectorRequirement{*l.spot}}
	}
	if plan.PoolCap > 0 {
		c.ofRevision = true
		c.warning = fmt.Sprintf("No autoscaler sees maxPerPool: once a pool holds %d replicas, the pod may wait for a node that nobody starts", plan.PoolCap)
	}
	return c
}
