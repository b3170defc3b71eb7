package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// InterruptionTaint is the project's own signal, and the one to set by hand or from a webhook; its value is a short reason.
const InterruptionTaint = "spot-aware-scheduler.io/interruption"

// DeadlineAnnotation says, on a node with a reclaim signal, when the node goes (RFC 3339). It counts with every such signal.
const DeadlineAnnotation = "spot-aware-scheduler.io/interruption-deadline"

// NotReadyReclaimAfter is how long a spot node must have been not ready to count as being reclaimed: the node monitor grace
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
	Class decision.SignalClass
	// Notice is how much time is left when the signal appears; 0 if that is unknown or stands elsewhere. Only the controller uses it: to the
	// scheduler a node that goes takes no pod, however long it lasts.
	Notice time.Duration
}

const (
	nth          = "aws-node-termination-handler/"
	castDraining = "autoscaling.cast.ai/draining"
)

// BuiltinSignals returns what clouds and provisioners are known to set, each row with its source.
func BuiltinSignals() []Signal {
	return []Signal{
		{TaintSignal, InterruptionTaint, "", decision.Reclaim, 0},
		// aws-node-termination-handler pkg/node; AWS gives two minutes, best effort.
		{TaintSignal, nth + "spot-itn", "", decision.Reclaim, 2 * time.Minute},
		// Often never comes true (NTH #321, #458).
		{TaintSignal, nth + "rebalance-recommendation", "", decision.Advisory, 0},
		{TaintSignal, nth + "scheduled-maintenance", "", decision.Reclaim, 0},
		{TaintSignal, nth + "asg-lifecycle-termination", "", decision.Reclaim, 0},
		// karpenter pkg/apis/v1/taints.go.
		{TaintSignal, "karpenter.sh/disrupted", "", decision.Drain, 0},
		// cluster-autoscaler utils/taints; the value is a unix time.
		{TaintSignal, "ToBeDeletedByClusterAutoscaler", "", decision.Drain, 0},
		{TaintSignal, "DeletionCandidateOfClusterAutoscaler", "", decision.Advisory, 0},
		// k8s-node-termination-handler for GCE.
		{TaintSignal, "cloud.google.com/impending-node-termination", "", decision.Reclaim, 30 * time.Second},
		// AKS node problem detector: scheduled events, at least 30 s.
		{ConditionSignal, "VMEventScheduled", "True", decision.Reclaim, 30 * time.Second},
		// AKS node auto-repair drains.
		{TaintSignal, "remediator.kubernetes.azure.com/unschedulable", "", decision.Drain, 0},
		// ACK node problem detector: about five minutes.
		{ConditionSignal, "InstanceExpired", "True", decision.Reclaim, 5 * time.Minute},
		// OKE.
		{TaintSignal, "ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", "", decision.Reclaim, 0},
		// OpenShift machine-api-provider-aws, termination handler; its reason is TerminationRequested.
		{ConditionSignal, "Terminating", "True", decision.Reclaim, 2 * time.Minute},
		// CAST AI drains.
		{LabelSignal, castDraining, "spot-interruption", decision.Drain, 0},
		{LabelSignal, castDraining, "spot-prediction", decision.Drain, 0},
		// Kubernetes, non-graceful node shutdown: the node is gone.
		{TaintSignal, v1.TaintNodeOutOfService, "", decision.Drain, 0},
	}
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

// String names the signal as it stands on a node: "taint example.com/going=soon", without the value where any will do.
func (s *Signal) String() string {
	if s.Value == "" {
		return string(s.Kind) + " " + s.Key
	}
	return string(s.Kind) + " " + s.Key + "=" + s.Value
}

// on reports whether the signal stands on node.
func (s *Signal) on(node *v1.Node) bool {
	_, on := s.since(node)
	return on
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
			if c := &node.Status.Conditions[i]; string(c.Type) == s.Key && matches(string(c.Status), true) {
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
