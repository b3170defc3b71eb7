package decision

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// WhenUnsatisfiable decides what happens to a pod if the floor or the pool cap refuses every node
// that has room.
type WhenUnsatisfiable int8

const (
	// DoNotSchedule: the pod waits.
	DoNotSchedule WhenUnsatisfiable = iota
	// ScheduleAnyway: floor and cap are only preferences.
	ScheduleAnyway
)

var whenUnsatisfiableWords = [...]string{DoNotSchedule: "DoNotSchedule", ScheduleAnyway: "ScheduleAnyway"}

// String returns w in the form that ParseWhenUnsatisfiable reads.
func (w WhenUnsatisfiable) String() string { return whenUnsatisfiableWords[w] }

// OverflowPolicy decides what happens to replicas beyond the floor if no spot node is feasible.
type OverflowPolicy int8

const (
	// AllowOverflow: these replicas may use on-demand.
	AllowOverflow OverflowPolicy = iota
	// NeverOverflow: these replicas wait for spot.
	NeverOverflow
)

var overflowWords = [...]string{AllowOverflow: "Allow", NeverOverflow: "Never"}

// String returns p in the form that ParseOverflow reads.
func (p OverflowPolicy) String() string { return overflowWords[p] }

// ExemptionPolicy decides whether a pod is exempt from the floor if its own node selector or
// required node affinity admits only spot.
type ExemptionPolicy int8

const (
	// AllowExemptions: the pod may run on spot regardless of the floor.
	AllowExemptions ExemptionPolicy = iota
	// IgnoreExemptions: the pod waits if the floor requires on-demand.
	IgnoreExemptions
)

var exemptionWords = [...]string{AllowExemptions: "Allow", IgnoreExemptions: "Ignore"}

// String returns p in the form that ParseExemptions reads.
func (p ExemptionPolicy) String() string { return exemptionWords[p] }

// Never, as Settings.FallbackAfter or Settings.RolloutRelief, means that a pod may not use spot
// however long it waits.
const Never time.Duration = -1

// WorkloadSettings are the settings of one workload, after rules and annotations are applied.
type WorkloadSettings struct {
	// MinOnDemand is the number of replicas that must survive the loss of all spot nodes.
	MinOnDemand Quantity
	// MaxPerPool caps the replicas of a revision in one spot pool; nil means no cap.
	MaxPerPool *Quantity
	// WhenUnsatisfiable decides whether floor and cap are hard constraints.
	WhenUnsatisfiable WhenUnsatisfiable
	// FallbackAfter is the time after which a pod may use spot regardless of floor and cap. It
	// starts when the pod is first found unschedulable. Never disables the fallback.
	FallbackAfter time.Duration
	// RolloutRelief is the time after which a pod of a new revision may use spot regardless of
	// floor and cap, if an older revision of its workload occupies on-demand. Never disables the
	// relief. Without relief a rollout that may not delete an old replica first waits forever if
	// on-demand has room for exactly the floor. That is the case for maxUnavailable 0, to which 25
	// % of up to 3 replicas rounds.
	RolloutRelief time.Duration
	// Overflow decides whether replicas beyond the floor may use on-demand. WhenUnsatisfiable,
	// FallbackAfter and RolloutRelief do not change it: they concern only spot.
	Overflow OverflowPolicy
	// Exemptions decides whether pods that admit only spot are exempt from the floor. No annotation
	// sets it.
	Exemptions ExemptionPolicy
	// Protect: the controller maintains a PodDisruptionBudget for the workload, so that every drain
	// waits for replacements. It does not change placement.
	Protect bool
	// DisruptionLimit is the number of disruptions of a Job's pods after which OnDisruptionLimit
	// applies to its later pods; 0 means never.
	DisruptionLimit int
	// OnDisruptionLimit decides what applies to the pods of a Job at its DisruptionLimit.
	OnDisruptionLimit DisruptionAction
	// Disruptions is how often pods of the Job were disrupted, according to its annotation. It is 0
	// for other workloads, and without a DisruptionLimit.
	Disruptions int
}

// String returns all settings that affect placement in one line. Equal settings give the same line.
func (s WorkloadSettings) String() string {
	perPool := "none"
	if s.MaxPerPool != nil {
		perPool = s.MaxPerPool.String()
	}
	text := fmt.Sprintf("minOnDemand=%s maxPerPool=%s whenUnsatisfiable=%s fallbackAfter=%s rolloutRelief=%s overflow=%s exemptions=%s",
		s.MinOnDemand, perPool, s.WhenUnsatisfiable, OrNever(s.FallbackAfter), OrNever(s.RolloutRelief), s.Overflow, s.Exemptions)
	if s.DisruptionLimit > 0 {
		text += fmt.Sprintf(" disruptionLimit=%d onDisruptionLimit=%s disruptions=%d", s.DisruptionLimit, s.OnDisruptionLimit, s.Disruptions)
	}
	return text
}

// Stricter returns s or other, whichever has the higher floor of desired replicas. If the floors
// are equal, the texts of the settings decide, so the result does not depend on the order.
func (s WorkloadSettings) Stricter(other WorkloadSettings, desired int) WorkloadSettings {
	floor, others := s.Floor(desired), other.Floor(desired)
	if floor < others || floor == others && s != other && s.String() < other.String() {
		return other
	}
	return s
}

// OrNever formats a duration that may be Never.
func OrNever(d time.Duration) string {
	if d == Never {
		return "never"
	}
	return d.String()
}

// Overrides are the settings of one rule or of the annotations of one object. A nil field does not
// override anything.
type Overrides struct {
	MinOnDemand       *Quantity
	MaxPerPool        *Quantity
	WhenUnsatisfiable *WhenUnsatisfiable
	FallbackAfter     *time.Duration
	RolloutRelief     *time.Duration
	Overflow          *OverflowPolicy
	// Exemptions is nil in the Overrides of annotations.
	Exemptions        *ExemptionPolicy
	Protect           *bool
	DisruptionLimit   *int
	OnDisruptionLimit *DisruptionAction
}

