package providers

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// SignalKind is the part of a Node in which a signal appears.
type SignalKind string

// The kinds of signals, as in the configuration.
const (
	TaintSignal      SignalKind = "taint"
	ConditionSignal  SignalKind = "condition"
	LabelSignal      SignalKind = "label"
	AnnotationSignal SignalKind = "annotation"
)

// Signal is one way in which a cloud or a provisioner announces that a node is about to be
// reclaimed or drained.
type Signal struct {
	Kind SignalKind
	// Key is the key of the taint, label or annotation, or the type of the condition.
	Key string
	// Value must equal the value of the taint, label or annotation, or the status of the condition.
	// An empty Value matches any value, but a condition always has one. The effect of a taint does
	// not matter.
	Value string
	// Mentions must be contained in the reason or message of the condition; empty matches any. Only
	// conditions have it.
	Mentions string
	Class    decision.SignalClass
	// OnlySpot limits the class on a node that is not spot, to Elsewhere. Zero means advisory.
	OnlySpot  bool
	Elsewhere decision.SignalClass
	// ProvesSpot: only spot nodes get the signal. A node without a capacity label that has it is
	// spot.
	ProvesSpot bool
	// Notice is how much time is left when the signal appears; 0 if it is unknown or recorded
	// elsewhere. Only the controller uses it: the scheduler places no pods on a node that is about
	// to be reclaimed, however much time is left. A node that is reclaimed earlier has the time in
	// spot.InterruptionDeadlineAnnotation. No field contains the key of another annotation for it.
	Notice time.Duration
	// SparesPods: the client that drains the node because of the signal does not evict pods with a
	// do-not-disrupt annotation (workload.DoNotDisrupt) and pods that tolerate the signal's taint.
	SparesPods bool
	// Termination is the key of an annotation with the time (RFC 3339) at which that client
	// terminates the node with all remaining pods. The annotation is on the Node, or on the
	// NodeOwner that owns the Node. It may be missing. Like SparesPods it is only for the class
	// Drain: it is not the deadline of a reclaim.
	Termination string
}

// NodeOwner is the resource of the objects that own nodes and may have the annotation Termination.
var NodeOwner = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

const (
	nth          = "aws-node-termination-handler/"
	castDraining = "autoscaling.cast.ai/draining"
	vmEvent      = "VMEventScheduled"
	preemption   = "PreemptionScheduled"

	// KarpenterDisruptedTaint is the key of the taint of a node that Karpenter removes.
	KarpenterDisruptedTaint = "karpenter.sh/disrupted"
)

// KubeletShutdown is the signal of a kubelet with a graceful node shutdown, which ends the pods of
// its node (pkg/kubelet/nodeshutdown; its shortest usual time is that of GKE). It is the only
// notice where no program announces a reclaim. On a node that another actor cordoned before, it is
// a drain, such as a reboot.
var KubeletShutdown = Signal{Kind: ConditionSignal, Key: string(v1.NodeReady), Value: string(v1.ConditionFalse),
	Mentions: "node is shutting down", Class: decision.Reclaim, OnlySpot: true, Elsewhere: decision.Drain, Notice: 30 * time.Second}

