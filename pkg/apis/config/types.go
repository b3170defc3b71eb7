package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/scalar"
)

// Scalar is a value that decodes whatever it is, so that validation can report every bad one.
type Scalar = scalar.Value

// ReplicaSafetyArgs are the arguments of the plugin ReplicaSafety: the whole policy of one profile.
type ReplicaSafetyArgs struct {
	metav1.TypeMeta `json:",inline"`

	// MinOnDemand is how many replicas of a workload must be able to survive the loss of all spot: a count, or a percentage of
	// the desired replicas, rounded up. Jobs have a default of their own (decision.Workload.Batch). Default 1.
	MinOnDemand Scalar `json:"minOnDemand,omitempty"`
	// UnlabeledNodes is the capacity type of nodes that no label speaks of: OnDemand (the default) or Spot.
	UnlabeledNodes Scalar `json:"unlabeledNodes,omitempty"`
	// MaxPerPool caps the replicas of a revision in one spot pool (instance type x zone): a count of 1 or more, or a percentage of
	// the desired replicas, rounded up and at least 1. Unset means no cap.
	MaxPerPool Scalar `json:"maxPerPool,omitempty"`
	// WhenUnsatisfiable says what happens to a pod that floor or cap keep off every node with room: DoNotSchedule (the default:
	// it waits) or ScheduleAnyway (floor and cap are preferences).
	WhenUnsatisfiable Scalar `json:"whenUnsatisfiable,omitempty"`
	// FallbackAfter is how long after it was first found unschedulable a pod may take spot regardless of floor and cap: a duration,
	// or "never". Unset means never.
	FallbackAfter Scalar `json:"fallbackAfter,omitempty"`
	// RolloutRelief is how long after it was first found unschedulable a pod of a new revision may take spot regardless of floor and
	// cap, if an older revision of its workload has pods on on-demand: a duration, or "never". Default 30s: this outlasts the start
	// of most containers, after which most rollouts delete an old replica.
	RolloutRelief Scalar `json:"rolloutRelief,omitempty"`
	// Overflow says what happens to replicas beyond the floor that no spot node takes: Allow (the default: they may take on-demand) or
	// Never (they wait for spot). A pod whose own node selector or required node affinity admits no spot node may take on-demand anyway.
	Overflow Scalar `json:"overflow,omitempty"`
	// Exemptions says whether the floor applies to a pod whose own node selector or required node affinity admits only spot: Allow (the
	// default: it does not) or Ignore (it does, and the pod waits if the floor keeps it off spot). No annotation changes it.
	Exemptions Scalar `json:"exemptions,omitempty"`
	// Rules give some pods settings of their own. They are tried in order: the first that matches a pod applies, the others do not.
	Rules []Rule `json:"rules,omitempty"`
	// LabelGrace is how long a node without a capacity label takes no floor pod after it was created, where other nodes carry or carried one:
	// with some provisioners labels arrive after registration. Default 30s; 0s for no grace.
	LabelGrace Scalar `json:"labelGrace,omitempty"`
	// GateTimeout is after how long the scheduler removes the scheduling gate of the autoscaler mode from a pod, counted from the pod's creation,
	// because the controller should have done so before. Default 30s, at least 1s. It holds whether or not the mode is used.
	GateTimeout Scalar `json:"gateTimeout,omitempty"`
	// AnnotationPolicy says how far workloads may decide for themselves: Allow (the default), StricterOnly (an annotation counts
	// only where it makes the workload safer) or Ignore.
	AnnotationPolicy Scalar `json:"annotationPolicy,omitempty"`
	// CapacityLabels are node labels that tell spot from on-demand, besides decision.BuiltinCapacityLabels.
	CapacityLabels []CapacityLabel `json:"capacityLabels,omitempty"`
	// Signals are ways in which a node says that it will go, besides kube.BuiltinSignals.
	Signals []Signal `json:"signals,omitempty"`
}

// Rule gives the pods that meet all of its conditions settings of their own. A condition that is not given holds for every pod,
// so a rule without conditions matches them all. It must set something.
type Rule struct {
	// Name tells the rule from the others, for people. Required.
	Name string `json:"name,omitempty"`

	// Namespaces holds for pods of one of these namespaces.
	Namespaces []string `json:"namespaces,omitempty"`
	// PodSelector holds for pods whose labels it selects; an empty one selects every pod.
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// PriorityClasses holds for pods of one of these priority classes.
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// MinPriority holds for pods of this priority or a higher one.
	MinPriority Scalar `json:"minPriority,omitempty"`
	// QOSClasses holds for pods of one of these classes: Guaranteed, Burstable, BestEffort.
	QOSClasses []string `json:"qosClasses,omitempty"`
	// OwnerKinds holds for pods whose workload is of one of these kinds, such as Deployment, StatefulSet or Job; Pod is the pod
	// without a controller.
	OwnerKinds []string `json:"ownerKinds,omitempty"`

	// The settings below replace those of ReplicaSafetyArgs where they are set. (A fallbackAfter of "never" and a maxPerPool of "100%" switch off what the profile sets.)
	MinOnDemand       Scalar `json:"minOnDemand,omitempty"`
	MaxPerPool        Scalar `json:"maxPerPool,omitempty"`
	WhenUnsatisfiable Scalar `json:"whenUnsatisfiable,omitempty"`
	FallbackAfter     Scalar `json:"fallbackAfter,omitempty"`
	RolloutRelief     Scalar `json:"rolloutRelief,omitempty"`
	Overflow          Scalar `json:"overflow,omitempty"`
	Exemptions        Scalar `json:"exemptions,omitempty"`
	AnnotationPolicy  Scalar `json:"annotationPolicy,omitempty"`
	// Protect, true, has the controller keep a PodDisruptionBudget for each Deployment that no other one selects, so that whoever drains a
	// node has to wait for replacements. Default false; the profile has no such field.
	Protect Scalar `json:"protect,omitempty"`
}

