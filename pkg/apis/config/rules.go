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

func convertRules(rules []Rule, path *field.Path) ([]decision.Rule, field.ErrorList) {
	var errs field.ErrorList
	var result []decision.Rule
	var earlier []Rule
	names := map[string]bool{}
	for i := range rules {
		rule, path := &rules[i], path.Index(i)
		switch {
		case rule.Name == "":
			errs = append(errs, field.Required(path.Child("name"), ""))
		case names[rule.Name]:
			errs = append(errs, field.Duplicate(path.Child("name"), rule.Name))
		}
		names[rule.Name] = true
		converted, fieldErrs := rule.convert(path)
		errs = append(errs, fieldErrs...)
		if len(fieldErrs) == 0 {
			if i := slices.IndexFunc(earlier, rule.sameConditions); i >= 0 {
				errs = append(errs, field.Invalid(path, rule.Name,
					fmt.Sprintf("can never match: it has the same conditions as rule %s before it", earlier[i].Name)))
			}
			earlier = append(earlier, *rule)
		}
		result = append(result, converted)
	}
	return result, errs
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

func (r *Rule) convert(path *field.Path) (decision.Rule, field.ErrorList) {
	var errs field.ErrorList
	rule := decision.Rule{
		Name:            r.Name,
		Namespaces:      r.Namespaces,
		PriorityClasses: r.PriorityClasses,
		MinPriority:     r.MinPriority,
		QOSClasses:      r.QOSClasses,
		OwnerKinds:      r.OwnerKinds,
		Overrides:       convertSettings(&errs, path, r),
	}
	if r.AnnotationPolicy != nil {
		rule.Annotations = new(convertAnnotationPolicy(&errs, path, *r.AnnotationPolicy))
	}
	if rule.Empty() && rule.Annotations == nil && len(errs) == 0 {
		names := []string{"annotationPolicy"}
		for i := range decision.Settings {
			names = append(names, decision.Settings[i].Name)
		}
		errs = append(errs, field.Required(path, "the rule sets nothing: at least one of "+strings.Join(names, ", ")))
	}
	errs = append(errs, eachNew(map[string]bool{}, r.Namespaces, path.Child("namespaces"), validation.IsDNS1123Label)...)
	errs = append(errs, eachNew(map[string]bool{}, r.PriorityClasses, path.Child("priorityClasses"), validation.IsDNS1123Subdomain)...)
	errs = append(errs, eachNew(map[string]bool{}, r.QOSClasses, path.Child("qosClasses"), isQOSClass)...)
	errs = append(errs, eachNew(map[string]bool{}, r.OwnerKinds, path.Child("ownerKinds"), isOwnerKind)...)

	if selector := decoding.Selector(&errs, path.Child("podSelector"), r.PodSelector); selector != nil {
		rule.PodSelector = func(podLabels map[string]string) bool { return selector.Matches(labels.Set(podLabels)) }
	}
	return rule, errs
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

// eachNew returns the problems with the values of a list, and the values that are in seen or occur
// twice. It adds the values to seen.
func eachNew(seen map[string]bool, list []string, path *field.Path, problems func(string) []string) field.ErrorList {
	var errs field.ErrorList
	for i, value := range list {
		errs = append(errs, invalid(path.Index(i), value, problems(value))...)
		if seen[value] {
			errs = append(errs, field.Duplicate(path.Index(i), value))
		}
		seen[value] = true
	}
	return errs
}

// invalid returns one error with all problems of value, or nil if there are none.
func invalid(path *field.Path, value string, problems []string) field.ErrorList {
	if len(problems) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, strings.Join(problems, "; "))}
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
