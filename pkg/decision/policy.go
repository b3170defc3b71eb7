package decision

import (
	"fmt"
	"slices"
	"time"
)

// WhenUnsatisfiable says what happens to a pod that the floor or the pool cap keeps off every node with room.
type WhenUnsatisfiable int8

const (
	// DoNotSchedule: it waits.
	DoNotSchedule WhenUnsatisfiable = iota
	// ScheduleAnyway: floor and cap are preferences only.
	ScheduleAnyway
)

// OverflowPolicy says what happens to replicas beyond the floor that no spot node takes.
type OverflowPolicy int8

const (
	// AllowOverflow: they may take on-demand.
	AllowOverflow OverflowPolicy = iota
	// NeverOverflow: they wait for spot.
	NeverOverflow
)

// ExemptionPolicy says whether a pod whose own node selector or required node affinity admits only spot is exempt from the floor.
type ExemptionPolicy int8

const (
	// AllowExemptions: the pod goes to spot whatever the floor.
	AllowExemptions ExemptionPolicy = iota
	// IgnoreExemptions: the pod waits if the floor keeps it off spot.
	IgnoreExemptions
)

// Never, as Settings.FallbackAfter or Settings.RolloutRelief, means that no time of waiting lets a pod take spot.
const Never time.Duration = -1

// Settings are the knobs of one workload, after rules and annotations.
type Settings struct {
	// MinOnDemand is how many replicas must be able to survive the loss of all spot.
	MinOnDemand Quantity
	// MaxPerPool caps the replicas of a revision in one spot pool; nil means no cap.
	MaxPerPool *Quantity
	// WhenUnsatisfiable says whether floor and cap are hard.
	WhenUnsatisfiable WhenUnsatisfiable
	// FallbackAfter is how long after it was first found unschedulable a pod may take spot regardless; Never for never.
	FallbackAfter time.Duration
	// RolloutRelief is how long a pod of a new revision waits for on-demand that an older revision of its workload holds, before it
	// may take spot regardless; Never for never. Without relief a rollout that may not delete an old replica first (maxUnavailable
	// 0, which 25 % of up to 3 replicas rounds to) waits forever if on-demand holds exactly the floor.
	RolloutRelief time.Duration
	// Overflow says whether replicas beyond the floor may take on-demand. WhenUnsatisfiable and the waits above do not change it: they
	// concern spot only.
	Overflow OverflowPolicy
	// Exemptions says whether pods that admit only spot are exempt from the floor. No annotation sets it.
	Exemptions ExemptionPolicy
	// Protect says whether the controller keeps a PodDisruptionBudget for the workload, so that whoever drains a node has to wait for
	// replacements. It changes no placement.
	Protect bool
}

// String says all settings that placements depend on in one line, the same for equal settings.
func (s Settings) String() string {
	perPool, anyway := "none", "DoNotSchedule"
	if s.MaxPerPool != nil {
		perPool = s.MaxPerPool.String()
	}
	if s.WhenUnsatisfiable == ScheduleAnyway {
		anyway = "ScheduleAnyway"
	}
	return fmt.Sprintf("minOnDemand=%s maxPerPool=%s whenUnsatisfiable=%s fallbackAfter=%s rolloutRelief=%s overflow=%s exemptions=%s",
		s.MinOnDemand, perPool, anyway, orNever(s.FallbackAfter), orNever(s.RolloutRelief), s.Overflow, s.Exemptions)
}

// String returns p as ParseOverflow reads it.
func (p OverflowPolicy) String() string {
	if p == NeverOverflow {
		return "Never"
	}
	return "Allow"
}

// String returns p as ParseExemptions reads it.
func (p ExemptionPolicy) String() string {
	if p == IgnoreExemptions {
		return "Ignore"
	}
	return "Allow"
}

// orNever writes a duration that may be Never.
func orNever(d time.Duration) string {
	if d == Never {
		return "never"
	}
	return d.String()
}

