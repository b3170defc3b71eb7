package audit

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// never is longer than any test.
const never = time.Duration(math.MaxInt64)

// settings are the settings that a rule or an annotation may change. A nil maxPerPool is no
// limit.
type settings struct {
	minOnDemand   amount
	maxPerPool    *amount
	anyway        bool
	fallbackAfter time.Duration
	rolloutRelief time.Duration // time that a pod of a new revision waits for on-demand capacity of an older revision
	overflow      string        // Allow or Never
	exemptions    string        // Allow or Ignore
	annotations   string        // Allow, StricterOnly or Ignore

	disruptionLimit   int    // of a Job; noLimit if none
	onDisruptionLimit string // RequireOnDemand or PreferOnDemand
}

// noLimit is more than any Job's number of disruptions.
const noLimit = math.MaxInt

// rule overrides settings for the pods that it matches. nil and "" override nothing.
type rule struct {
	namespaces      []string
	selector        labels.Selector
	priorityClasses []string
	minPriority     *int32
	qosClasses      []string
	ownerKinds      []string

	minOnDemand   *amount
	maxPerPool    *amount
	anyway        *bool
	fallbackAfter *time.Duration
	rolloutRelief *time.Duration
	overflow      string
	exemptions    string
	annotations   string

	disruptionLimit   *int
	onDisruptionLimit string
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

// annotations are the policy annotations of one object. A missing annotation is "", which does
// not parse either.
type annotations struct {
	minOnDemand, maxPerPool, whenUnsatisfiable, fallbackAfter, rolloutRelief, overflow string

	disruptionLimit, onDisruptionLimit string
	disruptions                        string // only on a Job
}

func policyAnnotations(from map[string]string) annotations {
	return annotations{
		minOnDemand:       from[prefix+"min-on-demand"],
		maxPerPool:        from[prefix+"max-per-pool"],
		whenUnsatisfiable: from[prefix+"when-unsatisfiable"],
		fallbackAfter:     from[prefix+"fallback-after"],
		rolloutRelief:     from[prefix+"rollout-relief"],
		overflow:          from[prefix+"overflow"],
		disruptionLimit:   from[prefix+"disruption-limit"],
		onDisruptionLimit: from[prefix+"on-disruption-limit"],
		disruptions:       from[prefix+"disruptions"],
	}
}

// subject is the input of resolve: a pod and its workload.
type subject struct {
	pod         *corev1.Pod
	kind        string // the workload's kind; Pod without a controller
	annotations annotations
	desired     int
	fragileJob  bool // a Job that fails if it loses a single pod
}

// resolve returns the settings of a subject and its floor. The precedence is: the owner's
// annotation, the pod's annotation, the first matching rule, the defaults. All pods of a Job at its
// disruption limit belong to the floor, unless they only prefer on-demand.
func (p *Policy) resolve(s subject) (settings, int) {
	out, floor := p.resolveSettings(s)
	disruptions, err := strconv.Atoi(s.annotations.disruptions)
	if s.kind == "Job" && err == nil && disruptions >= out.disruptionLimit && out.onDisruptionLimit == "RequireOnDemand" {
		floor = s.desired
	}
	return out, floor
}

func (p *Policy) resolveSettings(s subject) (settings, int) {
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
			p.rules[i].override(&out)
			break
		}
	}
	floor := func(a amount) int { return min(s.desired, a.count(s.desired)) }
	if out.annotations == "Ignore" {
		return out, floor(out.minOnDemand)
	}
	strict := out.annotations == "StricterOnly"
	levels := []annotations{s.annotations, policyAnnotations(s.pod.Annotations)}
	if least, ok := first(levels, func(a annotations) (amount, error) { return parseAmount(a.minOnDemand) }); ok &&
		(!strict || floor(least) > floor(out.minOnDemand)) {
		out.minOnDemand = least
	}
	if most, ok := first(levels, func(a annotations) (amount, error) { return parsePoolCap(a.maxPerPool) }); ok &&
		(!strict || out.maxPerPool == nil || most.count(s.desired) < out.maxPerPool.count(s.desired)) {
		out.maxPerPool = &most
	}
	if anyway, ok := first(levels, func(a annotations) (bool, error) { return parseAnyway(a.whenUnsatisfiable) }); ok &&
		(!strict || !anyway) {
		out.anyway = anyway
	}
	if after, ok := first(levels, func(a annotations) (time.Duration, error) { return parseFallback(a.fallbackAfter) }); ok &&
		(!strict || after > out.fallbackAfter) {
		out.fallbackAfter = after
	}
	if after, ok := first(levels, func(a annotations) (time.Duration, error) { return parseFallback(a.rolloutRelief) }); ok &&
		(!strict || after > out.rolloutRelief) {
		out.rolloutRelief = after
	}
	overflows := levels
	if strict { // of the levels, only Never counts
		overflows = slices.DeleteFunc(slices.Clone(levels), func(a annotations) bool { return a.overflow != "Never" })
	}
	if overflow, ok := first(overflows, func(a annotations) (string, error) { return parseOverflow(a.overflow) }); ok {
		out.overflow = overflow
	}
	if limit, ok := first(levels, func(a annotations) (int, error) { return parseLimit(a.disruptionLimit) }); ok &&
		(!strict || limit < out.disruptionLimit) {
		out.disruptionLimit = limit
	}
	if action, ok := first(levels, func(a annotations) (string, error) { return parseOnLimit(a.onDisruptionLimit) }); ok &&
		(!strict || action == "RequireOnDemand") {
		out.onDisruptionLimit = action
	}
	return out, floor(out.minOnDemand)
}

