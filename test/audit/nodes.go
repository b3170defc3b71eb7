package audit

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// anyValue in a table matches every value.
const anyValue = "*"

// ownLabel is the project's own capacity label. It takes precedence over the other labels.
const ownLabel = "node.kubernetes.io/capacity"

// unreadyAfter is the time for which a spot node may be unready before it counts as reclaimed.
const unreadyAfter = 40 * time.Second

// capacityLabel maps the values of a label to capacity types. A value in never does not mean spot
// even if spot contains anyValue.
type capacityLabel struct {
	Key      string   `json:"key"`
	Spot     []string `json:"spot"`
	OnDemand []string `json:"onDemand"`
	never    []string
}

func (l capacityLabel) meansSpot(value string) bool {
	return (slices.Contains(l.Spot, value) || slices.Contains(l.Spot, anyValue)) && !slices.Contains(l.never, value)
}

// builtinCapacityLabels are the labels of the provisioners. A missing label has no meaning.
var builtinCapacityLabels = []capacityLabel{
	{Key: ownLabel, Spot: []string{"spot"}, OnDemand: []string{"on-demand"}},
	{Key: "karpenter.sh/capacity-type", Spot: []string{"spot"}, OnDemand: []string{"on-demand", "reserved"}},
	{Key: "eks.amazonaws.com/capacityType", Spot: []string{"SPOT"}, OnDemand: []string{"ON_DEMAND", "CAPACITY_BLOCK"}},
	{Key: "cloud.google.com/gke-spot", Spot: []string{"true"}},
	{Key: "cloud.google.com/gke-preemptible", Spot: []string{"true"}},
	{Key: "cloud.google.com/gke-provisioning", Spot: []string{"spot", "preemptible"}, OnDemand: []string{"standard"}},
	{Key: "kubernetes.azure.com/scalesetpriority", Spot: []string{"spot"}, OnDemand: []string{"regular"}},
	{Key: "node.alibabacloud.com/spot-strategy", Spot: []string{"SpotWithPriceLimit", "SpotAsPriceGo"}, OnDemand: []string{"NoSpot"}},
	{Key: "oci.oraclecloud.com/oke-is-preemptible", Spot: []string{"true"}},
	{Key: "cluster.x-k8s.io/interruptible", Spot: []string{anyValue}},
	{Key: "machine.openshift.io/interruptible-instance", Spot: []string{anyValue}},
	{Key: "spotinst.io/node-lifecycle", OnDemand: []string{"od"}},
	{Key: "scheduling.cast.ai/spot", Spot: []string{anyValue}, never: []string{"false"}},
	{Key: "scheduling.cast.ai/spot-fallback", OnDemand: []string{"true"}},
}

type signalKind string

const (
	taint      signalKind = "taint"
	condition  signalKind = "condition"
	label      signalKind = "label"
	annotation signalKind = "annotation"
)

// signal is one kind of interruption signal on a node. An advisory signal does not exclude pods.
type signal struct {
	kind     signalKind
	key      string
	value    string // anyValue, or the exact value
	reason   string // of a condition; "" for any
	mentions string // part of a condition's reason or message; "" for any
	advisory bool
	onlySpot bool // advisory on on-demand
}

// builtinSignals omits advisory signals, deletion and unreadiness. Advisory signals exclude no
// pods; the others have no label, taint or condition of their own.
var builtinSignals = []signal{
	{kind: taint, key: "spot-aware-scheduler.io/interruption", value: anyValue},
	{kind: taint, key: "aws-node-termination-handler/spot-itn", value: anyValue, onlySpot: true},
	{kind: taint, key: "aws-node-termination-handler/scheduled-maintenance", value: anyValue},
	{kind: taint, key: "aws-node-termination-handler/asg-lifecycle-termination", value: anyValue},
	{kind: taint, key: "karpenter.sh/disrupted", value: anyValue},
	{kind: taint, key: "ToBeDeletedByClusterAutoscaler", value: anyValue},
	{kind: taint, key: "cloud.google.com/impending-node-termination", value: anyValue, onlySpot: true},
	{kind: condition, key: "VMEventScheduled", value: "True", mentions: "Preempt", onlySpot: true},
	{kind: taint, key: "remediator.kubernetes.azure.com/unschedulable", value: anyValue},
	{kind: condition, key: "PreemptionScheduled", value: "True", onlySpot: true},
	{kind: condition, key: "InstanceExpired", value: "True", onlySpot: true},
	{kind: taint, key: "ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", value: anyValue, onlySpot: true},
	{kind: condition, key: "Terminating", value: "True", reason: "TerminationRequested", onlySpot: true},
	{kind: label, key: "autoscaling.cast.ai/draining", value: "spot-interruption"},
	{kind: label, key: "autoscaling.cast.ai/draining", value: "spot-prediction"},
	{kind: condition, key: "DrainInProgress", value: "True"},
	{kind: condition, key: "Drained", value: "True"},
	{kind: condition, key: "GracefulNodeShutdownInProgress", value: "True"},
	{kind: condition, key: "Ready", value: "False", mentions: "node is shutting down"},
	{kind: taint, key: "node.kubernetes.io/out-of-service", value: anyValue},
}

