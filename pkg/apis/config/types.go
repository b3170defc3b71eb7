package config

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/decoding"
)

// +kubebuilder:object:root=true

// ReplicaSafetyArgs are the arguments of the plugin ReplicaSafety: the complete policy of one
// profile.
type ReplicaSafetyArgs struct {
	metav1.TypeMeta `json:",inline"`

	// WorkloadSettings apply to all workloads of the profile, unless a rule or an annotation
	// overrides them.
	WorkloadSettings `json:",inline"`

	// UnlabeledNodes is the capacity type of nodes without a capacity label: OnDemand (the default)
	// or Spot.
	UnlabeledNodes *CapacityType `json:"unlabeledNodes,omitempty"`
	// Rules give some pods their own settings. They are matched in order, and only the first rule
	// that matches a pod applies.
	Rules []Rule `json:"rules,omitempty"`
	// LabelGrace is the age that a node without a capacity label must reach before pods of a floor
	// may use it. With some provisioners labels arrive after registration. Default 30s; 0s disables
	// the grace period.
	LabelGrace *metav1.Duration `json:"labelGrace,omitempty"`
	// GateTimeout is the age at which a pod loses the scheduling gate of the autoscaler mode: the
	// scheduler removes the gate if the controller has not. Default 30s, at least 1s. It applies
	// whether or not the mode is enabled.
	GateTimeout *metav1.Duration `json:"gateTimeout,omitempty"`
	// AnnotationPolicy decides how far annotations may override the policy. Allow is the default.
	// StricterOnly: an annotation counts only if it makes the workload safer. Ignore: annotations
	// have no effect.
	AnnotationPolicy *AnnotationPolicy `json:"annotationPolicy,omitempty"`
	// CapacityLabels are node labels that mark spot and on-demand nodes, in addition to the
	// built-in labels of package providers.
	CapacityLabels []CapacityLabel `json:"capacityLabels,omitempty"`
	// Signals are interruption signals of nodes, in addition to the built-in signals of package
	// providers.
	Signals []Signal `json:"signals,omitempty"`

	decoded decodingErrors
}

// WorkloadSettings are the settings of workloads. The profile sets them, and rules override them.
type WorkloadSettings struct {
	// MinOnDemand is the number of replicas of a workload that must survive the loss of all spot
	// nodes: a count, or a percentage of the desired replicas, rounded up. Default 1. A Job has no
	// floor by default, except with backoffLimit 0: then all its pods run on on-demand.
	MinOnDemand *intstr.IntOrString `json:"minOnDemand,omitempty"`
	// MaxPerPool caps the replicas of a revision in one spot pool (instance type x zone): a count
	// of 1 or more, or a percentage of the desired replicas, rounded up and at least 1. Unset means
	// no cap.
	MaxPerPool *intstr.IntOrString `json:"maxPerPool,omitempty"`
	// WhenUnsatisfiable decides what happens to a pod if floor and cap refuse every node that has
	// room. DoNotSchedule (the default): the pod waits. ScheduleAnyway: floor and cap are
	// preferences.
	WhenUnsatisfiable *WhenUnsatisfiable `json:"whenUnsatisfiable,omitempty"`
	// FallbackAfter is the time after which a pod may use spot regardless of floor and cap. It
	// starts when the pod is first found unschedulable: a duration, or "never". Default 5m.
	FallbackAfter *DurationOrNever `json:"fallbackAfter,omitempty"`
	// RolloutRelief is the time after which a pod of a new revision may use spot regardless of
	// floor and cap, if an older revision of its workload has pods on on-demand. It starts when the
	// pod is first found unschedulable: a duration, or "never". Default 30s. Most containers start
	// in less time, and most rollouts then delete an old replica.
	RolloutRelief *DurationOrNever `json:"rolloutRelief,omitempty"`
	// Overflow decides what happens to replicas beyond the floor if no spot node is feasible. Allow
	// (the default): they may use on-demand. Never: they wait for spot. A pod may always use
	// on-demand if its own node selector or required node affinity admits no spot node.
	Overflow *Overflow `json:"overflow,omitempty"`
	// Exemptions decides whether the floor applies to a pod whose own node selector or required
	// node affinity admits only spot. Allow (the default): the floor does not apply. Ignore: the
	// floor applies, and the pod waits if the floor requires on-demand. No annotation changes this
	// setting.
	Exemptions *Exemptions `json:"exemptions,omitempty"`
	// DisruptionLimit is the number of disruptions of a Job's pods after which onDisruptionLimit
	// applies to its later pods, so that a long Job ends: a count from 1 to 100, or "never". A
	// disruption is the end of a pod with the condition DisruptionTarget. The controller counts
	// them. Only Jobs have this limit. Unset means never.
	DisruptionLimit *intstr.IntOrString `json:"disruptionLimit,omitempty"`
	// OnDisruptionLimit decides what applies to the pods of a Job at its disruptionLimit.
	// RequireOnDemand (the default): they run on on-demand, like replicas of a floor.
	// PreferOnDemand: they prefer on-demand, and use spot if no on-demand node is feasible.
	OnDisruptionLimit *OnDisruptionLimit `json:"onDisruptionLimit,omitempty"`
}

