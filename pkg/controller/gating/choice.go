package gating

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

type choice struct {
	// assigned and why are the content of spot.AssignedAnnotation.
	assigned decision.AssignedCapacity
	why      string
	// require is added to the pod's required node affinity. Its terms are alternatives.
	require []v1.NodeSelectorTerm
	// prefer has the terms that are added to the pod's preferred node affinity; nil for nothing.
	// Karpenter treats a preference as a requirement until no node can satisfy it. Without the
	// preference, Karpenter puts overflow on the on-demand nodes that it creates for floors, and
	// creates larger nodes.
	prefer []v1.NodeSelectorTerm
	// granted is the value of spot.GrantedAnnotation; empty for none.
	granted string
	// warning is the note of an event if autoscalers cannot provide what the policy requires; empty
	// for none. If ofRevision is true, the warning applies to all pods of the revision, and one
	// event is enough.
	warning    string
	ofRevision bool
	// invalid contains the annotations that were ignored, if no scheduler of this project reports
	// them.
	invalid []decision.InvalidAnnotation
}

func (c choice) annotation() string {
	return cmp.Or(c.assigned.String(), "none") + ": " + c.why
}

// ofFloor reports whether the pod counts as part of the floor.
func (c *choice) ofFloor() bool {
	return c.assigned == decision.AssignedOnDemand || strings.HasPrefix(c.why, whyAnyway)
}

// whyReturns explains the requirement of a pod that replaces a released pod. It also identifies the
// replacement.
func whyReturns(released string) string {
	return "replaces pod " + released + ", which returns to spot"
}

// whyAnyway explains that a pod of the floor may run anywhere. It also identifies such a pod.
const whyAnyway = "whenUnsatisfiable ScheduleAnyway"

// facts are the inputs of a choice besides the pod and its settings.
type facts struct {
	// labels are the expressions for the pod. hidden is the name of a spot node that they do not
	// exclude although the pod's scheduler knows nothing else of the floor; "" for none.
	labels *Labels
	hidden string
	// kept reports whether another scheduler places the pod.
	kept bool
	// lasting means that the pod may fall back, but not by a replacement.
	lasting bool
	// assigned is the number of other live pods of the revision that require on-demand, or will.
	assigned int
	// granted is the grant for the waiting time of the pod's predecessor: spot.GrantedFallback,
	// spot.GrantedRelief or "".
	granted string
	// requests is workload.ResourcesNote.
	requests string
	// returns is the name of the released pod that returns to spot, and that this pod replaces; ""
	// for none.
	returns string
	// couldRun reports whether a node of a capacity type, existing or new, could run the pod.
	couldRun func(decision.AssignedCapacity) bool
	// onlySpot reports whether no on-demand node could run the pod even without taints.
	onlySpot func() bool
}

// chooseWithoutOnDemand decides the affinity of a pod of a floor that no on-demand node could run.
// No pod of the revision gets on-demand, so each one is the first of the floor. The preference
// finds an on-demand node that was never seen. Waiting would be useless. The pod is exempt, as if
// its own node selector admitted only spot, unless the reason is a taint, which its owner may
// remove, or the device that a young node lacks.
func (l *Labels) chooseWithoutOnDemand(settings decision.WorkloadSettings, f facts, floor string) choice {
	c := choice{
		assigned: decision.AssignedAny, prefer: allOf(l.notSpot), why: floor +
			", but no on-demand node that exists or existed could run it" + f.requests, ofRevision: true,
		warning: "The floor does not require on-demand: no on-demand node that exists or existed could run the pod " +
			"(taints, node selector and affinity, volumes, extended resources, affinity to other pods)" + f.requests,
	}
	switch {
	case settings.Exemptions == decision.AllowExemptions && f.onlySpot():
		c.granted = spot.GrantedExemption
	case settings.FallbackAfter != decision.Never:
		c.granted = spot.GrantedFallback
	}
	return c
}

// choose decides the affinity of a gated pod. A requirement becomes a preference if it would change
// the meaning of the pod's topology spread constraints, or prevent a fallback.
func (l *Labels) choose(subject *workload.Subject, settings decision.WorkloadSettings, f facts) choice {
	c := l.chooseRequirement(subject, settings, f)
	reason := "a topology spread constraint counts only the nodes that required affinity admits"
	switch {
	case len(c.require) > 0 && subject.Pod.SpreadByAffinity:
	case f.lasting && len(c.require) > 0 && c.assigned == decision.AssignedOnDemand:
		reason = "no controller would recreate the pod as it is for a fallback"
		if f.kept { // its scheduler may use spot at once
			c.granted = spot.GrantedFallback
		}
	default:
		return c
	}
	c.why += ", without required affinity: " + reason
	c.prefer, c.require = c.require, nil
	if c.assigned == decision.AssignedSpot {
		c.assigned, c.ofRevision = decision.AssignedAny, true
	}
	if c.ofRevision || f.assigned == 0 {
		c.warning = cmp.Or(c.warning, "The capacity type is only a preference in the pod's affinity, which autoscalers may ignore: "+reason)
	}
	return c
}