// Signals returns the known signals of clouds and provisioners, each with its source.
// Signals of a reclaim by the cloud are OnlySpot. A cloud does not reclaim on-demand nodes: there,
// such a signal announces maintenance, which the node may survive.
func Signals() []Signal {
	return []Signal{
		{Kind: TaintSignal, Key: spot.InterruptionTaint, Class: decision.Reclaim},
		// aws-node-termination-handler pkg/node; AWS gives two minutes, best effort.
		{Kind: TaintSignal, Key: nth + "spot-itn", Class: decision.Reclaim, OnlySpot: true, ProvesSpot: true, Notice: 2 * time.Minute},
		// Often not followed by an interruption (NTH #321, #458).
		{Kind: TaintSignal, Key: nth + "rebalance-recommendation", Class: decision.Advisory, ProvesSpot: true},
		{Kind: TaintSignal, Key: nth + "scheduled-maintenance", Class: decision.Reclaim},
		{Kind: TaintSignal, Key: nth + "asg-lifecycle-termination", Class: decision.Reclaim},
		// karpenter pkg/apis/v1/taints.go and labels.go; pkg/utils/pod/scheduling.go: IsEvictable.
		{Kind: TaintSignal, Key: KarpenterDisruptedTaint, Class: decision.Drain, SparesPods: true,
			Termination: "karpenter.sh/nodeclaim-termination-timestamp"},
		// cluster-autoscaler utils/taints; the value is a unix time.
		{Kind: TaintSignal, Key: "ToBeDeletedByClusterAutoscaler", Class: decision.Drain},
		{Kind: TaintSignal, Key: "DeletionCandidateOfClusterAutoscaler", Class: decision.Advisory},
		// k8s-node-termination-handler for GCE. Nodes with GPUs get it, too, before maintenance
		// that also terminates them.
		{Kind: TaintSignal, Key: "cloud.google.com/impending-node-termination", Class: decision.Reclaim, OnlySpot: true, ProvesSpot: true,
			Notice: 30 * time.Second},
		// AKS node problem detector. The condition is set for every scheduled event. "Preempt
		// Scheduled: …" appears at least 30 s before the VM is reclaimed. A Freeze lasts seconds.
		// Reboot, Redeploy and Terminate also occur on on-demand nodes (karpenter-provider-azure
		// #1594).
		{Kind: ConditionSignal, Key: vmEvent, Value: "True", Mentions: "Preempt", Class: decision.Reclaim, OnlySpot: true, ProvesSpot: true,
			Notice: 30 * time.Second},
		{Kind: ConditionSignal, Key: vmEvent, Value: "True", Class: decision.Advisory},
		// The same since 2026, for preemption only (karpenter-provider-azure #1695, #1829).
		{Kind: ConditionSignal, Key: preemption, Value: "True", Class: decision.Reclaim, OnlySpot: true, ProvesSpot: true,
			Notice: 30 * time.Second},
		// AKS node auto-repair drains.
		{Kind: TaintSignal, Key: "remediator.kubernetes.azure.com/unschedulable", Class: decision.Drain},
		// ACK node problem detector: about five minutes.
		{Kind: ConditionSignal, Key: "InstanceExpired", Value: "True", Class: decision.Reclaim, OnlySpot: true, ProvesSpot: true,
			Notice: 5 * time.Minute},
		// OKE.
		{Kind: TaintSignal, Key: "ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", Class: decision.Reclaim,
			OnlySpot: true, ProvesSpot: true},
		// OpenShift machine-api-provider-aws, termination handler; its reason is
		// TerminationRequested.
		{Kind: ConditionSignal, Key: "Terminating", Value: "True", Class: decision.Reclaim, OnlySpot: true, ProvesSpot: true,
			Notice: 2 * time.Minute},
		// CAST AI drains.
		{Kind: LabelSignal, Key: castDraining, Value: "spot-interruption", Class: decision.Drain, ProvesSpot: true},
		{Kind: LabelSignal, Key: castDraining, Value: "spot-prediction", Class: decision.Drain, ProvesSpot: true},
		// Kubernetes 1.37, KEP-5683: an administrator sets and clears these conditions. Maintenance
		// need not drain the node.
		{Kind: ConditionSignal, Key: "DrainInProgress", Value: "True", Class: decision.Drain},
		{Kind: ConditionSignal, Key: "Drained", Value: "True", Class: decision.Drain},
		// The node shuts down and ends its pods. The kubelet of Kubernetes 1.37 does not set it.
		{Kind: ConditionSignal, Key: "GracefulNodeShutdownInProgress", Value: "True", Class: decision.Drain},
		{Kind: ConditionSignal, Key: "MaintenancePlanned", Value: "True", Class: decision.Advisory},
		{Kind: ConditionSignal, Key: "MaintenanceInProgress", Value: "True", Class: decision.Advisory},
		KubeletShutdown,
		// Kubernetes, non-graceful node shutdown: the node is gone.
		{Kind: TaintSignal, Key: v1.TaintNodeOutOfService, Class: decision.Drain},
	}
}