// WhenUnsatisfiable decides what happens to a pod if floor and cap refuse every node with room.
type WhenUnsatisfiable string

// The values of WhenUnsatisfiable.
const (
	DoNotSchedule  WhenUnsatisfiable = "DoNotSchedule"
	ScheduleAnyway WhenUnsatisfiable = "ScheduleAnyway"
)

// Overflow decides whether replicas beyond the floor may use on-demand.
type Overflow string

// The values of Overflow.
const (
	AllowOverflow Overflow = "Allow"
	NeverOverflow Overflow = "Never"
)

// Exemptions decides whether pods that admit only spot are exempt from the floor.
type Exemptions string

// The values of Exemptions.
const (
	AllowExemptions  Exemptions = "Allow"
	IgnoreExemptions Exemptions = "Ignore"
)

// OnDisruptionLimit decides what applies to the pods of a Job at its disruption limit.
type OnDisruptionLimit string

// The values of OnDisruptionLimit.
const (
	RequireOnDemand OnDisruptionLimit = "RequireOnDemand"
	PreferOnDemand  OnDisruptionLimit = "PreferOnDemand"
)

// CapacityType is the capacity type of a node.
type CapacityType string

// The values of CapacityType.
const (
	OnDemand CapacityType = "OnDemand"
	Spot     CapacityType = "Spot"
)

// AnnotationPolicy decides how far annotations may override the policy.
type AnnotationPolicy string

// The values of AnnotationPolicy.
const (
	AllowAnnotations  AnnotationPolicy = "Allow"
	StricterOnly      AnnotationPolicy = "StricterOnly"
	IgnoreAnnotations AnnotationPolicy = "Ignore"
)

// SignalClass is the class of an interruption signal.
type SignalClass string

// The values of SignalClass.
const (
	Reclaim  SignalClass = "reclaim"
	Drain    SignalClass = "drain"
	Advisory SignalClass = "advisory"
)

