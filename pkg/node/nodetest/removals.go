package nodetest

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeState is a spot node at one moment. A nil Node does not exist.
type NodeState struct {
	Node *v1.Node
	Pods []*v1.Pod
}

// Removal is one way in which a spot node with pods is removed, as visible in the API.
type Removal struct {
	steps []change
	// WantLost: the node counts as lost.
	WantLost bool
	// Doubtful: the node also counts as lost if no observation falls between the first state and
	// the last.
	Doubtful bool
}

// States returns the states of a removal, one second apart. node and pods are the first state;
// States does not change them.
func (r *Removal) States(node *v1.Node, pods ...*v1.Pod) []NodeState {
	states := []NodeState{{node, pods}}
	for _, step := range r.steps {
		next := NodeState{Node: states[len(states)-1].Node.DeepCopy()}
		for _, pod := range states[len(states)-1].Pods {
			next.Pods = append(next.Pods, pod.DeepCopy())
		}
		step(&next)
		states = append(states, next)
	}
	return states
}

// change is one step of a removal.
type change = func(*NodeState)

func taint(key, value string) change {
	return func(s *NodeState) {
		s.Node.Spec.Taints = append(s.Node.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffectNoSchedule})
	}
}

func all(steps ...change) change {
	return func(s *NodeState) {
		for _, step := range steps {
			step(s)
		}
	}
}

// mark adds the marks that the controller writes when it reacts to a signal.
func mark(class, value string) change {
	return all(taint("spot-aware-scheduler.io/interruption", value), func(s *NodeState) {
		if s.Node.Annotations == nil {
			s.Node.Annotations = map[string]string{}
		}
		s.Node.Annotations["spot-aware-scheduler.io/interruption-state"] = fmt.Sprintf(`{"class":%q,"taint":%q}`, class, value)
	})
}

// kubelet sets the condition Ready, an hour before now.
func kubelet(status v1.ConditionStatus, now time.Time) change {
	since := metav1.NewTime(now.Add(-time.Hour))
	return func(s *NodeState) {
		s.Node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, LastTransitionTime: since}}
	}
}

// end begins the deletion of all pods now.
func end(now time.Time) change {
	return func(s *NodeState) {
		for _, pod := range s.Pods {
			pod.DeletionTimestamp = &metav1.Time{Time: now}
		}
	}
}