// chooseRequirement uses the scheduler's plan with one difference: the pods that require on-demand
// count as the floor, wherever they run. The autoscaler may move a replica that runs on on-demand
// without requiring it.
func (l *Labels) chooseRequirement(subject *workload.Subject, settings decision.WorkloadSettings, f facts) choice {
	pod := *subject.Pod.Replacement() // ignore annotations that the pod was created with
	plan := decision.NewPlan(&pod, settings, decision.PlacedPods{OnDemand: f.assigned}, decision.WaitTime{})
	ofFloor := !plan.BeyondFloor()
	floor := "beyond the floor of " + pod.Workload.Revision
	switch w := &pod.Workload; {
	case plan.DisruptionReason() != "":
		floor = plan.DisruptionReason()
	case plan.Floor == 0:
		floor = w.Revision + " has no floor"
	case ofFloor && w.Ordered:
		floor = fmt.Sprintf("ordinal %d of %s, whose first %d ordinals are the floor", w.Ordinal, w.Revision, plan.Floor)
	case ofFloor: // no pod counts that does not require on-demand
		floor = fmt.Sprintf("floor of %s, which is %d", w.Revision, plan.Floor)
	}
	switch {
	case f.granted != "":
		return choice{
			assigned: decision.AssignedAny, granted: f.granted, prefer: anyOf(l.spot),
			why: "granted by " + f.granted + ": no on-demand node was found",
		}
	case pod.OnlySpot:
		c := choice{why: "its own node selector or affinity admits only spot"}
		if ofFloor {
			c.warning = "The pod is part of the floor, but its own node selector or affinity admits only spot: autoscalers do not see the floor"
		}
		return c
	case pod.OnlyOnDemand:
		return choice{why: "its own node selector or affinity admits no spot"} // it counts as part of the floor
	case ofFloor && f.hidden != "":
		return choice{
			why: spot.NotExcluded + f.hidden + ", " + floor, ofRevision: true,
			warning: "The pod is part of the floor, but gets no affinity: no label that affinity can express marks " + f.hidden + " as spot",
		}
	case ofFloor && settings.WhenUnsatisfiable == decision.ScheduleAnyway:
		return choice{why: whyAnyway + ": the floor is a preference, " + floor, prefer: allOf(l.notSpot)}
	case ofFloor && !f.couldRun(decision.AssignedOnDemand):
		return l.chooseWithoutOnDemand(settings, f, floor)
	case ofFloor:
		if plan.DisruptionReason() == "" && plan.Floor > 0 && !pod.Workload.Ordered {
			floor = fmt.Sprintf("floor of %s, %d of %d", pod.Workload.Revision, f.assigned+1, plan.Floor)
		}
		return choice{assigned: decision.AssignedOnDemand, why: floor, require: allOf(l.notSpot)}
	}
	c := choice{assigned: decision.AssignedAny, why: floor, prefer: anyOf(l.spot)}
	requiresSpot := len(l.spot) > 0 && (f.returns != "" || settings.Overflow == decision.NeverOverflow)
	switch {
	case settings.Overflow == decision.NeverOverflow && pod.SpreadToOnDemand:
		c.ofRevision = true
		c.warning = "overflow Never does not apply: a topology spread constraint has a domain without spot nodes, and some replica must run there"
	case requiresSpot && !f.couldRun(decision.AssignedSpot):
		c.why += ", and no spot node that exists or existed could run it" + f.requests
	case requiresSpot && f.returns != "":
		c = choice{assigned: decision.AssignedSpot, why: whyReturns(f.returns), require: anyOf(l.spot)}
	case requiresSpot:
		c = choice{assigned: decision.AssignedSpot, why: "overflow Never, " + floor, require: anyOf(l.spot)}
	case plan.PrefersOnDemandAfterDisruptions():
		c = choice{why: floor, prefer: allOf(l.notSpot)}
	}
	if plan.PoolCap > 0 && c.warning == "" {
		c.ofRevision, c.warning = true, capWarning(&plan, f.kept)
	}
	return c
}

// capWarning returns the warning about the pool cap of a plan. kept is as in facts.
func capWarning(plan *decision.Plan, kept bool) string {
	if kept {
		return "maxPerPool has no effect on this pod: another scheduler places it, and node affinity cannot express a cap"
	}
	return fmt.Sprintf("Autoscalers do not see maxPerPool: once a pool runs %d replicas, the pod may wait for a node that no "+
		"autoscaler starts", plan.PoolCap)
}
