package decision_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

var comparable = cmp.Comparer(func(a, b decision.Quantity) bool { return a == b })

func TestStricterOnly(t *testing.T) {
	base := decision.WorkloadSettings{MinOnDemand: decision.Percent(30), MaxPerPool: new(decision.Count(3)), FallbackAfter: time.Minute, RolloutRelief: time.Minute}
	never := base
	never.Overflow = decision.NeverOverflow
	limited := base
	limited.DisruptionLimit, limited.OnDisruptionLimit = 3, decision.PreferOnDemand
	protected := base
	protected.Protect = true
	loose := decision.WorkloadSettings{WhenUnsatisfiable: decision.ScheduleAnyway, FallbackAfter: decision.Never, RolloutRelief: decision.Never}
	tests := map[string]struct {
		defaults    decision.WorkloadSettings
		key, value  string
		wantApplied bool
	}{
		"a lower count":                           {base, spot.MinOnDemandAnnotation, "2", false},
		"an equal count":                          {base, spot.MinOnDemandAnnotation, "3", true},
		"a higher count":                          {base, spot.MinOnDemandAnnotation, "4", true},
		"a lower percentage":                      {base, spot.MinOnDemandAnnotation, "20%", false},
		"a higher percentage":                     {base, spot.MinOnDemandAnnotation, "31%", true},
		"a wider cap":                             {base, spot.MaxPerPoolAnnotation, "4", false},
		"a narrower cap":                          {base, spot.MaxPerPoolAnnotation, "2", true},
		"a wider cap in percent":                  {base, spot.MaxPerPoolAnnotation, "31%", false},
		"a cap instead of none":                   {loose, spot.MaxPerPoolAnnotation, "9", true},
		"anyway":                                  {base, spot.WhenUnsatisfiableAnnotation, "ScheduleAnyway", false},
		"DoNotSchedule instead of ScheduleAnyway": {loose, spot.WhenUnsatisfiableAnnotation, "DoNotSchedule", true},
		"an earlier fallback":                     {base, spot.FallbackAfterAnnotation, "59s", false},
		"a later fallback":                        {base, spot.FallbackAfterAnnotation, "61s", true},
		"never":                                   {base, spot.FallbackAfterAnnotation, "never", true},
		"a fallback instead of none":              {loose, spot.FallbackAfterAnnotation, "1000h", false},
		"protection":                              {base, spot.ProtectAnnotation, "true", true},
		"no protection":                           {protected, spot.ProtectAnnotation, "false", false},
		"an earlier relief":                       {base, spot.RolloutReliefAnnotation, "59s", false},
		"a later relief":                          {base, spot.RolloutReliefAnnotation, "61s", true},
		"no relief":                               {base, spot.RolloutReliefAnnotation, "never", true},
		"no overflow":                             {base, spot.OverflowAnnotation, "Never", true},
		"overflow":                                {never, spot.OverflowAnnotation, "Allow", false},
		"a relief instead of none":                {loose, spot.RolloutReliefAnnotation, "1000h", false},
		"a disruption limit instead of none":      {base, spot.DisruptionLimitAnnotation, "9", true},
		"a lower disruption limit":                {limited, spot.DisruptionLimitAnnotation, "2", true},
		"a higher disruption limit":               {limited, spot.DisruptionLimitAnnotation, "4", false},
		"no disruption limit":                     {limited, spot.DisruptionLimitAnnotation, "never", false},
		"required on-demand":                      {limited, spot.OnDisruptionLimitAnnotation, "RequireOnDemand", true},
		"preferred on-demand":                     {base, spot.OnDisruptionLimitAnnotation, "PreferOnDemand", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{test.key: test.value}
			for place, pod := range map[string]*decision.Pod{
				"pod":   {Annotations: annotations, Workload: decision.Workload{Desired: 10}},
				"owner": {Workload: decision.Workload{Desired: 10, Annotations: annotations}},
			} {
				policy := decision.Policy{Defaults: test.defaults, Annotations: decision.StricterOnly}
				got, _ := policy.Settings(pod)
				want := test.defaults
				if test.wantApplied {
					allowed := decision.Policy{Defaults: test.defaults}
					want, _ = allowed.Settings(pod)
				}
				if diff := cmp.Diff(want, got, comparable); diff != "" {
					t.Errorf("on the %s: settings (-want +got):\n%s", place, diff)
				}
			}
		})
	}
}

// overrides parses pairs of a name and a value.
func overrides(t *testing.T, pairs ...string) decision.Overrides {
	t.Helper()
	values := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		values[pair[0]] = pair[1]
	}
	o, invalid := decision.ParseOverrides(values)
	if len(invalid) > 0 {
		t.Fatalf("invalid settings: %v", invalid)
	}
	return o
}

