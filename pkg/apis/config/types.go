package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/scalar"
)

// Scalar accepts any JSON value, so that validation can report every invalid value at once.
type Scalar = scalar.Value

// ReplicaSafetyArgs are the arguments of the plugin ReplicaSafety: the complete policy of one
// profile.
type ReplicaSafetyArgs struct {
	metav1.TypeMeta `json:",inline"`

	// MinOnDemand is the number of replicas of a workload that must survive the loss of all spot
	// nodes: a count, or a percentage of the desired replicas, rounded up. Default 1. A Job has no
	// floor by default, except with backoffLimit 0: then all its pods run on on-demand.
	MinOnDemand Scalar `json:"minOnDemand,omitempty"`
	// UnlabeledNodes is the capacity type of nodes without a capacity label: OnDemand (the default)
	// or Spot.
	UnlabeledNodes Scalar `json:"unlabeledNodes,omitempty"`
	// MaxPerPool caps the replicas of a revision in one spot pool (instance type x zone): a count
	// of 1 or more, or a percentage of the desired replicas, rounded up and at least 1. Unset means
	// no cap.
	MaxPerPool Scalar `json:"maxPerPool,omitempty"`
	// WhenUnsatisfiable decides what happens to a pod if floor and cap refuse every node that has
	// room. DoNotSchedule (the default): the pod waits. ScheduleAnyway: floor and cap are
	// preferences.
	WhenUnsatisfiable Scalar `json:"whenUnsatisfiable,omitempty"`
	// FallbackAfter is the time after which a pod may use spot regardless of floor and cap. It
	// starts when the pod is first found unschedulable: a duration, or "never". Unset means never.
	FallbackAfter Scalar `json:"fallbackAfter,omitempty"`
	// RolloutRelief is the time after which a pod of a new revision may use spot regardless of
	// floor and cap, if an older revision of its workload has pods on on-demand. It starts when the
	// pod is first found unschedulable: a duration, or "never". Default 30s. Most containers start
	// in less time, and most rollouts then delete an old replica.
	RolloutRelief Scalar `json:"rolloutRelief,omitempty"`
	// Overflow decides what happens to replicas beyond the floor if no spot node is feasible. Allow
	// (the default): they may use on-demand. Never: they wait for spot. A pod may always use
	// on-demand if its own node selector or required node affinity admits no spot node.
	Overflow Scalar `json:"overflow,omitempty"`
	// Exemptions decides whether the floor applies to a pod whose own node selector or required
	// node affinity admits only spot. Allow (the default): the floor does not apply. Ignore: the
	// floor applies, and the pod waits if the floor requires on-demand. No annotation changes this
	// setting.
	Exemptions Scalar `json:"exemptions,omitempty"`
	// DisruptionLimit is the number of disruptions of a Job's pods after which onDisruptionLimit
	// applies to its later pods, so that a long Job ends: a count from 1 to 100, or "never". A
	// disruption is the end of a pod with the condition DisruptionTarget. The controller counts
	// them. Only Jobs have this limit. Unset means never.
	DisruptionLimit Scalar `json:"disruptionLimit,omitempty"`
	// OnDisruptionLimit decides what applies to the pods of a Job at its disruptionLimit.
	// RequireOnDemand (the default): they run on on-demand, like replicas of a floor.
	// PreferOnDemand: they prefer on-demand, and use spot if no on-demand node is feasible.
	OnDisruptionLimit Scalar `json:"onDisruptionLimit,omitempty"`
	// Rules give some pods their own settings. They are matched in order, and only the first rule
	// that matches a pod applies.
	Rules []Rule `json:"rules,omitempty"`
	// LabelGrace is the age that a node without a capacity label must reach before pods of a floor
	// may use it. With some provisioners labels arrive after registration. Default 30s; 0s disables
	// the grace period.
	LabelGrace Scalar `json:"labelGrace,omitempty"`
	// GateTimeout is the age at which a pod loses the scheduling gate of the autoscaler mode: the
	// scheduler removes the gate if the controller has not. Default 30s, at least 1s. It applies
	// whether or not the mode is enabled.
	GateTimeout Scalar `json:"gateTimeout,omitempty"`
	// AnnotationPolicy decides how far annotations may override the policy. Allow is the default.
	// StricterOnly: an annotation counts only if it makes the workload safer. Ignore: annotations
	// have no effect.
	AnnotationPolicy Scalar `json:"annotationPolicy,omitempty"`
	// CapacityLabels are node labels that mark spot and on-demand nodes, in addition to the
	// built-in labels of package providers.
	CapacityLabels []CapacityLabel `json:"capacityLabels,omitempty"`
	// Signals are interruption signals of nodes, in addition to the built-in signals of package
	// providers.
	Signals []Signal `json:"signals,omitempty"`
}

