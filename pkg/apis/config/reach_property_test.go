package config

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Validation rejects a rule as never matching only if it is the first match of no pod. Without
// selectors the converse is also true.
func TestNeverMatchingAgreesWithMatching(t *testing.T) {
	for name, withSelectors := range map[string]bool{"with selectors": true, "without selectors": false} {
		t.Run(name, func(t *testing.T) {
			pods := everyPod(withSelectors)
			rapid.Check(t, func(t *rapid.T) {
				var rules []Rule
				for i := range rapid.IntRange(1, 5).Draw(t, "rules") {
					rule := drawRule(t, withSelectors)
					// The floor identifies the rule that applied to a pod.
					rule.Name, rule.MinOnDemand = fmt.Sprint(i), Scalar(fmt.Sprint(i))
					rules = append(rules, rule)
				}
				converted, errs := convertRules(rules, field.NewPath("rules"))
				refused := map[string]bool{}
				for _, mistake := range errs {
					refused[mistake.Field] = true
				}
				policy := decision.Policy{Rules: converted, Defaults: decision.WorkloadSettings{MinOnDemand: decision.Count(len(rules))}}
				applies := map[decision.Quantity]bool{}
				for i := range pods {
					settings, _ := policy.Settings(&pods[i])
					applies[settings.MinOnDemand] = true
				}
				for i := range rules {
					path := fmt.Sprintf("rules[%d]", i)
					switch matches := applies[decision.Count(i)]; {
					case matches && refused[path]:
						t.Fatalf("%s matches but is refused: %v", path, errs)
					case !withSelectors && !matches && !refused[path]:
						t.Fatalf("%s never matches but is not refused: %v", path, errs)
					}
				}
			})
		})
	}
}

// drawRule returns a rule with random conditions on few values.
func drawRule(t *rapid.T, withSelector bool) Rule {
	some := func(label string, values ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(values), 0, len(values), rapid.ID).Draw(t, label)
	}
	rule := Rule{
		Namespaces:  some("namespaces", "a", "b"),
		QOSClasses:  some("QoS classes", qosClasses...),
		OwnerKinds:  some("kinds", "Job", "Deployment"),
		MinPriority: rapid.SampledFrom([]Scalar{"", "0", "5"}).Draw(t, "priority"),
	}
	if withSelector {
		rule.PodSelector = &metav1.LabelSelector{MatchExpressions: rapid.SliceOfN(rapid.Custom(drawRequirement), 0, 3).Draw(t, "selector")}
	}
	return rule
}

func drawRequirement(t *rapid.T) metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{
		Key: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"),
		Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
			metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}).Draw(t, "operator"),
	}
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y"}), 1, 2, rapid.ID).Draw(t, "values")
	}
	return r
}

// everyPod returns one pod of each kind that the rules of drawRule can distinguish.
func everyPod(withLabels bool) []decision.Pod {
	values := []string{""} // The label is absent.
	if withLabels {
		values = append(values, "x", "y", "other")
	}
	var pods []decision.Pod
	for _, namespace := range []string{"a", "b", "other"} {
		for _, qos := range qosClasses {
			for _, kind := range []string{"Job", "Deployment", "Other"} {
				for _, priority := range []int32{-1, 0, 5} {
					for _, k := range values {
						for _, l := range values {
							pod := decision.Pod{Namespace: namespace, QOSClass: qos, Priority: priority, Labels: map[string]string{}}
							pod.Workload.Kind = kind
							if k != "" {
								pod.Labels["k"] = k
							}
							if l != "" {
								pod.Labels["l"] = l
							}
							pods = append(pods, pod)
						}
					}
				}
			}
		}
	}
	return pods
}