// nodeFacts are the facts about a node that the policy uses. The zero value is a node that does
// not exist.
type nodeFacts struct {
	exists   bool
	spot     bool
	labelled bool      // a label defines the capacity type
	signal   string    // the first reclaim or drain signal found, "" for none
	pool     string    // instance type and zone, "" if a label is missing
	created  time.Time // creationTimestamp: whole seconds
}

// nodeFacts returns the facts about a node at a time. Only unreadiness depends on now.
func (p *Policy) nodeFacts(n *corev1.Node, now time.Time) nodeFacts {
	facts := nodeFacts{exists: true, created: n.CreationTimestamp.Time}
	facts.spot, facts.labelled = p.capacity(n.Labels)
	facts.signal = p.signal(n, facts.spot, now)
	instance, zone := n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone]
	if instance != "" && zone != "" {
		facts.pool = instance + "/" + zone
	}
	return facts
}

func (p *Policy) capacity(nodeLabels map[string]string) (spot, labelled bool) {
	onDemand, unknown := false, false
	for _, row := range p.capacityLabels {
		value, present := nodeLabels[row.Key]
		if !present {
			continue
		}
		isSpot, isOnDemand := row.meansSpot(value), slices.Contains(row.OnDemand, value)
		if row.Key == ownLabel && (isSpot || isOnDemand) {
			return isSpot, true
		}
		spot, onDemand = spot || isSpot, onDemand || isOnDemand
		// If a label has values for one type only, other values are expected and not unknown.
		unknown = unknown || value != "" && !isSpot && !isOnDemand && len(row.Spot) > 0 && len(row.OnDemand) > 0
	}
	if spot || onDemand {
		return spot, true // spot also if aliases contradict each other
	}
	if unknown {
		return true, true
	}
	return p.unlabeledSpot, false
}

func (p *Policy) signal(n *corev1.Node, spot bool, now time.Time) string {
	if n.DeletionTimestamp != nil {
		return "deletionTimestamp"
	}
	for _, s := range p.signals {
		if !s.advisory && (spot || !s.onlySpot) && s.on(n) && !(s.key == ownTaint && markedAdvisory(n)) {
			return string(s.kind) + " " + s.key
		}
	}
	if spot && unready(n) && now.Sub(readySince(n)) > unreadyAfter {
		return "condition Ready"
	}
	return ""
}

// markedAdvisory reports whether the own taint on a node is the mark of spot-controller for an
// advisory signal, which excludes no pods.
func markedAdvisory(n *corev1.Node) bool {
	return strings.Contains(n.Annotations["spot-aware-scheduler.io/interruption-state"], `"class":"advisory"`) &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == ownTaint && t.Effect != corev1.TaintEffectPreferNoSchedule
		})
}

func (s signal) on(n *corev1.Node) bool {
	is := func(value string) bool { return s.value == anyValue || s.value == value }
	switch s.kind {
	case taint:
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == s.key && is(t.Value) })
	case condition:
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return string(c.Type) == s.key && is(string(c.Status)) && (s.reason == "" || s.reason == c.Reason) &&
				strings.Contains(c.Reason+" "+c.Message, s.mentions)
		})
	case label:
		value, present := n.Labels[s.key]
		return present && is(value)
	default:
		value, present := n.Annotations[s.key]
		return present && is(value)
	}
}

// unready reports whether condition Ready is Unknown. A node without the condition is not
// unready, and neither is a node whose kubelet reports False.
func unready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

func readySince(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