func (s WorkloadSettings) with(o Overrides) WorkloadSettings {
	s.MinOnDemand = valueOr(o.MinOnDemand, s.MinOnDemand)
	s.MaxPerPool = cmp.Or(o.MaxPerPool, s.MaxPerPool)
	s.WhenUnsatisfiable = valueOr(o.WhenUnsatisfiable, s.WhenUnsatisfiable)
	s.FallbackAfter = valueOr(o.FallbackAfter, s.FallbackAfter)
	s.RolloutRelief = valueOr(o.RolloutRelief, s.RolloutRelief)
	s.Overflow = valueOr(o.Overflow, s.Overflow)
	s.Exemptions = valueOr(o.Exemptions, s.Exemptions)
	s.Protect = valueOr(o.Protect, s.Protect)
	s.DisruptionLimit = valueOr(o.DisruptionLimit, s.DisruptionLimit)
	s.OnDisruptionLimit = valueOr(o.OnDisruptionLimit, s.OnDisruptionLimit)
	return s
}

// valueOr returns the value of override, or otherwise if override is nil.
func valueOr[T any](override *T, otherwise T) T {
	if override == nil {
		return otherwise
	}
	return *override
}

// AnnotationPolicy decides how far the annotations of a workload may override the policy.
type AnnotationPolicy int8

const (
	// AllowAnnotations: annotations override rules and defaults.
	AllowAnnotations AnnotationPolicy = iota
	// StricterOnly: an annotation counts only if it makes the workload safer (a higher floor, a
	// lower cap, DoNotSchedule, a later fallback or rollout relief, a lower disruption limit,
	// RequireOnDemand, protection) or reduces its use of shared capacity (overflow Never).
	StricterOnly
	// IgnoreAnnotations: annotations are not read.
	IgnoreAnnotations
)

// Policy is the policy of one scheduler profile. The zero Policy has a floor of 0; the
// configuration fills in defaults.
type Policy struct {
	Defaults WorkloadSettings
	// Rules are matched in order. Only the first rule that matches a pod applies.
	Rules []Rule
	// Annotations applies unless the matching rule overrides it.
	Annotations AnnotationPolicy
	// UnlabeledNodes is the capacity type of nodes without a capacity label.
	UnlabeledNodes CapacityType
	// LabelGrace is the age below which an unlabeled node counts as Settling.
	LabelGrace time.Duration
	// GateTimeout is the time, from a pod's creation, in which the controller must remove the
	// scheduling gate of the autoscaler mode.
	GateTimeout time.Duration
	// CapacityLabels are the aliases of CapacityLabelKey.
	CapacityLabels []CapacityLabel
}

// Rule gives the pods that match all of its conditions their own settings. An empty condition
// matches every pod.
type Rule struct {
	Name            string
	Namespaces      []string
	PodSelector     func(labels map[string]string) bool
	PriorityClasses []string
	MinPriority     *int32
	QOSClasses      []string
	// OwnerKinds are workload kinds as in Workload.Kind; "Pod" matches a pod without a controller.
	OwnerKinds []string

	Overrides
	// Annotations, if not nil, replaces Policy.Annotations.
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

// NeedsPriorityClass reports whether a rule depends on the content of the PriorityClass with this
// name. For "" it reports whether a rule depends on which class is the default.
func (p *Policy) NeedsPriorityClass(name string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.MinPriority != nil || name == "" && len(r.PriorityClasses) > 0 })
}

// Settings returns the effective settings of pod, and the annotations that were skipped because
// their values are invalid.
//
// An annotation on the owner overrides an annotation on the pod, which overrides the first matching
// rule, which overrides the defaults. Jobs have their own default floor (see Workload.Batch), so
// that the floor of the profile does not force retriable work onto on-demand.
func (p *Policy) Settings(pod *Pod) (WorkloadSettings, []InvalidAnnotation) {
	return p.settings(pod, nil)
}

// settings implements Settings. If origins is not nil, it records the source of each setting there.
func (p *Policy) settings(pod *Pod, origins *Origins) (WorkloadSettings, []InvalidAnnotation) {
	settings, invalid := p.configured(pod, origins)
	return settings.withDisruptions(&pod.Workload, invalid)
}

// configured returns the settings of pod without the disruptions of its Job.
func (p *Policy) configured(pod *Pod, origins *Origins) (WorkloadSettings, []InvalidAnnotation) {
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

// stricterThan returns the settings of o that are at least as strict as base for a workload of
// desired replicas.
func (o Overrides) stricterThan(base WorkloadSettings, desired int) Overrides {
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
	if o.DisruptionLimit != nil && !lowerLimit(*o.DisruptionLimit, base.DisruptionLimit) {
		o.DisruptionLimit = nil
	}
	if o.OnDisruptionLimit != nil && *o.OnDisruptionLimit != RequireOnDemand {
		o.OnDisruptionLimit = nil
	}
	return o
}

// earlier reports whether a ends before b. Either may be Never.
func earlier(a, b time.Duration) bool { return a != Never && (b == Never || a < b) }

// floor returns how many of desired replicas q requires on on-demand.
func floor(q Quantity, desired int) int { return min(desired, q.Of(desired)) }

// poolCap returns how many of desired replicas of a revision may run in one spot pool; 0 means no
// cap.
func poolCap(perPool *Quantity, desired int) int {
	if perPool == nil {
		return 0
	}
	// A cap of 0 would keep the workload off spot entirely. Only the floor may do that.
	return max(1, perPool.Of(desired))
}
