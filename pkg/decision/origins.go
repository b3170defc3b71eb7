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
	_, layers, _ := p.layers(pod)
	for _, l := range layers {
		for i := range Settings {
			switch setting := &Settings[i]; {
			case l.has(i):
				origins.Sources[setting.Name] = l.source(setting)
			case l.given.has(i):
				origins.Overruled = append(origins.Overruled, l.source(setting)+l.overruled)
			}
		}
	}
	slices.Sort(origins.Overruled)
	if w := &pod.Workload; w.Groups > 0 {
		origins.Sources["minOnDemand"] += fmt.Sprintf(" for group %d of %d", w.Group, w.Groups)
	}
	settings, invalid := p.Settings(pod)
	return settings, origins, invalid
}

func (l *layer) source(setting *Setting) string {
	if l.object == "" {
		return fmt.Sprintf("rule %q", l.rule)
	}
	return fmt.Sprintf("annotation %s on the %s", setting.Annotation, l.object)
}
