package decision

import (
	"cmp"
	"slices"
	"time"
)

// AnnotationPolicy decides how far the annotations of a workload may override the policy.
type AnnotationPolicy int8

const (
	// AllowAnnotations means that annotations override rules and defaults.
	AllowAnnotations AnnotationPolicy = iota
	// StricterOnly means that an annotation counts only if it makes the workload safer (a higher
	// floor, a lower cap, DoNotSchedule, a later fallback or rollout relief, a lower disruption
	// limit, RequireOnDemand, protection) or reduces its use of shared capacity (overflow Never).
	StricterOnly
	// IgnoreAnnotations means that annotations are not read.
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
	settings, layers, invalid := p.layers(pod)
	for i := range layers {
		if !layers[i].Empty() { // Apply allocates
			settings = layers[i].Apply(settings)
		}
	}
	if w := &pod.Workload; w.Groups > 0 {
		settings.MinOnDemand = Percent(map[bool]int{true: 100}[w.Group < settings.Floor(w.Groups)])
	}
	return settings.withDisruptions(&pod.Workload, invalid)
}

// layer contains the settings of one source that have an effect. They override earlier layers.
type layer struct {
	Overrides
	// rule is the name of the rule, and object the kind of the object with the annotations.
	rule, object string
	// given are all settings of the object. overruled explains why some have no effect.
	given     Overrides
	overruled string
}

// layers returns the defaults of pod, and what overrides them: the rule that matches, and the
// annotations of the pod and of its owner. Layers may be empty.
func (p *Policy) layers(pod *Pod) (defaults WorkloadSettings, layers [3]layer, invalid []InvalidAnnotation) {
	defaults = p.Defaults
	switch pod.Workload.Batch {
	case Retriable, MaybeRetriable:
		defaults.MinOnDemand = Count(0)
	case NotRetriable:
		defaults.MinOnDemand = Percent(100)
	}
	annotations := p.Annotations
	for i := range p.Rules {
		if rule := &p.Rules[i]; rule.matches(pod) {
			layers[0] = layer{Overrides: rule.Overrides, rule: rule.Name}
			if rule.Annotations != nil {
				annotations = *rule.Annotations
			}
			break
		}
	}
	for i, object := range []struct {
		kind        string
		annotations map[string]string
	}{{"pod", pod.Annotations}, {pod.Workload.Kind, pod.Workload.Annotations}} {
		l := &layers[1+i]
		if l.object = object.kind; annotations == IgnoreAnnotations {
			l.given, l.overruled = present(object.annotations), ": annotationPolicy Ignore"
			continue
		}
		var wrong []InvalidAnnotation
		l.given, wrong = parseOverrides(object.annotations, object.kind, func(s *Setting) string { return s.Annotation })
		invalid = append(wrong, invalid...) // those on the owner first
		if l.Overrides = l.given; annotations == StricterOnly {
			l.Overrides = l.given.stricterThan(layers[0].Apply(defaults), cmp.Or(pod.Workload.Groups, pod.Workload.Desired))
			l.overruled = ": not stricter than the policy (annotationPolicy StricterOnly)"
		}
	}
	return defaults, layers, invalid
}

// present returns the settings that annotations contain, without their values.
func present(annotations map[string]string) (o Overrides) {
	for i := range Settings {
		if _, given := annotations[Settings[i].Annotation]; given {
			o.given |= 1 << i
		}
	}
	return o
}