// first returns the first value that parses. A level with a bad value is skipped.
func first[T any](levels []annotations, parse func(annotations) (T, error)) (T, bool) {
	for _, level := range levels {
		if value, err := parse(level); err == nil {
			return value, true
		}
	}
	var zero T
	return zero, false
}

func parsePoolCap(text string) (amount, error) {
	a, err := parseAmount(text)
	if err == nil && !a.percent && a.n < 1 {
		err = fmt.Errorf("%q: expected at least 1", text)
	}
	return a, err
}

func parseAnyway(text string) (bool, error) {
	switch text {
	case "ScheduleAnyway":
		return true, nil
	case "DoNotSchedule":
		return false, nil
	}
	return false, fmt.Errorf("%q: expected DoNotSchedule or ScheduleAnyway", text)
}

func parseFallback(text string) (time.Duration, error) {
	if text == "never" {
		return never, nil
	}
	after, err := time.ParseDuration(text)
	if err == nil && after < 0 {
		err = fmt.Errorf("%q: expected never or a duration of 0s or more", text)
	}
	return after, err
}

func parseOverflow(text string) (string, error) {
	if text == "Allow" || text == "Never" {
		return text, nil
	}
	return "", fmt.Errorf("%q: expected Allow or Never", text)
}

func parseLimit(text string) (int, error) {
	if text == "never" {
		return noLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err == nil && (limit < 1 || limit > 100) {
		err = fmt.Errorf("%q: expected never or a count from 1 to 100", text)
	}
	return limit, err
}

func parseOnLimit(text string) (string, error) {
	if text == "RequireOnDemand" || text == "PreferOnDemand" {
		return text, nil
	}
	return "", fmt.Errorf("%q: expected RequireOnDemand or PreferOnDemand", text)
}

func (r *rule) matches(s subject) bool {
	listed := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	priority := int32(0)
	if s.pod.Spec.Priority != nil {
		priority = *s.pod.Spec.Priority
	}
	return listed(r.namespaces, s.pod.Namespace) &&
		listed(r.priorityClasses, s.pod.Spec.PriorityClassName) &&
		listed(r.qosClasses, string(s.pod.Status.QOSClass)) &&
		listed(r.ownerKinds, s.kind) &&
		(r.minPriority == nil || priority >= *r.minPriority) &&
		r.selector.Matches(labels.Set(s.pod.Labels))
}

func (r *rule) override(s *settings) {
	if r.minOnDemand != nil {
		s.minOnDemand = *r.minOnDemand
	}
	if r.maxPerPool != nil {
		s.maxPerPool = r.maxPerPool
	}
	if r.anyway != nil {
		s.anyway = *r.anyway
	}
	if r.fallbackAfter != nil {
		s.fallbackAfter = *r.fallbackAfter
	}
	if r.rolloutRelief != nil {
		s.rolloutRelief = *r.rolloutRelief
	}
	if r.overflow != "" {
		s.overflow = r.overflow
	}
	if r.exemptions != "" {
		s.exemptions = r.exemptions
	}
	if r.annotations != "" {
		s.annotations = r.annotations
	}
	if r.disruptionLimit != nil {
		s.disruptionLimit = *r.disruptionLimit
	}
	if r.onDisruptionLimit != "" {
		s.onDisruptionLimit = r.onDisruptionLimit
	}
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
		if label.key != r.Key {
			continue
		}
		switch r.Operator {
		case corev1.NodeSelectorOpExists:
			return slices.Contains(label.spot, anyValue) && len(label.never) == 0
		case corev1.NodeSelectorOpIn:
			return len(r.Values) > 0 && !slices.ContainsFunc(r.Values, func(v string) bool { return !label.meansSpot(v) })
		}
	}
	return false
}

// refusesSpot reports whether no spot node meets a requirement, according to the tables.
func (p *Policy) refusesSpot(r corev1.NodeSelectorRequirement) bool {
	for _, label := range p.capacityLabels {
		if label.key != r.Key {
			continue
		}
		switch r.Operator {
		case corev1.NodeSelectorOpDoesNotExist:
			return slices.Contains(label.spot, anyValue) && len(label.never) == 0
		case corev1.NodeSelectorOpNotIn:
			return slices.ContainsFunc(r.Values, label.meansSpot)
		case corev1.NodeSelectorOpIn:
			return len(r.Values) > 0 && !slices.ContainsFunc(r.Values, func(v string) bool { return !slices.Contains(label.onDemand, v) })
		}
	}
	return false
}
