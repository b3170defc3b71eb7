package decision_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision/decisiontest"
)

// Every setting has its own name and, if any, its own annotation, and overrides only itself.
func TestSettingsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for i := range decision.Settings {
		setting := &decision.Settings[i]
		for _, key := range []string{setting.Name, setting.Annotation} {
			if key != "" && seen[key] {
				t.Errorf("%s twice", key)
			}
			seen[key] = true
		}
		settings := overrides(t, setting.Name, decisiontest.OtherValue(setting, decision.WorkloadSettings{})).Apply(decision.WorkloadSettings{})
		for _, other := range decision.Settings {
			if changed := other.Text(settings) != other.Text(decision.WorkloadSettings{}); changed != (other.Name == setting.Name) {
				t.Errorf("%s changes %s: %t", setting.Name, other.Name, changed)
			}
		}
	}
}

// Users copy the examples from error messages.
func TestExamplesAreValid(t *testing.T) {
	found := 0
	for i := range decision.Settings {
		for _, value := range decisiontest.Examples(&decision.Settings[i]) {
			found++
			overrides(t, decision.Settings[i].Name, value)
		}
	}
	if found < 10 {
		t.Errorf("found %d examples, expected at least 10", found)
	}
}

// The profile, a rule, and an annotation of the pod or its owner can set every setting, and Explain
// names the source. An invalid annotation is reported.
func TestSourcesOfEverySetting(t *testing.T) {
	policy := newCluster().policy
	for i := range decision.Settings {
		setting := &decision.Settings[i]
		value := decisiontest.OtherValue(setting, policy.Defaults)
		want := map[string]string{}
		for _, other := range decision.Settings {
			want[other.Name] = "the profile"
		}
		want["protect"] = "the default" // the profile does not have it
		check := func(name, source string, policy decision.Policy, pod, owner map[string]string) {
			t.Helper()
			settings, origins, invalid := policy.Explain(&decision.Pod{
				Annotations: pod, Workload: decision.Workload{Kind: "Deployment", Desired: 3, Annotations: owner},
			})
			want := want
			if source != "" {
				want = mapWith(want, setting.Name, source)
			}
			requireEqual(t, setting.Name+" of "+name, want, origins.Sources)
			wantSettings := policy.Defaults
			if source != "" {
				wantSettings = overrides(t, setting.Name, value).Apply(wantSettings)
			}
			requireEqual(t, setting.Name+" of "+name, wantSettings.String(), settings.String())
			if len(invalid) > 0 {
				t.Errorf("%s of %s: %v", setting.Name, name, invalid)
			}
		}
		check("nothing", "", policy, nil, nil)
		ruled := policy
		ruled.Rules = []decision.Rule{{Name: "r", Overrides: overrides(t, setting.Name, value)}}
		check("a rule", `rule "r"`, ruled, nil, nil)
		if setting.Annotation == "" {
			continue
		}
		annotations := map[string]string{setting.Annotation: value}
		check("the pod", "annotation "+setting.Annotation+" on the pod", policy, annotations, nil)
		check("the owner", "annotation "+setting.Annotation+" on the Deployment", policy, nil, annotations)

		invalidPod := &decision.Pod{Annotations: map[string]string{setting.Annotation: "junk"}}
		_, invalid := policy.Settings(invalidPod)
		requireEqual(t, setting.Annotation+" with an invalid value", []decision.InvalidAnnotation{
			{Object: "pod", Key: setting.Annotation, Value: "junk", Expected: "expected " + setting.Values},
		}, invalid)
	}
}

// The text of settings contains every setting with an effect, in the order of the table.
func TestTextOfSettings(t *testing.T) {
	base := decision.WorkloadSettings{DisruptionLimit: 3} // with it, all settings have an effect
	for i := range decision.Settings {
		setting := &decision.Settings[i]
		settings := overrides(t, setting.Name, decisiontest.OtherValue(setting, base)).Apply(base)
		if text, word := settings.String(), setting.Name+"="+setting.Text(settings); !strings.Contains(text, word) && setting.Applies(settings, settings.DisruptionLimit > 0) {
			t.Errorf("%s does not contain %s", text, word)
		}
	}
	for name, test := range map[string]struct {
		settings decision.WorkloadSettings
		want     string
	}{
		"the least": {
			decision.WorkloadSettings{FallbackAfter: decision.Never, RolloutRelief: decision.Never},
			"minOnDemand=0 maxPerPool=no cap whenUnsatisfiable=DoNotSchedule fallbackAfter=never rolloutRelief=never overflow=Allow exemptions=Allow protect=false",
		},
		"the most": {
			decision.WorkloadSettings{
				MinOnDemand: decision.Percent(30), MaxPerPool: new(decision.Count(2)), WhenUnsatisfiable: decision.ScheduleAnyway, FallbackAfter: time.Minute,
				RolloutRelief: 30 * time.Second, Overflow: decision.NeverOverflow, Exemptions: decision.IgnoreExemptions,
			},
			"minOnDemand=30% maxPerPool=2 whenUnsatisfiable=ScheduleAnyway fallbackAfter=1m rolloutRelief=30s overflow=Never exemptions=Ignore protect=false",
		},
		"a disruption limit": {
			decision.WorkloadSettings{FallbackAfter: decision.Never, DisruptionLimit: 3, Disruptions: 1},
			"fallbackAfter=never protect=false disruptionLimit=3 onDisruptionLimit=RequireOnDemand disruptions=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The rest of the text follows each word of want.
			rest := " " + test.settings.String() + " "
			for word := range strings.FieldsSeq(test.want) {
				_, after, found := strings.Cut(rest, " "+word+" ")
				if !found {
					t.Fatalf("got %s, want %s with %s in this order", test.settings, test.want, word)
				}
				rest = " " + after
			}
			if limited := strings.Contains(test.settings.String(), "isruption"); limited != (test.settings.DisruptionLimit > 0) {
				t.Errorf("got %s, want settings of disruptions only with a limit", test.settings)
			}
		})
	}
}

// requireEqual compares the text of values.
func requireEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if want, got := fmt.Sprintf("%v", want), fmt.Sprintf("%v", got); want != got {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// mapWith returns a copy of m with another value of key.
func mapWith(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	m[key] = value
	return m
}