// Rule gives the pods that match all of its conditions their own settings. An unset condition
// matches every pod, so a rule without conditions matches all pods. A rule must set at least one
// setting.
type Rule struct {
	// Name identifies the rule to users. Required.
	Name string `json:"name,omitempty"`

	// Namespaces matches pods in any listed namespace.
	Namespaces []string `json:"namespaces,omitempty"`
	// PodSelector matches pods by their labels; an empty selector matches every pod.
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// PriorityClasses matches pods with any listed priority class.
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// MinPriority matches pods with this priority or a higher one.
	MinPriority Scalar `json:"minPriority,omitempty"`
	// QOSClasses matches pods with any of the QoS classes Guaranteed, Burstable and BestEffort.
	QOSClasses []string `json:"qosClasses,omitempty"`
	// OwnerKinds matches pods whose workload has any listed kind, such as Deployment,
	// StatefulSet or Job. Pod matches a pod without a controller. PodsOfPod, PodsOfDeployment,
	// PodsOfStatefulSet and PodsOfJob match pods that such an object controls but did not create as
	// its replicas.
	OwnerKinds []string `json:"ownerKinds,omitempty"`

	// The settings below override the settings of ReplicaSafetyArgs.

	// MinOnDemand overrides the floor.
	MinOnDemand Scalar `json:"minOnDemand,omitempty"`
	// MaxPerPool overrides the cap. "100%" disables the cap of the profile.
	MaxPerPool Scalar `json:"maxPerPool,omitempty"`
	// WhenUnsatisfiable overrides the setting of the profile.
	WhenUnsatisfiable Scalar `json:"whenUnsatisfiable,omitempty"`
	// FallbackAfter overrides the setting of the profile. "never" disables it.
	FallbackAfter Scalar `json:"fallbackAfter,omitempty"`
	// RolloutRelief overrides the setting of the profile. "never" disables it.
	RolloutRelief Scalar `json:"rolloutRelief,omitempty"`
	// Overflow overrides the setting of the profile.
	Overflow Scalar `json:"overflow,omitempty"`
	// Exemptions overrides the setting of the profile.
	Exemptions Scalar `json:"exemptions,omitempty"`
	// DisruptionLimit overrides the setting of the profile. "never" disables it.
	DisruptionLimit Scalar `json:"disruptionLimit,omitempty"`
	// OnDisruptionLimit overrides the setting of the profile.
	OnDisruptionLimit Scalar `json:"onDisruptionLimit,omitempty"`
	// AnnotationPolicy overrides the setting of the profile.
	AnnotationPolicy Scalar `json:"annotationPolicy,omitempty"`
	// Protect: if true, the controller maintains a PodDisruptionBudget for each Deployment that no
	// other PodDisruptionBudget selects. Every drain of a node then waits for replacements. Default
	// false. The profile has no such field.
	Protect Scalar `json:"protect,omitempty"`
}

// CapacityLabel lists the values of a node label that mean spot or on-demand. If both lists are
// set, a node with any other value counts as spot unless another capacity label has a known value.
// If only one list is set, other values are ignored.
type CapacityLabel struct {
	// Key is the key of the label. Required.
	Key string `json:"key,omitempty"`
	// Spot lists the values that mean spot.
	Spot []string `json:"spot,omitempty"`
	// OnDemand lists the values that mean on-demand.
	OnDemand []string `json:"onDemand,omitempty"`
}

