package decision

import (
	"fmt"
	"slices"
)

// Origins say, for a person, where each of a pod's Settings comes from: "the profile", "the default of Jobs that retry", `rule "critical"` or
// "annotation spot-aware-scheduler.io/min-on-demand on the Deployment".
type Origins struct {
	MinOnDemand, MaxPerPool, WhenUnsatisfiable, FallbackAfter, RolloutRelief, Overflow, Exemptions, Protect string
	// Overruled are the annotations that parse, or are not even read, and do not count because of the annotation policy; in words.
	Overruled []string
}

const fromProfile = "the profile"

// Explain returns what Settings does, and where each setting comes from.
func (p *Policy) Explain(pod *Pod) (Settings, Origins, []InvalidAnnotation) {
	origins := Origins{
		MinOnDemand: fromProfile, MaxPerPool: fromProfile, WhenUnsatisfiable: fromProfile, FallbackAfter: fromProfile,
		RolloutRelief: fromProfile, Overflow: fromProfile, Exemptions: fromProfile, Protect: "the default",
	}
	switch pod.Workload.Batch {
	case Retriable:
		origins.MinOnDemand = "the default of Jobs that retry"
	case NotRetriable:
		origins.MinOnDemand = "the default of Jobs that one lost pod fails"
	}
	settings, invalid := p.settings(pod, &origins)
	return settings, origins, invalid
}

// rule notes what a rule gives. As the other methods it does nothing for nil.
func (o *Origins) rule(rule *Rule) {
	if o != nil {
		from := fmt.Sprintf("rule %q", rule.Name)
		o.note(rule.Overrides, func(string) string { return from })
		if rule.Exemptions != nil {
			o.Exemptions = from
		}
	}
}

// annotations notes what the annotations of one object give, out of what is given there.
func (o *Origins) annotations(given, count Overrides, on string) {
	if o == nil {
		return
	}
	o.note(count, func(key string) string { return onObject(key, on) })
	for key, lost := range map[string]bool{
		MinOnDemandAnnotation:       given.MinOnDemand != nil && count.MinOnDemand == nil,
		MaxPerPoolAnnotation:        given.MaxPerPool != nil && count.MaxPerPool == nil,
		WhenUnsatisfiableAnnotation: given.WhenUnsatisfiable != nil && count.WhenUnsatisfiable == nil,
		FallbackAfterAnnotation:     given.FallbackAfter != nil && count.FallbackAfter == nil,
		RolloutReliefAnnotation:     given.RolloutRelief != nil && count.RolloutRelief == nil,
		OverflowAnnotation:          given.Overflow != nil && count.Overflow == nil,
		ProtectAnnotation:           given.Protect != nil && count.Protect == nil,
	} {
		if lost {
			o.Overruled = append(o.Overruled, onObject(key, on)+": annotationPolicy StricterOnly lets it only be stricter")
		}
	}
	slices.Sort(o.Overruled)
}

// ignored notes the annotations of a pod and its owner where none is read.
func (o *Origins) ignored(pod *Pod) {
	if o == nil {
		return
	}
	for _, at := range []struct {
		annotations map[string]string
		on          string
	}{{pod.Annotations, "pod"}, {pod.Workload.Annotations, pod.Workload.Kind}} {
		for _, key := range []string{
			MinOnDemandAnnotation, MaxPerPoolAnnotation, WhenUnsatisfiableAnnotation, FallbackAfterAnnotation, RolloutReliefAnnotation,
			OverflowAnnotation, ProtectAnnotation,
		} {
			if _, given := at.annotations[key]; given {
				o.Overruled = append(o.Overruled, onObject(key, at.on)+": annotationPolicy Ignore")
			}
		}
	}
	slices.Sort(o.Overruled)
}

func onObject(key, on string) string { return fmt.Sprintf("annotation %s on the %s", key, on) }

// note notes that these overrides are in force; from says what gives the setting of the annotation of that key.
func (o *Origins) note(overrides Overrides, from func(key string) string) {
	if overrides.MinOnDemand != nil {
		o.MinOnDemand = from(MinOnDemandAnnotation)
	}
	if overrides.MaxPerPool != nil {
		o.MaxPerPool = from(MaxPerPoolAnnotation)
	}
	if overrides.WhenUnsatisfiable != nil {
		o.WhenUnsatisfiable = from(WhenUnsatisfiableAnnotation)
	}
	if overrides.FallbackAfter != nil {
		o.FallbackAfter = from(FallbackAfterAnnotation)
	}
	if overrides.RolloutRelief != nil {
		o.RolloutRelief = from(RolloutReliefAnnotation)
	}
	if overrides.Overflow != nil {
		o.Overflow = from(OverflowAnnotation)
	}
	if overrides.Protect != nil {
		o.Protect = from(ProtectAnnotation)
	}
}