func TestParseSettings(t *testing.T) {
	for name, test := range map[string]struct{ setting, value, want string }{ // want is empty if the value is invalid
		"cap":                         {"maxPerPool", "2", "2"},
		"cap in percent":              {"maxPerPool", "50%", "50%"},
		"cap of 0 percent, that is 1": {"maxPerPool", "0%", "0%"},
		"cap of 0":                    {"maxPerPool", "0", ""},
		"cap over 100 percent":        {"maxPerPool", "101%", ""},
		"DoNotSchedule":               {"whenUnsatisfiable", "DoNotSchedule", "DoNotSchedule"},
		"ScheduleAnyway":              {"whenUnsatisfiable", "ScheduleAnyway", "ScheduleAnyway"},
		"neither":                     {"whenUnsatisfiable", "donotschedule", ""},
		"duration":                    {"fallbackAfter", "1m30s", "1m30s"},
		"duration of 0":               {"fallbackAfter", "0s", "0s"},
		"never":                       {"fallbackAfter", "never", "never"},
		"negative duration":           {"fallbackAfter", "-1s", ""},
		"duration that equals Never":  {"fallbackAfter", "-1ns", ""},
		"duration without a unit":     {"fallbackAfter", "300", ""},
		"empty duration":              {"fallbackAfter", "", ""},
		"overflow":                    {"overflow", "Allow", "Allow"},
		"no overflow":                 {"overflow", "Never", "Never"},
		"overflow in another case":    {"overflow", "never", ""},
		"empty overflow":              {"overflow", "", ""},
		"exemptions allowed":          {"exemptions", "Allow", "Allow"},
		"exemptions ignored":          {"exemptions", "Ignore", "Ignore"},
		"exemptions in another case":  {"exemptions", "ignore", ""},
		"relief":                      {"rolloutRelief", "45s", "45s"},
		"relief of 0":                 {"rolloutRelief", "0s", "0s"},
		"no relief":                   {"rolloutRelief", "never", "never"},
		"negative relief":             {"rolloutRelief", "-1s", ""},
		"relief in another case":      {"rolloutRelief", "Never", ""},
		"limit":                       {"disruptionLimit", "3", "3"},
		"largest limit":               {"disruptionLimit", "100", "100"},
		"no limit":                    {"disruptionLimit", "never", "never"},
		"limit of 0":                  {"disruptionLimit", "0", ""},
		"negative limit":              {"disruptionLimit", "-1", ""},
		"limit over the largest":      {"disruptionLimit", "101", ""},
		"limit with a sign":           {"disruptionLimit", "+3", ""},
		"fraction as a limit":         {"disruptionLimit", "1.5", ""},
		"percentage as a limit":       {"disruptionLimit", "50%", ""},
		"empty limit":                 {"disruptionLimit", "", ""},
		"required at the limit":       {"onDisruptionLimit", "RequireOnDemand", "RequireOnDemand"},
		"preferred at the limit":      {"onDisruptionLimit", "PreferOnDemand", "PreferOnDemand"},
		"unknown at the limit":        {"onDisruptionLimit", "Require", ""},
		"protection":                  {"protect", "true", "true"},
		"protection as a number":      {"protect", "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, invalid := decision.ParseOverrides(map[string]string{test.setting: test.value, "other": "x"})
			if test.want == "" {
				want := []decision.InvalidAnnotation{{Key: test.setting, Value: test.value}}
				if diff := cmp.Diff(want, invalid, cmpopts.IgnoreFields(decision.InvalidAnnotation{}, "Expected")); diff != "" || !o.Empty() || invalid[0].Expected == "" {
					t.Errorf("invalid settings (-want +got):\n%s", diff)
				}
				return
			}
			settings := o.Apply(decision.WorkloadSettings{})
			i := slices.IndexFunc(decision.Settings, func(s decision.Setting) bool { return s.Name == test.setting })
			if got := decision.Settings[i].Text(settings); got != test.want || len(invalid) > 0 {
				t.Errorf("parsed %q as %q, %v; want %q", test.value, got, invalid, test.want)
			}
		})
	}
}

func TestParseDisruptions(t *testing.T) {
	for value, want := range map[string]int{"2": 2, "0": 0, "-2": -1, "9999999999": -1, "many": -1} {
		if got, err := decision.ParseDisruptions(value); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("parsed %q as %d, %v; want %d", value, got, err, want)
		}
	}
}

// TestInvalidAnnotationText pins the text that users read in events.
func TestInvalidAnnotationText(t *testing.T) {
	got := decision.InvalidAnnotation{Object: "Deployment", Key: spot.MinOnDemandAnnotation, Value: "3O%", Expected: "expected a number"}.String()
	want := `annotation spot-aware-scheduler.io/min-on-demand on the Deployment is ignored: invalid value "3O%": expected a number`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The API server rejects an event whose message is too long.
func TestInvalidAnnotationTruncatesLongValues(t *testing.T) {
	invalid := decision.InvalidAnnotation{Object: "pod", Key: spot.MinOnDemandAnnotation, Value: strings.Repeat("ä", 5000), Expected: "expected less"}
	text := invalid.String()
	if len(text) > 400 || !strings.Contains(text, strings.Repeat("ä", 64)+"…") || !strings.Contains(text, "expected less") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

func TestNeedsPriorityClass(t *testing.T) {
	least := int32(1)
	for name, test := range map[string]struct {
		rule           decision.Rule
		named, unnamed bool
	}{
		"neither":     {rule: decision.Rule{QOSClasses: []string{"Burstable"}}},
		"by class":    {rule: decision.Rule{PriorityClasses: []string{"high"}}, unnamed: true},
		"by priority": {rule: decision.Rule{MinPriority: &least}, named: true, unnamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &decision.Policy{Rules: []decision.Rule{{}, test.rule}}
			if got := policy.NeedsPriorityClass("high"); got != test.named {
				t.Errorf("named class: %t, want %t", got, test.named)
			}
			if got := policy.NeedsPriorityClass(""); got != test.unnamed {
				t.Errorf("default class: %t, want %t", got, test.unnamed)
			}
		})
	}
}
