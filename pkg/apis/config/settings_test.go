package config_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision/decisiontest"
)

// TestFieldsOfSettings compares the fields of WorkloadSettings with the table in package decision.
func TestFieldsOfSettings(t *testing.T) {
	var fields, settings []string
	for structField := range reflect.TypeFor[config.WorkloadSettings]().Fields() {
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	for _, setting := range decision.Settings {
		if !setting.OnlyRules {
			settings = append(settings, setting.Name)
		}
	}
	slices.Sort(fields)
	slices.Sort(settings)
	if diff := cmp.Diff(settings, fields); diff != "" {
		t.Errorf("decision.Settings and the fields of WorkloadSettings (-settings +fields):\n%s", diff)
	}
}

// The profile and a rule can set every setting, alone. An invalid value is an error that names the
// field and the valid values.
func TestEverySetting(t *testing.T) {
	for i := range decision.Settings {
		setting := &decision.Settings[i]
		t.Run(setting.Name, func(t *testing.T) {
			defaults, _, err := (&config.ReplicaSafetyArgs{}).Policy()
			if err != nil {
				t.Fatal(err)
			}
			value := decisiontest.OtherValue(setting, defaults.Defaults)
			overrides, _ := decision.ParseOverrides(map[string]string{setting.Name: value})
			want := overrides.Apply(defaults.Defaults)
			for place, format := range map[string]string{"": "%s: %s", "rules[0].": "rules: [{name: a, %s: %s}]"} {
				if place == "" && setting.OnlyRules {
					continue // TestMistakesInDecoding has the error
				}
				args := decodeArgs(t, replicaSafety, fmt.Sprintf(format, setting.Name, value)).(*config.ReplicaSafetyArgs)
				policy, _, err := args.Policy()
				if err != nil {
					t.Errorf("%s%s: %v", place, setting.Name, err)
					continue
				}
				if got, _ := policy.Settings(&decision.Pod{}); got.String() != want.String() {
					t.Errorf("%s%s: %s gives %s, want %s", place, setting.Name, value, got, want)
				}
				visited := 0
				requireUnshared(t, place+setting.Name, reflect.ValueOf(args), reflect.ValueOf(args.DeepCopy()), &visited)

				invalid := decodeArgs(t, replicaSafety, fmt.Sprintf(format, setting.Name, "junk")).(*config.ReplicaSafetyArgs)
				errs := invalid.Validate(field.NewPath("args"))
				wantErrs := []fieldErr{{field.ErrorTypeInvalid, "args." + place + setting.Name, "junk"}}
				if diff := cmp.Diff(wantErrs, fieldErrsOf(errs)); diff != "" {
					t.Errorf("errors (-want +got):\n%s", diff)
				} else if !strings.Contains(errs[0].Detail, "expected ") {
					t.Errorf("%v does not name what was expected", errs[0])
				}
			}
		})
	}
}