// Removals returns the known ways in which a spot node is removed at now, by name.
func Removals(now time.Time) map[string]Removal {
	ready, unreachable, own := kubelet(v1.ConditionTrue, now), kubelet(v1.ConditionUnknown, now), mark("reclaim", "not-ready")
	untainted := func(s *NodeState) { s.Node.Spec.Taints = nil }
	deleted := func(s *NodeState) { s.Node.DeletionTimestamp = &metav1.Time{Time: now} } // Karpenter's finalizer delays the deletion
	cordoned := func(s *NodeState) { s.Node.Spec.Unschedulable = true }
	uncordoned := func(s *NodeState) { s.Node.Spec.Unschedulable = false }
	ending := end(now)
	empty := func(s *NodeState) { s.Pods = nil }
	gone := func(s *NodeState) { *s = NodeState{} }

	karpenter, autoscaler := taint("karpenter.sh/disrupted", ""), taint("ToBeDeletedByClusterAutoscaler", "1767225600")
	candidate := taint("DeletionCandidateOfClusterAutoscaler", "1767225600")
	candidateMark, rebalanceMark := mark("advisory", "DeletionCandidateOfClusterAutoscaler"), mark("advisory", "rebalance-recommendation")
	maintenanceMark, byHand := mark("reclaim", "scheduled-maintenance"), taint("spot-aware-scheduler.io/interruption", "by-hand")
	itn, rebalance := taint("aws-node-termination-handler/spot-itn", "x"), taint("aws-node-termination-handler/rebalance-recommendation", "x")
	maintenance := taint("aws-node-termination-handler/scheduled-maintenance", "x")
	lost := func(steps ...change) Removal { return Removal{steps: steps, WantLost: true} }
	removed := func(steps ...change) Removal { return Removal{steps: steps} }
	doubtful := func(steps ...change) Removal { return Removal{steps: steps, Doubtful: true} }
	return map[string]Removal{
		"Karpenter consolidates an empty node":                  removed(empty, karpenter, deleted, gone),
		"Karpenter consolidates an underutilized node":          removed(karpenter, deleted, ending, empty, gone),
		"Karpenter consolidates a node with a stuck pod":        removed(karpenter, deleted, gone),
		"Karpenter cancels a consolidation":                     removed(karpenter, untainted),
		"Karpenter interrupts":                                  lost(deleted, karpenter, ending, empty, gone),
		"Karpenter interrupts, seen late":                       lost(all(deleted, karpenter), ending, empty, gone),
		"Karpenter interrupts a node that was just emptied":     lost(empty, deleted, gone),
		"Karpenter interrupts a cordoned node":                  lost(cordoned, deleted, karpenter, ending, empty, gone),
		"Karpenter interrupts a node that may be removed":       lost(candidate, candidateMark, deleted, karpenter, ending, empty, gone),
		"the cluster autoscaler removes an empty node":          removed(empty, candidate, autoscaler, gone),
		"the cluster autoscaler drains a node":                  removed(candidate, autoscaler, ending, empty, gone),
		"the cluster autoscaler deletes pods with a node":       removed(autoscaler, gone),
		"the cluster autoscaler, and the controller helps":      removed(candidate, candidateMark, empty, autoscaler, gone),
		"the controller empties a candidate that stays":         removed(candidate, candidateMark, ending, empty, untainted),
		"an operator drains and deletes":                        doubtful(cordoned, ending, empty, gone),
		"an operator drains, and deletes with a finalizer":      doubtful(cordoned, ending, empty, deleted, karpenter, gone),
		"an operator deletes a node with pods":                  lost(cordoned, gone),
		"a node vanishes while its last pods end":               doubtful(ending, gone),
		"an empty node vanishes":                                doubtful(empty, gone),
		"the cloud reclaims without notice":                     lost(gone),
		"the cloud reclaims, and the kubelet is unreachable":    lost(unreachable, gone),
		"the cloud reclaims a cordoned node":                    lost(cordoned, gone),
		"the cloud reclaims a cordoned, unreachable node":       lost(ready, cordoned, unreachable, gone),
		"an operator reboots a node":                            removed(ready, cordoned, ending, unreachable, own, all(empty, ready, untainted)),
		"an operator reboots a node with pods":                  removed(all(ready, cordoned), unreachable, all(ready, uncordoned)),
		"the cloud reclaims a node after a reboot":              lost(all(ready, cordoned), unreachable, all(ready, uncordoned), gone),
		"the cloud reclaims a node that is being drained":       lost(cordoned, ending, gone),
		"the cloud reclaims a candidate":                        lost(candidate, gone),
		"the cloud reclaims a node that Karpenter consolidates": lost(karpenter, itn, gone),
		"the cloud reclaims a node that the autoscaler drains":  lost(autoscaler, itn, empty, gone),
		"the cloud reclaims an empty node":                      lost(empty, itn, gone),
		"the cloud reclaims after an advisory signal":           lost(rebalance, rebalanceMark, gone),
		"the termination handler cordons and drains":            lost(all(itn, cordoned), ending, empty, gone),
		"the controller repeats the notice":                     lost(itn, mark("reclaim", "spot-itn"), ending, empty, gone),
		"the controller marks an unreachable node":              lost(mark("reclaim", "not-ready"), empty, gone),
		"the controller marks maintenance":                      removed(maintenance, maintenanceMark, ending, empty, gone),
		"the controller marks an advisory signal":               doubtful(rebalance, rebalanceMark, ending, empty, untainted, gone),
		"a user sets the project's taint":                       lost(byHand, ending, empty, gone),
	}
}

// Observations returns ways to observe the states of a removal: for each way, the indices of the
// observed states.
func (r *Removal) Observations(states []NodeState) map[string][]int {
	every := make([]int, len(states))
	for i := range states {
		every[i] = i
	}
	return map[string][]int{"every state": every, "the first and the last": slices.Compact([]int{0, len(states) - 1})}
}
