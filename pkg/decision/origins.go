package decision

import (
	"fmt"
	"slices"
)

// Origins names the source of each of a pod's settings, for users.
type Origins struct {
	// Sources is by Setting.Name: "the profile", "the default of Jobs that retry", `rule
	// "critical"` or "annotation spot-aware-scheduler.io/min-on-demand on the Deployment".
	Sources map[string]string
	// Overruled lists the annotations that have no effect because of the annotation policy. They
	// are valid, or were not parsed.
	Overruled []string
}

// Explain returns the result of Settings and the source of each setting.
func (p *Policy) Explain(pod *Pod) (WorkloadSettings, Origins, []InvalidAnnotation) {
	origins := Origins{Sources: map[string]string{}}
	for i := range Settings {
		source := "the profile"
		if Settings[i].OnlyRules {
			source = "the default"
		}
		origins.Sources[Settings[i].Name] = source
	}
	switch pod.Workload.Batch {
	case Retriable, MaybeRetriable:
		origins.Sources["minOnDemand"] = "the default of Jobs that retry"
	case NotRetriable:
		origins.Sources["minOnDemand"] = "the default of Jobs without retries"
	}
	settings, invalid := p.settings(pod, &origins)
	if w := &pod.Workload; w.Groups > 0 {
		origins.Sources["minOnDemand"] += fmt.Sprintf(" for group %d of %d", w.Group, w.Groups)
	}
	return settings, origins, invalid
}

// rule records the settings of a rule. Like the other methods it does nothing if o is nil.
func (o *Origins) rule(rule *Rule) {
	if o == nil {
		return
	}
	for i := range Settings {
		if rule.has(i) {
			o.Sources[Settings[i].Name] = fmt.Sprintf("rule %q", rule.Name)
		}
	}
}

// annotations records the settings that the annotations of one object change. given are all of its
// valid settings; effective are the settings with effect.
func (o *Origins) annotations(given, effective Overrides, on string) {
	if o == nil {
		return
	}
	for i := range Settings {
		switch setting := &Settings[i]; {
		case effective.has(i):
			o.Sources[setting.Name] = onObject(setting.Annotation, on)
		case given.has(i):
			o.Overruled = append(o.Overruled, onObject(setting.Annotation, on)+": not stricter than the policy (annotationPolicy StricterOnly)")
		}
	}
	slices.Sort(o.Overruled)
}

// ignored records the annotations of a pod and its owner if annotations are not read.
func (o *Origins) ignored(pod *Pod) {
	if o == nil {
		return
	}
	for i := range Settings {
		key := Settings[i].Annotation
		if _, given := pod.Annotations[key]; given {
			o.Overruled = append(o.Overruled, onObject(key, "pod")+": annotationPolicy Ignore")
		}
		if _, given := pod.Workload.Annotations[key]; given {
			o.Overruled = append(o.Overruled, onObject(key, pod.Workload.Kind)+": annotationPolicy Ignore")
		}
	}
	slices.Sort(o.Overruled)
}

func onObject(key, on string) string { return fmt.Sprintf("annotation %s on the %s", key, on) }