// Signal is an interruption signal of a node. Exactly one of taint, condition, label and annotation
// is set.
type Signal struct {
	// Taint is the "key" or "key=value" of a taint with any effect.
	Taint string `json:"taint,omitempty"`
	// Condition is the "Type=Status" of a node condition; "Type" alone means "Type=True".
	Condition string `json:"condition,omitempty"`
	// Mentions is a substring of the condition's reason or message. Only for conditions.
	Mentions string `json:"mentions,omitempty"`
	// Label is the "key" or "key=value" of a label of the node.
	Label string `json:"label,omitempty"`
	// Annotation is the "key" or "key=value" of an annotation of the node.
	Annotation string `json:"annotation,omitempty"`
	// Class of the signal. Required. reclaim: the node is reclaimed at a deadline, and no other
	// actor drains it; it gets no new pods. drain: another actor already evicts its pods; it gets
	// no new pods. advisory: the node may be reclaimed; it gets the lowest scores.
	Class Scalar `json:"class,omitempty"`
	// OnlySpot: on a node that is not spot the signal is at most advisory, regardless of its class.
	// Default false: the controller also empties on-demand nodes with the signal.
	OnlySpot Scalar `json:"onlySpot,omitempty"`
	// Notice is the remaining time when the signal appears; unset means unknown. Only the
	// controller uses it.
	Notice Scalar `json:"notice,omitempty"`
}

// SpotPreferenceArgs are the arguments of the plugin SpotPreference.
type SpotPreferenceArgs struct {
	metav1.TypeMeta `json:",inline"`

	// RiskHalfLife is the time after which an observed interruption in a pool counts half: a
	// duration above 0. Default 1h. The default comes from two recordings of AWS spot pools over 16
	// and 18 days. Pools that had just lost capacity lost more at a rate of 0.9 an hour in the
	// first hour, 0.5 in the second, and 0.1 eight hours later. The rate halved about every one to
	// two hours.
	RiskHalfLife Scalar `json:"riskHalfLife,omitempty"`
	// PoolRisk is the risk of pools that is known in advance.
	PoolRisk []PoolRisk `json:"poolRisk,omitempty"`
}

// PoolRisk is the known interruption risk of the spot nodes of one instance type in one zone. All
// three fields are required.
type PoolRisk struct {
	// InstanceType is the value of the label node.kubernetes.io/instance-type.
	InstanceType string `json:"instanceType,omitempty"`
	// Zone is the value of the label topology.kubernetes.io/zone.
	Zone string `json:"zone,omitempty"`
	// Risk ranges from 0 (no known risk) to 1.
	Risk Scalar `json:"risk,omitempty"`
}

// SetDefaults fills in unset fields.
func (a *ReplicaSafetyArgs) SetDefaults() {
	a.MinOnDemand.SetDefault("1")
	a.UnlabeledNodes.SetDefault("OnDemand")
	a.WhenUnsatisfiable.SetDefault("DoNotSchedule")
	a.RolloutRelief.SetDefault("30s")
	a.Overflow.SetDefault("Allow")
	a.Exemptions.SetDefault("Allow")
	a.OnDisruptionLimit.SetDefault("RequireOnDemand")
	a.LabelGrace.SetDefault("30s")
	a.GateTimeout.SetDefault("30s")
	a.AnnotationPolicy.SetDefault("Allow")
}

// SetDefaults fills in unset fields.
func (a *SpotPreferenceArgs) SetDefaults() {
	a.RiskHalfLife.SetDefault("1h")
}

// AddToScheme registers the arguments and their defaults as kinds of
// kubescheduler.config.k8s.io/v1.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(kubescheduler.SchemeGroupVersion, &ReplicaSafetyArgs{}, &SpotPreferenceArgs{})
	scheme.AddTypeDefaultingFunc(&ReplicaSafetyArgs{}, func(obj any) { obj.(*ReplicaSafetyArgs).SetDefaults() })
	scheme.AddTypeDefaultingFunc(&SpotPreferenceArgs{}, func(obj any) { obj.(*SpotPreferenceArgs).SetDefaults() })
	return nil
}