// Overrides are the settings that one rule or one object's annotations give; nil leaves the level below in force.
type Overrides struct {
	MinOnDemand       *Quantity
	MaxPerPool        *Quantity
	WhenUnsatisfiable *WhenUnsatisfiable
	FallbackAfter     *time.Duration
	RolloutRelief     *time.Duration
	Overflow          *OverflowPolicy
	// Exemptions is nil in the Overrides of annotations.
	Exemptions *ExemptionPolicy
	Protect    *bool
}

func (s Settings) with(o Overrides) Settings {
	if o.MinOnDemand != nil {
		s.MinOnDemand = *o.MinOnDemand
	}
	if o.MaxPerPool != nil {
		s.MaxPerPool = o.MaxPerPool
	}
	if o.WhenUnsatisfiable != nil {
		s.WhenUnsatisfiable = *o.WhenUnsatisfiable
	}
	if o.FallbackAfter != nil {
		s.FallbackAfter = *o.FallbackAfter
	}
	if o.RolloutRelief != nil {
		s.RolloutRelief = *o.RolloutRelief
	}
	if o.Overflow != nil {
		s.Overflow = *o.Overflow
	}
	if o.Exemptions != nil {
		s.Exemptions = *o.Exemptions
	}
	if o.Protect != nil {
		s.Protect = *o.Protect
	}
	return s
}

// AnnotationPolicy says how far workloads may decide for themselves.
type AnnotationPolicy int8

const (
	// AllowAnnotations: annotations win over rules and defaults.
	AllowAnnotations AnnotationPolicy = iota
	// StricterOnly: an annotation counts only where it makes the workload safer: a higher floor, a lower cap, DoNotSchedule,
	// a later fallback or relief of rollouts, protection; or where it takes less of what is shared: overflow Never.
	StricterOnly
	// IgnoreAnnotations: annotations are not read.
	IgnoreAnnotations
)

// Policy is what one scheduler profile promises. The zero Policy promises nothing (floor 0); configuration fills in defaults.
type Policy struct {
	Defaults Settings
	// Rules are tried in order; the first that matches a pod applies, the others do not.
	Rules []Rule
	// Annotations applies where the matching rule does not say otherwise.
	Annotations AnnotationPolicy
	// UnlabeledNodes is the capacity type of nodes that no label speaks of.
	UnlabeledNodes CapacityType
	// LabelGrace is how young an unlabeled node must be to count as Settling.
	LabelGrace time.Duration
	// GateTimeout is how long the controller has, from a pod's creation on, to remove the scheduling gate of the autoscaler mode.
	GateTimeout time.Duration
	// CapacityLabels are the aliases of CapacityLabelKey.
	CapacityLabels []CapacityLabel
}

// Rule gives some pods settings of their own. A condition that is empty holds for every pod; all must hold.
type Rule struct {
	Name            string
	Namespaces      []string
	PodSelector     func(labels map[string]string) bool
	PriorityClasses []string
	MinPriority     *int32
	QOSClasses      []string
	// OwnerKinds are kinds of workloads as in Workload.Kind; "Pod" is the pod without a controller.
	OwnerKinds []string

	Overrides
	// Annotations, where not nil, replaces Policy.Annotations.
	Annotations *AnnotationPolicy
}

func (r *Rule) matches(pod *Pod) bool {
	has := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return has(r.Namespaces, pod.Namespace) &&
		has(r.PriorityClasses, pod.PriorityClass) &&
		has(r.QOSClasses, pod.QOSClass) &&
		has(r.OwnerKinds, pod.Workload.Kind) &&
		(r.MinPriority == nil || pod.Priority >= *r.MinPriority) &&
		(r.PodSelector == nil || r.PodSelector(pod.Labels))
}

// NeedsPriorityClass reports whether some rule depends on what the PriorityClass of that name says, or for "" on which class is the
// default.
func (p *Policy) NeedsPriorityClass(name string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.MinPriority != nil || name == "" && len(r.PriorityClasses) > 0 })
}