// CapacityLabel says which values of a node label mean spot and which on-demand. Where both are listed, a node with another value counts as
// spot unless another capacity label has a known value. Where only one is listed, other values say nothing.
type CapacityLabel struct {
	Key      string   `json:"key,omitempty"`
	Spot     []string `json:"spot,omitempty"`
	OnDemand []string `json:"onDemand,omitempty"`
}

// Signal is one way in which a node says that it will go. Exactly one of Taint, Condition, Label and Annotation is set.
type Signal struct {
	// Taint is the "key" or "key=value" of a taint, which counts whatever its effect.
	Taint string `json:"taint,omitempty"`
	// Condition is the "Type=Status" of a node condition; "Type" alone means "Type=True".
	Condition string `json:"condition,omitempty"`
	// Mentions is a text that the reason or the message of the condition must contain. Only for conditions.
	Mentions string `json:"mentions,omitempty"`
	// Label and Annotation are a "key" or "key=value".
	Label      string `json:"label,omitempty"`
	Annotation string `json:"annotation,omitempty"`
	// Class says what the signal asks for. reclaim: the node goes at a deadline and nobody else empties it; it takes no new pods.
	// drain: somebody else already removes its pods; it takes no new ones. advisory: it may go; it is scored last. Required.
	Class Scalar `json:"class,omitempty"`
	// OnlySpot: on a node that is not spot the signal is advisory at most, whatever its class. Default false: it empties on-demand nodes too.
	OnlySpot Scalar `json:"onlySpot,omitempty"`
	// Notice is how much time is left when the signal appears; unset means unknown. Only what moves pods away uses it, the scheduler
	// does not.
	Notice Scalar `json:"notice,omitempty"`
}

// SpotPreferenceArgs are the arguments of the plugin SpotPreference.
type SpotPreferenceArgs struct {
	metav1.TypeMeta `json:",inline"`

	// RiskHalfLife is after how long an interruption that was seen in a pool counts half: a duration above 0. Default 1h. (In two
	// recordings of AWS spot pools over 16 and 18 days, a pool that had just lost capacity lost more at a rate of 0.9 an hour in the
	// first hour, 0.5 in the second, and 0.1 eight hours later: half as much about every one to two hours.)
	RiskHalfLife Scalar `json:"riskHalfLife,omitempty"`
	// PoolRisk is what is known beforehand of pools.
	PoolRisk []PoolRisk `json:"poolRisk,omitempty"`
}

// PoolRisk is the known interruption risk of the spot nodes of one instance type in one zone. All three are required.
type PoolRisk struct {
	InstanceType string `json:"instanceType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	// Risk is 0 (none known) to 1.
	Risk Scalar `json:"risk,omitempty"`
}

// SetDefaults fills in what is not set.
func (a *ReplicaSafetyArgs) SetDefaults() {
	a.MinOnDemand.SetDefault("1")
	a.UnlabeledNodes.SetDefault("OnDemand")
	a.WhenUnsatisfiable.SetDefault("DoNotSchedule")
	a.RolloutRelief.SetDefault("30s")
	a.Overflow.SetDefault("Allow")
	a.Exemptions.SetDefault("Allow")
	a.LabelGrace.SetDefault("30s")
	a.GateTimeout.SetDefault("30s")
	a.AnnotationPolicy.SetDefault("Allow")
}

// SetDefaults fills in what is not set.
func (a *SpotPreferenceArgs) SetDefaults() {
	a.RiskHalfLife.SetDefault("1h")
}

// AddToScheme registers the arguments as kinds of kubescheduler.config.k8s.io/v1, with their defaults.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(kubescheduler.SchemeGroupVersion, &ReplicaSafetyArgs{}, &SpotPreferenceArgs{})
	scheme.AddTypeDefaultingFunc(&ReplicaSafetyArgs{}, func(obj any) { obj.(*ReplicaSafetyArgs).SetDefaults() })
	scheme.AddTypeDefaultingFunc(&SpotPreferenceArgs{}, func(obj any) { obj.(*SpotPreferenceArgs).SetDefaults() })
	return nil
}
