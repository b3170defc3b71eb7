package config

import (
	"encoding/json"
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

// checkEach adds an error for each value of a list that has problems, is in seen or occurs twice. It
// adds the values to seen.
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
