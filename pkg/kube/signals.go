package kube

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// InterruptionTaint is the project's own signal, and the one to set by hand or from a webhook; its value is a short reason.
const InterruptionTaint = "spot-aware-scheduler.io/interruption"

// DeadlineAnnotation says, on a node with a reclaim signal, when the node goes (RFC 3339). It counts with every such signal.
const DeadlineAnnotation = "spot-aware-scheduler.io/interruption-deadline"

// NotReadyReclaimAfter is for how long nothing must be heard of a spot node's kubelet for the node to count as lost: the node monitor grace
// period of the controller manager was 40 s for years, so a spot node silent for longer is rather gone than slow.
const NotReadyReclaimAfter = 40 * time.Second

// SignalKind says where on a Node a signal stands.
type SignalKind string

// The kinds of signals, as configuration spells them.
const (
	TaintSignal      SignalKind = "taint"
	ConditionSignal  SignalKind = "condition"
	LabelSignal      SignalKind = "label"
	AnnotationSignal SignalKind = "annotation"
)

// Signal is one way in which a cloud or a provisioner announces that a node will go.
type Signal struct {
	Kind SignalKind
	// Key is the taint's, label's or annotation's key, or the condition's type.
	Key string
	// Value must equal the taint's, label's or annotation's value, or the condition's status; empty means any value (a
	// condition always has one). A taint counts whatever its effect.
	Value string
	// Mentions must be part of the condition's reason or message; empty means any. Only conditions have it.
	Mentions string
	Class    decision.SignalClass
	// OnlySpot: on a node that is not spot the signal is advisory at most.
	OnlySpot bool
	// Notice is how much time is left when the signal appears; 0 if that is unknown or stands elsewhere. Only the controller uses it: to the
	// scheduler a node that goes takes no pod, however long it lasts.
	Notice time.Duration
}

const (
	nth          = "aws-node-termination-handler/"
	castDraining = "autoscaling.cast.ai/draining"
	vmEvent      = "VMEventScheduled"

	karpenterDisrupted = "karpenter.sh/disrupted"
)

// BuiltinSignals returns the signals that clouds and provisioners are known to set, each row with its source. What a cloud says of a node
// that it reclaims is OnlySpot: an on-demand node is not reclaimed, so there it announces maintenance, which the node may survive.
func BuiltinSignals() []Signal {
	return []Signal{
		{Kind: TaintSignal, Key: InterruptionTaint, Class: decision.Reclaim},
		// aws-node-termination-handler pkg/node; AWS gives two minutes, best effort.
		{Kind: TaintSignal, Key: nth + "spot-itn", Class: decision.Reclaim, OnlySpot: true, Notice: 2 * time.Minute},
		// Often never comes true (NTH #321, #458).
		{Kind: TaintSignal, Key: nth + "rebalance-recommendation", Class: decision.Advisory},
		{Kind: TaintSignal, Key: nth + "scheduled-maintenance", Class: decision.Reclaim},
		{Kind: TaintSignal, Key: nth + "asg-lifecycle-termination", Class: decision.Reclaim},
		// karpenter pkg/apis/v1/taints.go.
		{Kind: TaintSignal, Key: karpenterDisrupted, Class: decision.Drain},
		// cluster-autoscaler utils/taints; the value is a unix time.
		{Kind: TaintSignal, Key: "ToBeDeletedByClusterAutoscaler", Class: decision.Drain},
		{Kind: TaintSignal, Key: "DeletionCandidateOfClusterAutoscaler", Class: decision.Advisory},
		// k8s-node-termination-handler for GCE.
		{Kind: TaintSignal, Key: "cloud.google.com/impending-node-termination", Class: decision.Reclaim, OnlySpot: true, Notice: 30 * time.Second},
		// AKS node problem detector. The condition is set for every scheduled event: "Preempt Scheduled: …" comes at least 30 s before the VM is
		// reclaimed; a Freeze lasts seconds, and Reboot, Redeploy and Terminate are not for spot alone (karpenter-provider-azure #1594).
		{Kind: ConditionSignal, Key: vmEvent, Value: "True", Mentions: "Preempt", Class: decision.Reclaim, OnlySpot: true, Notice: 30 * time.Second},
		{Kind: ConditionSignal, Key: vmEvent, Value: "True", Class: decision.Advisory},
		// The same since 2026, for preemption alone (karpenter-provider-azure #1695, #1829).
		{Kind: ConditionSignal, Key: "PreemptionScheduled", Value: "True", Class: decision.Reclaim, OnlySpot: true, Notice: 30 * time.Second},
		// AKS node auto-repair drains.
		{Kind: TaintSignal, Key: "remediator.kubernetes.azure.com/unschedulable", Class: decision.Drain},
		// ACK node problem detector: about five minutes.
		{Kind: ConditionSignal, Key: "InstanceExpired", Value: "True", Class: decision.Reclaim, OnlySpot: true, Notice: 5 * time.Minute},
		// OKE.
		{Kind: TaintSignal, Key: "ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", Class: decision.Reclaim, OnlySpot: true},
		// OpenShift machine-api-provider-aws, termination handler; its reason is TerminationRequested.
		{Kind: ConditionSignal, Key: "Terminating", Value: "True", Class: decision.Reclaim, OnlySpot: true, Notice: 2 * time.Minute},
		// CAST AI drains.
		{Kind: LabelSignal, Key: castDraining, Value: "spot-interruption", Class: decision.Drain},
		{Kind: LabelSignal, Key: castDraining, Value: "spot-prediction", Class: decision.Drain},
		// Kubernetes 1.37, KEP-5683: conditions that an admin sets and clears. Maintenance need not drain the node.
		{Kind: ConditionSignal, Key: "DrainInProgress", Value: "True", Class: decision.Drain},
		{Kind: ConditionSignal, Key: "Drained", Value: "True", Class: decision.Drain},
		{Kind: ConditionSignal, Key: "MaintenancePlanned", Value: "True", Class: decision.Advisory},
		{Kind: ConditionSignal, Key: "MaintenanceInProgress", Value: "True", Class: decision.Advisory},
		// Kubernetes, non-graceful node shutdown: the node is gone.
		{Kind: TaintSignal, Key: v1.TaintNodeOutOfService, Class: decision.Drain},
	}
}

