package decision

import (
	"fmt"
	"slices"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Origins names the source of each of a pod's Settings, for users: "the profile", "the default of
// Jobs that retry", `rule "critical"` or "annotation spot-aware-scheduler.io/min-on-demand on the
// Deployment".
type Origins struct {
	MinOnDemand, MaxPerPool, WhenUnsatisfiable, FallbackAfter, RolloutRelief, Overflow, Exemptions, Protect string
	// Overruled lists the annotations that have no effect because of the annotation policy. They
	// are valid, or were not parsed.
	Overruled []string
}

const fromProfile = "the profile"

// Explain returns the result of Settings and the source of each setting.
func (p *Policy) Explain(pod *Pod) (WorkloadSettings, Origins, []InvalidAnnotation) {
	origins := Origins{
		MinOnDemand: fromProfile, MaxPerPool: fromProfile, WhenUnsatisfiable: fromProfile, FallbackAfter: fromProfile,
		RolloutRelief: fromProfile, Overflow: fromProfile, Exemptions: fromProfile, Protect: "the default",
	}
	switch pod.Workload.Batch {
	case Retriable:
		origins.MinOnDemand = "the default of Jobs that retry"
	case NotRetriable:
		origins.MinOnDemand = "the default of Jobs without retries"
	}
	settings, invalid := p.settings(pod, &origins)
	return settings, origins, invalid
}

// rule records the settings of a rule. Like the other methods it does nothing if o is nil.
func (o *Origins) rule(rule *Rule) {
	if o != nil {
		from := fmt.Sprintf("rule %q", rule.Name)
		o.record(rule.Overrides, func(string) string { return from })
		if rule.Exemptions != nil {
			o.Exemptions = from
		}
	}
}

// annotations records the settings that the annotations of one object change. given are all of its
// valid settings; count are the settings with effect.
func (o *Origins) annotations(given, count Overrides, on string) {
	if o == nil {
		return
	}
	o.record(count, func(key string) string { return onObject(key, on) })
	for key, lost := range map[string]bool{
		spot.MinOnDemandAnnotation:       given.MinOnDemand != nil && count.MinOnDemand == nil,
		spot.MaxPerPoolAnnotation:        given.MaxPerPool != nil && count.MaxPerPool == nil,
		spot.WhenUnsatisfiableAnnotation: given.WhenUnsatisfiable != nil && count.WhenUnsatisfiable == nil,
		spot.FallbackAfterAnnotation:     given.FallbackAfter != nil && count.FallbackAfter == nil,
		spot.RolloutReliefAnnotation:     given.RolloutRelief != nil && count.RolloutRelief == nil,
		spot.OverflowAnnotation:          given.Overflow != nil && count.Overflow == nil,
		spot.ProtectAnnotation:           given.Protect != nil && count.Protect == nil,
	} {
		if lost {
			o.Overruled = append(o.Overruled, onObject(key, on)+": not stricter than the policy (annotationPolicy StricterOnly)")
		}
	}
	slices.Sort(o.Overruled)
}

// ignored records the annotations of a pod and its owner if annotations are not read.
func (o *Origins) ignored(pod *Pod) {
	if o == nil {
		return
	}
	for _, at := range []struct {
		annotations map[string]string
		on          string
	}{{pod.Annotations, "pod"}, {pod.Workload.Annotations, pod.Workload.Kind}} {
		for _, key := range []string{
			spot.MinOnDemandAnnotation, spot.MaxPerPoolAnnotation, spot.WhenUnsatisfiableAnnotation, spot.FallbackAfterAnnotation, spot.RolloutReliefAnnotation,
			spot.OverflowAnnotation, spot.ProtectAnnotation,
		} {
			if _, given := at.annotations[key]; given {
				o.Overruled = append(o.Overruled, onObject(key, at.on)+": annotationPolicy Ignore")
			}
		}
	}
	slices.Sort(o.Overruled)
}

func onObject(key, on string) string { return fmt.Sprintf("annotation %s on the %s", key, on) }

// record sets the source of every setting in overrides. from returns it by annotation key.
func (o *Origins) record(overrides Overrides, from func(key string) string) {
	if overrides.MinOnDemand != nil {
		o.MinOnDemand = from(spot.MinOnDemandAnnotation)
	}
	if overrides.MaxPerPool != nil {
		o.MaxPerPool = from(spot.MaxPerPoolAnnotation)
	}
	if overrides.WhenUnsatisfiable != nil {
		o.WhenUnsatisfiable = from(spot.WhenUnsatisfiableAnnotation)
	}
	if overrides.FallbackAfter != nil {
		o.FallbackAfter = from(spot.FallbackAfterAnnotation)
	}
	if overrides.RolloutRelief != nil {
		o.RolloutRelief = from(spot.RolloutReliefAnnotation)
	}
	if overrides.Overflow != nil {
		o.Overflow = from(spot.OverflowAnnotation)
	}
	if overrides.Protect != nil {
		o.Protect = from(spot.ProtectAnnotation)
	}
}