// SpotNotice returns the first of the signals on the node that only spot nodes get; nil if there is
// none.
func SpotNotice(signals []Signal, node *v1.Node) *Signal {
	for i := range signals {
		if signals[i].ProvesSpot && signals[i].IsOn(node) {
			return &signals[i]
		}
	}
	return nil
}

// ClassOn returns the class of the signal on a node of a capacity type.
func (s *Signal) ClassOn(node *v1.Node, capacity decision.CapacityType) decision.SignalClass {
	switch {
	case s.OnlySpot && capacity != decision.Spot:
		return min(s.Class, cmp.Or(s.Elsewhere, decision.Advisory))
	case s.endsDrain(node):
		return decision.Drain
	}
	return s.Class
}

// endsDrain reports whether the signal is that of a kubelet that shuts down on a node that was
// cordoned before.
func (s *Signal) endsDrain(node *v1.Node) bool {
	since, shutdown := s.PresentSince(node)
	return shutdown && s.String() == KubeletShutdown.String() && slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeUnschedulable && t.TimeAdded != nil && !t.TimeAdded.After(since)
	})
}

// IsInterruption reports whether the signal means that the cloud reclaims a spot node. Maintenance,
// repair, replacement and scaling are not interruptions, because they do not indicate the risk of
// a spot pool. All signals of the class reclaim are interruptions, except those listed here.
func (s *Signal) IsInterruption() bool {
	switch s.Key {
	case nth + "scheduled-maintenance":
		return false
	case nth + "asg-lifecycle-termination":
		return false // the group also scales in and rebalances its zones
	case castDraining:
		// CAST AI drains the node itself, hence the class Drain. A prediction need not be followed
		// by an interruption.
		return s.Value == "spot-interruption"
	}
	return s.Class == decision.Reclaim
}

// Source returns the tool that sets the signal: the prefix of its key. Two signals of one source
// prove no more than one.
func (s *Signal) Source() string {
	if s.Key == preemption {
		return vmEvent // the node problem detector of AKS sets both
	}
	source, _, _ := strings.Cut(s.Key, "/")
	return source
}

// String returns the signal as it appears on a node: "taint example.com/maintenance=soon", or
// without the value if any value matches. It returns "condition Failing=True (disk)" if the
// condition must mention a text.
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

// IsOn reports whether the signal is on the node.
func (s *Signal) IsOn(node *v1.Node) bool {
	_, present := s.PresentSince(node)
	return present
}

// PresentSince reports whether the signal is on the node, and since when; zero if the Node does not
// record it.
func (s *Signal) PresentSince(node *v1.Node) (since time.Time, present bool) {
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

// unregisteredTaint is on a node until Karpenter has given it the labels and taints of its
// NodePool.
const unregisteredTaint = "karpenter.sh/unregistered"

// startupTaints are prefixes of the keys of start-up taints of Karpenter (pkg/apis/v1/taints.go),
// the cluster autoscaler (utils/taints) and the node readiness controller.
var startupTaints = []string{unregisteredTaint, "startup-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/", "status-taint.cluster-autoscaler.kubernetes.io/", "readiness.k8s.io/"}

// IsStartupTaint reports whether a taint with this key is a known start-up taint. The taints of
// Cilium, CSI drivers and Istio end in not-ready, and taints of cloud providers in uninitialized.
func IsStartupTaint(key string) bool {
	return strings.HasSuffix(key, "not-ready") || strings.HasSuffix(key, "uninitialized") ||
		slices.ContainsFunc(startupTaints, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Starting reports whether the node has other taints than its pool: some may be start-up taints,
// and some are missing until Karpenter removes its own taint. Karpenter sets the second label when
// the node has no start-up taint any more.
func Starting(node *v1.Node) bool {
	return node.Labels["karpenter.sh/registered"] == "true" && node.Labels["karpenter.sh/initialized"] != "true" ||
		slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == unregisteredTaint })
}
