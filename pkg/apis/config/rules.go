package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/decoding"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

func convertRules(errs *field.ErrorList, path *field.Path, rules []Rule) []decision.Rule {
	var result []decision.Rule
	var earlier []Rule
	names := map[string]bool{}
	for i := range rules {
		rule, path := &rules[i], path.Index(i)
		switch {
		case rule.Name == "":
			*errs = append(*errs, field.Required(path.Child("name"), ""))
		case names[rule.Name]:
			*errs = append(*errs, field.Duplicate(path.Child("name"), rule.Name))
		}
		names[rule.Name] = true
		before := len(*errs)
		result = append(result, rule.convert(errs, path))
		if len(*errs) == before {
			if i := slices.IndexFunc(earlier, rule.sameConditions); i >= 0 {
				*errs = append(*errs, field.Invalid(path, rule.Name,
					fmt.Sprintf("can never match: it has the same conditions as rule %s before it", earlier[i].Name)))
			}
			earlier = append(earlier, *rule)
		}
	}
	return result
}

// sameConditions reports whether the conditions of two rules are identical. An absent list equals
// an empty one.
func (r *Rule) sameConditions(other Rule) bool {
	conditions := func(r *Rule) Rule {
		return Rule{
			Namespaces: r.Namespaces, PodSelector: r.PodSelector, PriorityClasses: r.PriorityClasses,
			MinPriority: r.MinPriority, QOSClasses: r.QOSClasses, OwnerKinds: r.OwnerKinds,
		}
	}
	return equality.Semantic.DeepEqual(conditions(r), conditions(&other))
}

func (r *Rule) convert(errs *field.ErrorList, path *field.Path) decision.Rule {
	before := len(*errs)
	rule := decision.Rule{
		Name:            r.Name,
		Namespaces:      r.Namespaces,
		PriorityClasses: r.PriorityClasses,
		MinPriority:     r.MinPriority,
		QOSClasses:      r.QOSClasses,
		OwnerKinds:      r.OwnerKinds,
		Overrides:       convertSettings(errs, path, r),
	}
	if r.AnnotationPolicy != nil {
		rule.Annotations = new(convertAnnotationPolicy(errs, path, *r.AnnotationPolicy))
	}
	if rule.Empty() && rule.Annotations == nil && len(*errs) == before {
		names := []string{"annotationPolicy"}
		for i := range decision.Settings {
			names = append(names, decision.Settings[i].Name)
		}
		*errs = append(*errs, field.Required(path, "the rule sets nothing: at least one of "+strings.Join(names, ", ")))
	}
	checkEach(errs, path.Child("namespaces"), r.Namespaces, map[string]bool{}, validation.IsDNS1123Label)
	checkEach(errs, path.Child("priorityClasses"), r.PriorityClasses, map[string]bool{}, validation.IsDNS1123Subdomain)
	checkEach(errs, path.Child("qosClasses"), r.QOSClasses, map[string]bool{}, isQOSClass)
	checkEach(errs, path.Child("ownerKinds"), r.OwnerKinds, map[string]bool{}, isOwnerKind)

	if selector := decoding.Selector(errs, path.Child("podSelector"), r.PodSelector); selector != nil {
		rule.PodSelector = func(podLabels map[string]string) bool { return selector.Matches(labels.Set(podLabels)) }
	}
	return rule
}

// convertSettings returns the workload settings of an object: the arguments of ReplicaSafety or a
// rule.
func convertSettings(errs *field.ErrorList, path *field.Path, object any) decision.Overrides {
	var fields map[string]json.RawMessage
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		*errs = append(*errs, field.InternalError(path, err))
	}
	values := map[string]string{}
	for name, value := range fields {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value) // a number or a boolean
		}
		values[name] = text
	}
	overrides, invalid := decision.ParseOverrides(values)
	for _, setting := range invalid {
		*errs = append(*errs, field.Invalid(path.Child(setting.Key), setting.Value, setting.Expected))
	}
	return overrides
}

// checkEach adds an error for each value of a list that has problems, is in seen or occurs twice.
// It adds the values to seen.
func checkEach(errs *field.ErrorList, path *field.Path, list []string, seen map[string]bool, problems func(string) []string) {
	for i, value := range list {
		checkText(errs, path.Index(i), value, problems(value))
		if seen[value] {
			*errs = append(*errs, field.Duplicate(path.Index(i), value))
		}
		seen[value] = true
	}
}

// checkText adds one error with all problems of value, or none if there are none.
func checkText(errs *field.ErrorList, path *field.Path, value string, problems []string) {
	if len(problems) > 0 {
		*errs = append(*errs, field.Invalid(path, value, strings.Join(problems, "; ")))
	}
}