// classOn returns the class that the signal has on a node of a capacity type.
func (s *Signal) classOn(capacity decision.CapacityType) decision.SignalClass {
	if s.OnlySpot && capacity != decision.Spot {
		return min(s.Class, decision.Advisory)
	}
	return s.Class
}

// interruption reports whether the signal says that the cloud takes a spot node back, as opposed to maintenance, repair, replacement or
// scaling, of which one pool is no more at risk than another. Signals of the class reclaim do, with these exceptions.
func (s *Signal) interruption() bool {
	switch s.Key {
	case nth + "scheduled-maintenance":
		return false
	case nth + "asg-lifecycle-termination":
		return false // the group also scales in and balances its zones
	case castDraining:
		// CAST drains the node itself, hence its class. A prediction need not come true.
		return s.Value == "spot-interruption"
	}
	return s.Class == decision.Reclaim
}

// String names the signal as it stands on a node: "taint example.com/going=soon", without the value where any will do, and
// "condition Failing=True (disk)" if the condition must mention something.
func (s *Signal) String() string {
	name := string(s.Kind) + " " + s.Key
	if s.Value != "" {
		name += "=" + s.Value
	}
	if s.Mentions != "" {
		name += " (" + s.Mentions + ")"
	}
	return name
}

// on reports whether the signal stands on node.
func (s *Signal) on(node *v1.Node) bool {
	_, on := s.since(node)
	return on
}

// onExcept reports whether the signal is on node by something that the controller did not write.
func (s *Signal) onExcept(node *v1.Node, own OwnMark) bool {
	if s.Kind != TaintSignal || s.Key != InterruptionTaint || own.Taint == "" {
		return s.on(node)
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Key == s.Key && (s.Value == "" || s.Value == t.Value) && !own.Own(t) {
			return true
		}
	}
	return false
}

// since returns since when the signal has stood on node, zero if the Node does not say, and whether it does.
func (s *Signal) since(node *v1.Node) (since time.Time, on bool) {
	matches := func(value string, ok bool) bool { return ok && (s.Value == "" || s.Value == value) }
	switch s.Kind {
	case TaintSignal:
		for i := range node.Spec.Taints {
			if t := &node.Spec.Taints[i]; t.Key == s.Key && matches(t.Value, true) {
				if t.TimeAdded != nil {
					since = t.TimeAdded.Time
				}
				return since, true
			}
		}
	case ConditionSignal:
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; string(c.Type) == s.Key && matches(string(c.Status), true) &&
				(strings.Contains(c.Reason, s.Mentions) || strings.Contains(c.Message, s.Mentions)) {
				return c.LastTransitionTime.Time, true
			}
		}
	case LabelSignal:
		value, ok := node.Labels[s.Key]
		return time.Time{}, matches(value, ok)
	case AnnotationSignal:
		value, ok := node.Annotations[s.Key]
		return time.Time{}, matches(value, ok)
	}
	return time.Time{}, false
}
