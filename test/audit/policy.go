package audit

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Policy is the placement policy of the audited scheduler. It is immutable.
type Policy struct {
	defaults       settings
	rules          []rule
	unlabeledSpot  bool
	labelGrace     time.Duration
	capacityLabels []capacityLabel
	signals        []signal
}

// prefix is the prefix of the project's annotations.
const prefix = "spot-aware-scheduler.io/"

// rule overrides settings for the pods that it matches.
type rule struct {
	Namespaces      []string              `json:"namespaces"`
	PodSelector     *metav1.LabelSelector `json:"podSelector"`
	PriorityClasses []string              `json:"priorityClasses"`
	MinPriority     *int32                `json:"minPriority"`
	QOSClasses      []string              `json:"qosClasses"`
	OwnerKinds      []string              `json:"ownerKinds"`

	selector labels.Selector // PodSelector
	settings texts
}

// amount is a count, or a percentage rounded up.
type amount struct {
	n       int
	percent bool
}

func (a amount) count(desired int) int {
	if !a.percent {
		return a.n
	}
	return (a.n*desired + 99) / 100
}

var amountPattern = regexp.MustCompile(`^([0-9]{1,9})(%?)$`)

func parseAmount(text string) (amount, error) {
	match := amountPattern.FindStringSubmatch(text)
	if match == nil {
		return amount{}, fmt.Errorf("%q: expected a count such as 2 or a percentage such as 30%%", text)
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return amount{}, fmt.Errorf("%q: %w", text, err)
	}
	a := amount{n, match[2] == "%"}
	if a.percent && n > 100 {
		return amount{}, fmt.Errorf("%q: expected at most 100%%", text)
	}
	return a, nil
}

// subject is the input of resolve: a pod and its workload.
type subject struct {
	pod         *corev1.Pod
	kind        string // the workload's kind; Pod without a controller
	annotations annotations
	desired     int
	fragileJob  bool   // a Job that fails if it loses a single pod
	disruptions string // annotation of a Job, "" if it has none
}

// resolve returns the settings of a subject and its floor. The precedence is: the owner's
// annotation, the pod's annotation, the first matching rule, the defaults. All pods of a Job at its
// disruption limit belong to the floor, unless they only prefer on-demand.
func (p *Policy) resolve(s subject) (settings, int) {
	out := p.defaults
	if s.kind == "Job" {
		// The profile's default does not apply to Jobs, because their pods can be retried, unless
		// the loss of a pod fails the Job.
		out.minOnDemand = amount{}
		if s.fragileJob {
			out.minOnDemand = amount{100, true}
		}
	}
	for i := range p.rules {
		if p.rules[i].matches(s) {
			out.override(p.rules[i].settings)
			break
		}
	}
	if out.annotations != "Ignore" {
		levels := []annotations{s.annotations, policyAnnotations(s.pod.Annotations)}
		strict := out.annotations == "StricterOnly"
		for i, setting := range known {
			if setting.annotation != "" {
				out = setting.annotate(i, levels, out, strict, s.desired)
			}
		}
	}
	disruptions, err := strconv.Atoi(s.disruptions)
	if s.kind == "Job" && err == nil && disruptions >= out.disruptionLimit && out.onDisruptionLimit == "RequireOnDemand" {
		return out, s.desired
	}
	return out, out.floor(s.desired)
}

func (r *rule) matches(s subject) bool {
	listed := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	priority := int32(0)
	if s.pod.Spec.Priority != nil {
		priority = *s.pod.Spec.Priority
	}
	return listed(r.Namespaces, s.pod.Namespace) &&
		listed(r.PriorityClasses, s.pod.Spec.PriorityClassName) &&
		listed(r.QOSClasses, string(s.pod.Status.QOSClass)) &&
		listed(r.OwnerKinds, s.kind) &&
		(r.MinPriority == nil || priority >= *r.MinPriority) &&
		r.selector.Matches(labels.Set(s.pod.Labels))
}

// onlySpot reports whether the pod's own nodeSelector or required node affinity allows only spot
// nodes.
func (p *Policy) onlySpot(pod *corev1.Pod) bool { return demands(pod, p.requiresSpot) }

// onlyOnDemand reports whether they allow no spot node.
func (p *Policy) onlyOnDemand(pod *corev1.Pod) bool { return demands(pod, p.refusesSpot) }

// demands reports whether every node that the pod's own nodeSelector and required node affinity
// allow meets a requirement for which `is` returns true.
func demands(pod *corev1.Pod, is func(corev1.NodeSelectorRequirement) bool) bool {
	for key, value := range pod.Spec.NodeSelector {
		if is(corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}) {
			return true
		}
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	// Terms are alternatives: each term must contain such a requirement. An empty term matches no
	// node.
	some := false
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue
		}
		if !slices.ContainsFunc(term.MatchExpressions, is) {
			return false
		}
		some = true
	}
	return some
}

func (p *Policy) requiresSpot(r corev1.NodeSelectorRequirement) bool {
	for _, label := range p.capacityLabels {
		if label.Key != r.Key {
			continue
		}
		switch r.Operator {
		case corev1.NodeSelectorOpExists:
			return slices.Contains(label.Spot, anyValue) && len(label.never) == 0
		case corev1.NodeSelectorOpIn:
			return len(r.Values) > 0 && !slices.ContainsFunc(r.Values, func(v string) bool { return !label.meansSpot(v) })
		}
	}
	return false
}

// refusesSpot reports whether no spot node meets a requirement, according to the tables.
func (p *Policy) refusesSpot(r corev1.NodeSelectorRequirement) bool {
	for _, label := range p.capacityLabels {
		if label.Key != r.Key {
			continue
		}
		switch r.Operator {
		case corev1.NodeSelectorOpDoesNotExist:
			return slices.Contains(label.Spot, anyValue) && len(label.never) == 0
		case corev1.NodeSelectorOpNotIn:
			return slices.ContainsFunc(r.Values, label.meansSpot)
		case corev1.NodeSelectorOpIn:
			return len(r.Values) > 0 && !slices.ContainsFunc(r.Values, func(v string) bool { return !slices.Contains(label.OnDemand, v) })
		}
	}
	return false
}