// Settings returns what is in force for pod, and the annotations that were skipped because they do not parse.
//
// An annotation on the owner wins over one on the pod, which wins over the first matching rule, which wins over the defaults.
// Jobs have a default floor of their own (see Workload.Batch), so that the profile's does not force retriable work onto on-demand.
func (p *Policy) Settings(pod *Pod) (Settings, []InvalidAnnotation) { return p.settings(pod, nil) }

// settings is Settings; it notes in origins, if that is not nil, where each setting comes from.
func (p *Policy) settings(pod *Pod, origins *Origins) (Settings, []InvalidAnnotation) {
	settings := p.Defaults
	switch pod.Workload.Batch {
	case Retriable:
		settings.MinOnDemand = Count(0)
	case NotRetriable:
		settings.MinOnDemand = Percent(100)
	}
	annotations := p.Annotations
	for i := range p.Rules {
		if rule := &p.Rules[i]; rule.matches(pod) {
			settings = settings.with(rule.Overrides)
			origins.rule(rule)
			if rule.Annotations != nil {
				annotations = *rule.Annotations
			}
			break
		}
	}
	if annotations == IgnoreAnnotations {
		origins.ignored(pod)
		return settings, nil
	}
	onPod, invalidOnPod := parseAnnotations(pod.Annotations, "pod")
	onOwner, invalid := parseAnnotations(pod.Workload.Annotations, pod.Workload.Kind)
	invalid = append(invalid, invalidOnPod...)
	givenOnPod, givenOnOwner := onPod, onOwner
	if annotations == StricterOnly {
		base := settings
		onPod, onOwner = onPod.stricterThan(base, pod.Workload.Desired), onOwner.stricterThan(base, pod.Workload.Desired)
	}
	origins.annotations(givenOnPod, onPod, "pod")
	origins.annotations(givenOnOwner, onOwner, pod.Workload.Kind)
	return settings.with(onPod).with(onOwner), invalid
}

// stricterThan returns the part of o that is at least as strict as base for a workload of desired replicas.
func (o Overrides) stricterThan(base Settings, desired int) Overrides {
	if o.MinOnDemand != nil && floor(*o.MinOnDemand, desired) < floor(base.MinOnDemand, desired) {
		o.MinOnDemand = nil
	}
	if o.MaxPerPool != nil && base.MaxPerPool != nil && poolCap(o.MaxPerPool, desired) > poolCap(base.MaxPerPool, desired) {
		o.MaxPerPool = nil
	}
	if o.WhenUnsatisfiable != nil && base.WhenUnsatisfiable == DoNotSchedule {
		o.WhenUnsatisfiable = nil
	}
	if o.FallbackAfter != nil && earlier(*o.FallbackAfter, base.FallbackAfter) {
		o.FallbackAfter = nil
	}
	if o.RolloutRelief != nil && earlier(*o.RolloutRelief, base.RolloutRelief) {
		o.RolloutRelief = nil
	}
	if o.Overflow != nil && *o.Overflow != NeverOverflow {
		o.Overflow = nil
	}
	if o.Protect != nil && !*o.Protect {
		o.Protect = nil
	}
	return o
}

// earlier reports whether a ends before b. Either may be Never.
func earlier(a, b time.Duration) bool { return a != Never && (b == Never || a < b) }

// floor is how many of desired replicas q keeps on on-demand.
func floor(q Quantity, desired int) int { return min(desired, q.Of(desired)) }

// poolCap is how many of desired replicas of a revision one spot pool may hold; 0 means no cap.
func poolCap(max *Quantity, desired int) int {
	if max == nil {
		return 0
	}
	// A cap of 0 would keep the workload off spot altogether, which is the floor's business.
	if n := max.Of(desired); n > 1 {
		return n
	}
	return 1
}