var qosClasses = []string{string(v1.PodQOSGuaranteed), string(v1.PodQOSBurstable), string(v1.PodQOSBestEffort)}

func isQOSClass(class string) []string {
	if !slices.Contains(qosClasses, class) {
		return []string{"expected one of " + strings.Join(qosClasses, ", ")}
	}
	return nil
}

var kindPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

func isOwnerKind(kind string) []string {
	switch {
	case kind == "DaemonSet" || kind == "Node":
		return []string{"rules do not apply to pods of a DaemonSet or to static pods: their node is fixed"}
	case kind == "CronJob":
		return []string{"expected Job: the workload of a CronJob's pods is their Job"}
	case !kindPattern.MatchString(kind):
		return []string{"expected a kind such as Deployment, StatefulSet or Job; Pod for pods without a controller"}
	}
	return nil
}

// convertSignals returns the built-in signals, then the configured signals.
func convertSignals(errs *field.ErrorList, path *field.Path, signals []Signal) []providers.Signal {
	var configured []providers.Signal
	for i := range signals {
		path := path.Index(i)
		signal := providers.Signal{OnlySpot: signals[i].OnlySpot}
		if signals[i].Class == "" {
			*errs = append(*errs, field.Required(path.Child("class"), ""))
		} else {
			signal.Class = decoding.OneOf(errs, path.Child("class"), signals[i].Class,
				[]SignalClass{Reclaim, Drain, Advisory}, decision.Reclaim, decision.Drain, decision.Advisory)
		}
		if notice := signals[i].Notice; notice != nil {
			signal.Notice = decoding.AtLeast(errs, path.Child("notice"), *notice, 0)
		}
		kinds, text := signals[i].given()
		if len(kinds) == 0 {
			*errs = append(*errs, field.Required(path, "one of taint, condition, label, annotation"))
			continue
		}
		if len(kinds) > 1 {
			*errs = append(*errs, field.Invalid(path, kinds, "expected only one of taint, condition, label, annotation"))
			continue
		}
		signal.Kind, signal.Mentions = kinds[0], signals[i].Mentions
		if signal.Mentions != "" && signal.Kind != providers.ConditionSignal {
			*errs = append(*errs, field.Invalid(path.Child("mentions"), signal.Mentions,
				"expected only beside condition, which has a reason and a message"))
		}
		path = path.Child(string(signal.Kind))
		var err error
		if signal.Key, signal.Value, err = parseSignal(signal.Kind, text); err != nil {
			*errs = append(*errs, field.Invalid(path, text, err.Error()))
		}
		if slices.ContainsFunc(configured, func(earlier providers.Signal) bool {
			return earlier.Kind == signal.Kind && earlier.Key == signal.Key && earlier.Value == signal.Value && earlier.Mentions == signal.Mentions
		}) {
			*errs = append(*errs, field.Duplicate(path, text))
		}
		configured = append(configured, signal)
	}
	return append(providers.Signals(), configured...)
}

// given returns the kinds that s sets, and the text of the last kind.
func (s *Signal) given() (kinds []providers.SignalKind, text string) {
	for _, kind := range []struct {
		name providers.SignalKind
		text string
	}{
		{providers.TaintSignal, s.Taint},
		{providers.ConditionSignal, s.Condition},
		{providers.LabelSignal, s.Label},
		{providers.AnnotationSignal, s.Annotation},
	} {
		if kind.text != "" {
			kinds, text = append(kinds, kind.name), kind.text
		}
	}
	return kinds, text
}

// parseSignal parses "key" or "key=value". The value is "" if any value matches. For a condition it
// is the status.
func parseSignal(kind providers.SignalKind, text string) (key, value string, err error) {
	key, value, hasValue := strings.Cut(text, "=")
	expected := `expected "key" or "key=value"`
	problems := validation.IsQualifiedName(key)
	switch {
	case kind == providers.ConditionSignal:
		expected = `expected "Type", "Type=True", "Type=False" or "Type=Unknown"`
		if !hasValue {
			value = string(v1.ConditionTrue)
		}
		if !slices.Contains([]string{"True", "False", "Unknown"}, value) {
			problems = append(problems, "not a status of a condition")
		}
	case hasValue && value == "":
		problems = append(problems, `the value is empty; "key" alone means any value`)
	case kind != providers.AnnotationSignal:
		problems = append(problems, validation.IsValidLabelValue(value)...)
	}
	if len(problems) > 0 {
		return "", "", errors.New(expected + ": " + strings.Join(problems, "; "))
	}
	return key, value, nil
}
