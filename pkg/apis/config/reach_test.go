package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
)

func TestRulesThatNeverMatch(t *testing.T) {
	for name, test := range map[string]struct {
		// rules are the conditions, in order; wantNever lists the indexes of rules that never
		// match.
		rules     []string
		wantNever []int
	}{
		"after a rule for every pod":        {[]string{``, `namespaces: [a]`}, []int{1}},
		"before a rule for every pod":       {[]string{`namespaces: [a]`, ``}, nil},
		"the same":                          {[]string{`ownerKinds: [Job]`, `ownerKinds: [Job]`}, []int{1}},
		"some of the values":                {[]string{`namespaces: [a, b]`, `namespaces: [b]`}, []int{1}},
		"some other values":                 {[]string{`namespaces: [a, b]`, `namespaces: [b, c]`}, nil},
		"another condition":                 {[]string{`namespaces: [a]`, `ownerKinds: [Job]`}, nil},
		"one condition more":                {[]string{`namespaces: [a]`, "namespaces: [a]\nownerKinds: [Job]"}, []int{1}},
		"one condition less":                {[]string{"namespaces: [a]\nownerKinds: [Job]", `namespaces: [a]`}, nil},
		"covered by two rules together":     {[]string{`priorityClasses: [a]`, `priorityClasses: [b]`, `priorityClasses: [a, b]`}, []int{2}},
		"all three QoS classes":             {[]string{`qosClasses: [Guaranteed, BestEffort]`, `qosClasses: [Burstable]`, `namespaces: [a]`}, []int{2}},
		"two of three QoS classes":          {[]string{`qosClasses: [Guaranteed, BestEffort]`, `namespaces: [a]`}, nil},
		"higher priority":                   {[]string{`minPriority: 10`, `minPriority: 11`}, []int{1}},
		"lower priority":                    {[]string{`minPriority: 10`, `minPriority: 9`}, nil},
		"priority of 0 is not any":          {[]string{`minPriority: 0`, `namespaces: [a]`}, nil},
		"empty selector selects all":        {[]string{`podSelector: {}`, `namespaces: [a]`}, []int{1}},
		"more labels":                       {[]string{`podSelector: {matchLabels: {a: x}}`, `podSelector: {matchLabels: {a: x, b: z}}`}, []int{1}},
		"fewer labels":                      {[]string{`podSelector: {matchLabels: {a: x, b: z}}`, `podSelector: {matchLabels: {a: x}}`}, nil},
		"another value":                     {[]string{`podSelector: {matchLabels: {a: x}}`, `podSelector: {matchLabels: {a: z}}`}, nil},
		"in more":                           {[]string{sel("a In x, z"), `podSelector: {matchLabels: {a: x}}`}, []int{1}},
		"in fewer":                          {[]string{`podSelector: {matchLabels: {a: x}}`, sel("a In x, z")}, nil},
		"exists, then a value":              {[]string{sel("a Exists"), sel("a In x")}, []int{1}},
		"exists, then not a value":          {[]string{sel("a Exists"), sel("a NotIn x")}, nil},
		"not a value, then absent":          {[]string{sel("a NotIn x"), sel("a DoesNotExist")}, []int{1}},
		"not a value, then another":         {[]string{sel("a NotIn x"), sel("a In z")}, []int{1}},
		"not a value, then that":            {[]string{sel("a NotIn x"), sel("a In x, z")}, nil},
		"not a value, then not more":        {[]string{sel("a NotIn x"), sel("a NotIn x, z")}, []int{1}},
		"not two values, then not one":      {[]string{sel("a NotIn x, z"), sel("a NotIn x")}, nil},
		"in, then not in":                   {[]string{sel("a In x"), sel("a NotIn z")}, nil},
		"absent, then absent":               {[]string{sel("a DoesNotExist"), sel("a DoesNotExist")}, []int{1}},
		"absent, then exists":               {[]string{sel("a DoesNotExist"), sel("a Exists")}, nil},
		"selector contradicts itself":       {[]string{`podSelector: {matchLabels: {a: x}, matchExpressions: [{key: a, operator: NotIn, values: [x]}]}`}, []int{0}},
		"two values at once":                {[]string{`podSelector: {matchLabels: {a: x}, matchExpressions: [{key: a, operator: In, values: [z, w]}]}`}, []int{0}},
		"exists and does not":               {[]string{sel("a Exists", "a DoesNotExist")}, []int{0}},
		"both exclusions count":             {[]string{sel("a NotIn x, z"), sel("a NotIn x", "a NotIn z")}, []int{1}},
		"what an exclusion leaves":          {[]string{sel("a In z"), sel("a NotIn x", "a In x, z")}, []int{1}},
		"two exclusions leave other values": {[]string{sel("a NotIn x", "a NotIn z")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			args := "rules:"
			for i, conditions := range test.rules {
				args += fmt.Sprintf("\n- name: r%d\n  minOnDemand: 1\n  %s", i, strings.ReplaceAll(conditions, "\n", "\n  "))
			}
			var want []mistake
			for _, i := range test.wantNever {
				want = append(want, mistake{field.ErrorTypeInvalid, fmt.Sprintf("rules[%d]", i), fmt.Sprintf("r%d", i)})
			}
			got := mistakesOf(decodeArgs(t, replicaSafety, args).(*config.ReplicaSafetyArgs).Validate(nil))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
		})
	}
}

// sel returns a podSelector from requirements such as "a In x, z".
func sel(requirements ...string) string {
	var expressions []string
	for _, requirement := range requirements {
		fields := strings.SplitN(requirement+" ", " ", 3)
		expressions = append(expressions, fmt.Sprintf("{key: %s, operator: %s, values: [%s]}", fields[0], fields[1], fields[2]))
	}
	return "podSelector: {matchExpressions: [" + strings.Join(expressions, ", ") + "]}"
}