// DurationOrNever is a duration such as "5m", or "never".
type DurationOrNever struct {
	metav1.Duration
	Never bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *DurationOrNever) UnmarshalJSON(data []byte) error {
	if d.Never = string(data) == `"never"`; d.Never {
		return nil
	}
	if err := d.Duration.UnmarshalJSON(data); err != nil {
		return errors.New(`expected a duration such as "5m", or "never"`)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d DurationOrNever) MarshalJSON() ([]byte, error) {
	if d.Never {
		return []byte(`"never"`), nil
	}
	return d.Duration.MarshalJSON()
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
	MinPriority *int32 `json:"minPriority,omitempty"`
	// QOSClasses matches pods with any of the QoS classes Guaranteed, Burstable and BestEffort.
	QOSClasses []string `json:"qosClasses,omitempty"`
	// OwnerKinds matches pods whose workload has any listed kind, such as Deployment,
	// StatefulSet or Job. Pod matches a pod without a controller. PodsOfPod, PodsOfDeployment,
	// PodsOfStatefulSet and PodsOfJob match pods that such an object controls but did not create as
	// its replicas.
	OwnerKinds []string `json:"ownerKinds,omitempty"`

	// WorkloadSettings override the settings of the profile. maxPerPool "100%", fallbackAfter
	// "never", rolloutRelief "never" and disruptionLimit "never" disable them.
	WorkloadSettings `json:",inline"`
	// AnnotationPolicy overrides the setting of the profile.
	AnnotationPolicy *AnnotationPolicy `json:"annotationPolicy,omitempty"`
	// Protect: if true, the controller maintains a PodDisruptionBudget for each Deployment that no
	// other PodDisruptionBudget selects. Every drain of a node then waits for replacements. Default
	// false. The profile has no such field.
	Protect *bool `json:"protect,omitempty"`
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
	Class SignalClass `json:"class,omitempty"`
	// OnlySpot: on a node that is not spot the signal is at most advisory, regardless of its class.
	// Default false: the controller also empties on-demand nodes with the signal.
	OnlySpot bool `json:"onlySpot,omitempty"`
	// Notice is the remaining time when the signal appears; unset means unknown. Only the
	// controller uses it.
	Notice *metav1.Duration `json:"notice,omitempty"`
}

// +kubebuilder:object:root=true

// SpotPreferenceArgs are the arguments of the plugin SpotPreference.
type SpotPreferenceArgs struct {
	metav1.TypeMeta `json:",inline"`

	// RiskHalfLife is the time after which an observed interruption in a pool counts half: a
	// duration above 0. Default 1h. The default comes from two recordings of AWS spot pools over 16
	// and 18 days. Pools that had just lost capacity lost more at a rate of 0.9 an hour in the
	// first hour, 0.5 in the second, and 0.1 eight hours later. The rate halved about every one to
	// two hours.
	RiskHalfLife *metav1.Duration `json:"riskHalfLife,omitempty"`
	// PoolRisk is the risk of pools that is known in advance.
	PoolRisk []PoolRisk `json:"poolRisk,omitempty"`

	decoded decodingErrors
}

// PoolRisk is the known interruption risk of the spot nodes of one instance type in one zone. All
// three fields are required.
type PoolRisk struct {
	// InstanceType is the value of the label node.kubernetes.io/instance-type.
	InstanceType string `json:"instanceType,omitempty"`
	// Zone is the value of the label topology.kubernetes.io/zone.
	Zone string `json:"zone,omitempty"`
	// Risk ranges from 0 (no known risk) to 1.
	Risk *float64 `json:"risk,omitempty"`
}

// SetDefaults fills in unset fields.
func (a *ReplicaSafetyArgs) SetDefaults() {
	setDefault(&a.MinOnDemand, intstr.FromInt32(1))
	setDefault(&a.WhenUnsatisfiable, DoNotSchedule)
	setDefault(&a.FallbackAfter, DurationOrNever{Duration: metav1.Duration{Duration: 5 * time.Minute}})
	setDefault(&a.RolloutRelief, DurationOrNever{Duration: metav1.Duration{Duration: 30 * time.Second}})
	setDefault(&a.Overflow, AllowOverflow)
	setDefault(&a.Exemptions, AllowExemptions)
	setDefault(&a.OnDisruptionLimit, RequireOnDemand)
	setDefault(&a.UnlabeledNodes, OnDemand)
	setDefault(&a.LabelGrace, metav1.Duration{Duration: 30 * time.Second})
	setDefault(&a.GateTimeout, metav1.Duration{Duration: 30 * time.Second})
	setDefault(&a.AnnotationPolicy, AllowAnnotations)
}

// SetDefaults fills in unset fields.
func (a *SpotPreferenceArgs) SetDefaults() {
	setDefault(&a.RiskHalfLife, metav1.Duration{Duration: time.Hour})
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// decodingErrors are the errors that decoding found. Validation reports them together with its own,
// so that users see all at once.
type decodingErrors struct{ list field.ErrorList }

// DeepCopyInto shares the list, which does not change after decoding.
func (e *decodingErrors) DeepCopyInto(out *decodingErrors) { *out = *e }

// UnmarshalJSON implements json.Unmarshaler. Validate returns the errors in data.
func (a *ReplicaSafetyArgs) UnmarshalJSON(data []byte) (err error) {
	type plain ReplicaSafetyArgs // has no UnmarshalJSON
	a.decoded.list, err = decoding.Unmarshal(data, (*plain)(a))
	return err
}

// UnmarshalJSON implements json.Unmarshaler. Validate returns the errors in data.
func (a *SpotPreferenceArgs) UnmarshalJSON(data []byte) (err error) {
	type plain SpotPreferenceArgs // has no UnmarshalJSON
	a.decoded.list, err = decoding.Unmarshal(data, (*plain)(a))
	return err
}

// AddToScheme registers the arguments and their defaults as kinds of
// kubescheduler.config.k8s.io/v1.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(kubescheduler.SchemeGroupVersion, &ReplicaSafetyArgs{}, &SpotPreferenceArgs{})
	scheme.AddTypeDefaultingFunc(&ReplicaSafetyArgs{}, func(obj any) { obj.(*ReplicaSafetyArgs).SetDefaults() })
	scheme.AddTypeDefaultingFunc(&SpotPreferenceArgs{}, func(obj any) { obj.(*SpotPreferenceArgs).SetDefaults() })
	return nil
}
