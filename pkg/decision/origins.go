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
	MinOnDemand, MaxPerPool, WhenUnsatisfiable, FallbackAfter, RolloutRelief, Overflow, Exemptions, Protect,
	DisruptionLimit, OnDisruptionLimit string
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
		DisruptionLimit: fromProfile, OnDisruptionLimit: fromProfile,
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
	effective := count.overridden()
	for key, wanted := range given.overridden() {
		if wanted && !effective[key] {
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
		for key := range o.fields() {
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
	fields := o.fields()
	for key, overridden := range overrides.overridden() {
		if overridden {
			*fields[key] = from(key)
		}
	}
}

// fields returns the sources of the settings that have an annotation, by annotation key.
func (o *Origins) fields() map[string]*string {
	return map[string]*string{
		spot.MinOnDemandAnnotation:       &o.MinOnDemand,
		spot.MaxPerPoolAnnotation:        &o.MaxPerPool,
		spot.WhenUnsatisfiableAnnotation: &o.WhenUnsatisfiable,
		spot.FallbackAfterAnnotation:     &o.FallbackAfter,
		spot.RolloutReliefAnnotation:     &o.RolloutRelief,
		spot.OverflowAnnotation:          &o.Overflow,
		spot.ProtectAnnotation:           &o.Protect,
		spot.DisruptionLimitAnnotation:   &o.DisruptionLimit,
		spot.OnDisruptionLimitAnnotation: &o.OnDisruptionLimit,
	}
}

// overridden reports which of the settings that have an annotation are not nil, by annotation key.
func (o *Overrides) overridden() map[string]bool {
	return map[string]bool{
		spot.MinOnDemandAnnotation:       o.MinOnDemand != nil,
		spot.MaxPerPoolAnnotation:        o.MaxPerPool != nil,
		spot.WhenUnsatisfiableAnnotation: o.WhenUnsatisfiable != nil,
		spot.FallbackAfterAnnotation:     o.FallbackAfter != nil,
		spot.RolloutReliefAnnotation:     o.RolloutRelief != nil,
		spot.OverflowAnnotation:          o.Overflow != nil,
		spot.ProtectAnnotation:           o.Protect != nil,
		spot.DisruptionLimitAnnotation:   o.DisruptionLimit != nil,
		spot.OnDisruptionLimitAnnotation: o.OnDisruptionLimit != nil,
	}
}
