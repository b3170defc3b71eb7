package decision_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// annotated has all annotations, for pods and workloads.
var annotated = map[string]string{
	spot.MinOnDemandAnnotation:       "3",
	spot.MaxPerPoolAnnotation:        "50%",
	spot.WhenUnsatisfiableAnnotation: "ScheduleAnyway",
	spot.FallbackAfterAnnotation:     "1m30s",
	spot.RolloutReliefAnnotation:     "2m",
	spot.OverflowAnnotation:          "Never",
	spot.DisruptionLimitAnnotation:   "3",
	spot.OnDisruptionLimitAnnotation: "PreferOnDemand",
}

var comparable = cmp.Comparer(func(a, b decision.Quantity) bool { return a == b })

func TestSettingsPrecedence(t *testing.T) {
	defaults := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: 5 * time.Minute, RolloutRelief: 30 * time.Second}
	// No annotation sets Exemptions.
	fromAnnotations := decision.WorkloadSettings{
		MinOnDemand: decision.Count(3), MaxPerPool: new(decision.Percent(50)), WhenUnsatisfiable: decision.ScheduleAnyway, FallbackAfter: 90 * time.Second,
		RolloutRelief: 2 * time.Minute, Overflow: decision.NeverOverflow, DisruptionLimit: 3, OnDisruptionLimit: decision.PreferOnDemand,
	}
	rule := decision.Rule{Namespaces: []string{"shop"}, Overrides: decision.Overrides{
		MinOnDemand: new(decision.Count(2)), MaxPerPool: new(decision.Count(4)), WhenUnsatisfiable: new(decision.ScheduleAnyway), FallbackAfter: new(decision.Never),
		RolloutRelief: new(decision.Never), Overflow: new(decision.NeverOverflow), Exemptions: new(decision.IgnoreExemptions),
		DisruptionLimit: new(5), OnDisruptionLimit: new(decision.PreferOnDemand),
	}}
	fromRule := decision.WorkloadSettings{
		MinOnDemand: decision.Count(2), MaxPerPool: new(decision.Count(4)), WhenUnsatisfiable: decision.ScheduleAnyway, FallbackAfter: decision.Never,
		RolloutRelief: decision.Never, Overflow: decision.NeverOverflow, Exemptions: decision.IgnoreExemptions,
		DisruptionLimit: 5, OnDisruptionLimit: decision.PreferOnDemand,
	}
	with := func(s decision.WorkloadSettings, change func(*decision.WorkloadSettings)) decision.WorkloadSettings {
		change(&s)
		return s
	}
	ignored := func(s *decision.WorkloadSettings) { s.Exemptions = decision.IgnoreExemptions }
	tests := map[string]struct {
		policy      decision.Policy
		pod         decision.Pod
		want        decision.WorkloadSettings
		wantInvalid []decision.InvalidAnnotation
	}{
		"defaults":      {want: defaults},
		"rule":          {policy: decision.Policy{Rules: []decision.Rule{rule}}, pod: decision.Pod{Namespace: "shop"}, want: fromRule},
		"no rule":       {policy: decision.Policy{Rules: []decision.Rule{rule}}, pod: decision.Pod{Namespace: "other"}, want: defaults},
		"pod":           {pod: decision.Pod{Annotations: annotated}, want: fromAnnotations},
		"owner":         {pod: decision.Pod{Workload: decision.Workload{Annotations: annotated}}, want: fromAnnotations},
		"pod over rule": {policy: decision.Policy{Rules: []decision.Rule{rule}}, pod: decision.Pod{Namespace: "shop", Annotations: annotated}, want: with(fromAnnotations, ignored)},
		"owner over pod, each setting by itself": {
			pod: decision.Pod{
				Annotations: annotated,
				Workload:    decision.Workload{Annotations: map[string]string{spot.MinOnDemandAnnotation: "4", spot.FallbackAfterAnnotation: "never"}},
			},
			want: with(fromAnnotations, func(s *decision.WorkloadSettings) { s.MinOnDemand, s.FallbackAfter = decision.Count(4), decision.Never }),
		},
		"the first of two rules that match": {
			policy: decision.Policy{Rules: []decision.Rule{{}, rule}}, pod: decision.Pod{Namespace: "shop"}, want: defaults,
		},
		"Job": {
			pod:  decision.Pod{Workload: decision.Workload{Batch: decision.Retriable}},
			want: with(defaults, func(s *decision.WorkloadSettings) { s.MinOnDemand = decision.Count(0) }),
		},
		"Job without retries": {
			pod:  decision.Pod{Workload: decision.Workload{Batch: decision.NotRetriable}},
			want: with(defaults, func(s *decision.WorkloadSettings) { s.MinOnDemand = decision.Percent(100) }),
		},
		"Job under a rule": {
			policy: decision.Policy{Rules: []decision.Rule{rule}},
			pod:    decision.Pod{Namespace: "shop", Workload: decision.Workload{Batch: decision.Retriable}},
			want:   fromRule,
		},
		"annotations ignored": {
			policy: decision.Policy{Annotations: decision.IgnoreAnnotations},
			pod:    decision.Pod{Annotations: map[string]string{spot.MinOnDemandAnnotation: "junk"}, Workload: decision.Workload{Annotations: annotated}},
			want:   defaults,
		},
		"a rule ignores annotations": {
			policy: decision.Policy{Rules: []decision.Rule{{Annotations: new(decision.IgnoreAnnotations)}}},
			pod:    decision.Pod{Annotations: annotated},
			want:   defaults,
		},
		"a rule allows annotations": {
			policy: decision.Policy{Annotations: decision.IgnoreAnnotations, Rules: []decision.Rule{{Annotations: new(decision.AllowAnnotations)}}},
			pod:    decision.Pod{Annotations: annotated},
			want:   fromAnnotations,
		},
		"a rule without an annotation policy uses that of the profile": {
			policy: decision.Policy{Annotations: decision.IgnoreAnnotations, Rules: []decision.Rule{{}}},
			pod:    decision.Pod{Annotations: annotated},
			want:   defaults,
		},
		"invalid values do not override the next level": {
			policy: decision.Policy{Rules: []decision.Rule{rule}},
			pod: decision.Pod{
				Namespace:   "shop",
				Annotations: map[string]string{spot.MinOnDemandAnnotation: "5", spot.MaxPerPoolAnnotation: "0"},
				Workload: decision.Workload{Kind: "Deployment", Annotations: map[string]string{
					spot.MinOnDemandAnnotation: "130%", spot.WhenUnsatisfiableAnnotation: "scheduleAnyway", spot.FallbackAfterAnnotation: "-5s",
				}},
			},
			want: with(fromRule, func(s *decision.WorkloadSettings) { s.MinOnDemand = decision.Count(5) }),
			wantInvalid: []decision.InvalidAnnotation{
				{Object: "Deployment", Key: spot.MinOnDemandAnnotation, Value: "130%", Expected: "expected a percentage of at most 100%"},
				{Object: "Deployment", Key: spot.WhenUnsatisfiableAnnotation, Value: "scheduleAnyway", Expected: "expected DoNotSchedule or ScheduleAnyway"},
				{Object: "Deployment", Key: spot.FallbackAfterAnnotation, Value: "-5s", Expected: `expected a duration of 0 or more such as "5m", or "never"`},
				{Object: "pod", Key: spot.MaxPerPoolAnnotation, Value: "0", Expected: `expected a count of 1 or more such as "2", or a percentage from 0% to 100% such as "50%"`},
			},
		},
		"unknown annotations are ignored": {
			pod:  decision.Pod{Annotations: map[string]string{"spot-aware-scheduler.io/interruption-deadline": "junk", "min-on-demand": "9"}},
			want: defaults,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.policy.Defaults = defaults
			got, invalid := test.policy.Settings(&test.pod)
			if diff := cmp.Diff(test.want, got, comparable); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantInvalid, invalid); diff != "" {
				t.Errorf("invalid annotations (-want +got):\n%s", diff)
			}
		})
	}
}

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

// TestRuleConditions tests each condition alone, satisfied and not. A rule matches if its floor
// applies to the pod.
func TestRuleConditions(t *testing.T) {
	tests := map[string]struct {
		rule decision.Rule
		pod  decision.Pod
		want bool
	}{
		"no condition":         {want: true},
		"namespace":            {rule: decision.Rule{Namespaces: []string{"a", "b"}}, pod: decision.Pod{Namespace: "b"}, want: true},
		"other namespace":      {rule: decision.Rule{Namespaces: []string{"a", "b"}}, pod: decision.Pod{Namespace: "c"}},
		"priority class":       {rule: decision.Rule{PriorityClasses: []string{"gold"}}, pod: decision.Pod{PriorityClass: "gold"}, want: true},
		"no priority class":    {rule: decision.Rule{PriorityClasses: []string{"gold"}}},
		"priority at":          {rule: decision.Rule{MinPriority: new(int32(10))}, pod: decision.Pod{Priority: 10}, want: true},
		"priority below":       {rule: decision.Rule{MinPriority: new(int32(10))}, pod: decision.Pod{Priority: 9}},
		"priority of 0, below": {rule: decision.Rule{MinPriority: new(int32(0))}, pod: decision.Pod{Priority: -1}},
		"QoS class":            {rule: decision.Rule{QOSClasses: []string{"Guaranteed"}}, pod: decision.Pod{QOSClass: "Guaranteed"}, want: true},
		"other QoS class":      {rule: decision.Rule{QOSClasses: []string{"Guaranteed"}}, pod: decision.Pod{QOSClass: "BestEffort"}},
		"kind":                 {rule: decision.Rule{OwnerKinds: []string{"Job"}}, pod: decision.Pod{Workload: decision.Workload{Kind: "Job"}}, want: true},
		"other kind":           {rule: decision.Rule{OwnerKinds: []string{"Job"}}, pod: decision.Pod{Workload: decision.Workload{Kind: "Deployment"}}},
		"labels": {
			rule: decision.Rule{PodSelector: func(labels map[string]string) bool { return labels["app"] == "web" }},
			pod:  decision.Pod{Labels: map[string]string{"app": "web"}}, want: true,
		},
		"other labels": {rule: decision.Rule{PodSelector: func(labels map[string]string) bool { return labels["app"] == "web" }}},
		"one of two":   {rule: decision.Rule{Namespaces: []string{"a"}, MinPriority: new(int32(10))}, pod: decision.Pod{Namespace: "a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.rule.MinOnDemand = new(decision.Count(7))
			policy := decision.Policy{Rules: []decision.Rule{test.rule}}
			settings, _ := policy.Settings(&test.pod)
			if got := settings.MinOnDemand == decision.Count(7); got != test.want {
				t.Errorf("matches: %v, want %v", got, test.want)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	perPool := func(s string) (any, error) { return decision.ParseMaxPerPool(s) }
	anyway := func(s string) (any, error) { return decision.ParseWhenUnsatisfiable(s) }
	fallback := func(s string) (any, error) { return decision.ParseFallbackAfter(s) }
	overflow := func(s string) (any, error) { return decision.ParseOverflow(s) }
	exemptions := func(s string) (any, error) { return decision.ParseExemptions(s) }
	relief := func(s string) (any, error) { return decision.ParseRolloutRelief(s) }
	limit := func(s string) (any, error) { return decision.ParseDisruptionLimit(s) }
	onLimit := func(s string) (any, error) { return decision.ParseOnDisruptionLimit(s) }
	disruptions := func(s string) (any, error) { return decision.ParseDisruptions(s) }
	tests := map[string]struct {
		parse func(string) (any, error)
		value string
		want  any // nil if the value is invalid
	}{
		"cap":                         {perPool, "2", decision.Count(2)},
		"cap in percent":              {perPool, "50%", decision.Percent(50)},
		"cap of 0 percent, that is 1": {perPool, "0%", decision.Percent(0)},
		"cap of 0":                    {perPool, "0", nil},
		"cap over 100 percent":        {perPool, "101%", nil},
		"DoNotSchedule":               {anyway, "DoNotSchedule", decision.DoNotSchedule},
		"ScheduleAnyway":              {anyway, "ScheduleAnyway", decision.ScheduleAnyway},
		"neither":                     {anyway, "donotschedule", nil},
		"duration":                    {fallback, "1m30s", 90 * time.Second},
		"duration of 0":               {fallback, "0s", time.Duration(0)},
		"never":                       {fallback, "never", decision.Never},
		"negative duration":           {fallback, "-1s", nil},
		"duration that equals Never":  {fallback, "-1ns", nil},
		"duration without a unit":     {fallback, "300", nil},
		"empty duration":              {fallback, "", nil},
		"overflow":                    {overflow, "Allow", decision.AllowOverflow},
		"no overflow":                 {overflow, "Never", decision.NeverOverflow},
		"overflow in another case":    {overflow, "never", nil},
		"empty overflow":              {overflow, "", nil},
		"exemptions allowed":          {exemptions, "Allow", decision.AllowExemptions},
		"exemptions ignored":          {exemptions, "Ignore", decision.IgnoreExemptions},
		"exemptions in another case":  {exemptions, "ignore", nil},
		"relief":                      {relief, "45s", 45 * time.Second},
		"relief of 0":                 {relief, "0s", time.Duration(0)},
		"no relief":                   {relief, "never", decision.Never},
		"negative relief":             {relief, "-1s", nil},
		"relief in another case":      {relief, "Never", nil},
		"limit":                       {limit, "3", 3},
		"largest limit":               {limit, "100", 100},
		"no limit":                    {limit, "never", 0},
		"limit of 0":                  {limit, "0", nil},
		"negative limit":              {limit, "-1", nil},
		"limit over the largest":      {limit, "101", nil},
		"limit with a sign":           {limit, "+3", nil},
		"fraction as a limit":         {limit, "1.5", nil},
		"percentage as a limit":       {limit, "50%", nil},
		"empty limit":                 {limit, "", nil},
		"required at the limit":       {onLimit, "RequireOnDemand", decision.RequireOnDemand},
		"preferred at the limit":      {onLimit, "PreferOnDemand", decision.PreferOnDemand},
		"unknown at the limit":        {onLimit, "Require", nil},
		"disruptions":                 {disruptions, "2", 2},
		"no disruptions":              {disruptions, "0", 0},
		"negative disruptions":        {disruptions, "-2", nil},
		"too many disruptions":        {disruptions, "9999999999", nil},
		"garbage as disruptions":      {disruptions, "many", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.parse(test.value)
			if (err != nil) != (test.want == nil) || err == nil && got != test.want {
				t.Errorf("parsed %q as %v, %v; want %v", test.value, got, err, test.want)
			}
		})
	}
}

// TestMessages pins the texts that users read in events.
func TestMessages(t *testing.T) {
	tests := map[string]struct{ got, want string }{
		"invalid annotation": {
			got:  decision.InvalidAnnotation{Object: "Deployment", Key: spot.MinOnDemandAnnotation, Value: "3O%", Expected: "expected a number"}.String(),
			want: `annotation spot-aware-scheduler.io/min-on-demand on the Deployment is ignored: invalid value "3O%": expected a number`,
		},
		"settings, least": {
			got:  decision.WorkloadSettings{FallbackAfter: decision.Never, RolloutRelief: decision.Never}.String(),
			want: "minOnDemand=0 maxPerPool=none whenUnsatisfiable=DoNotSchedule fallbackAfter=never rolloutRelief=never overflow=Allow exemptions=Allow",
		},
		"settings, most": {
			got: decision.WorkloadSettings{
				MinOnDemand: decision.Percent(30), MaxPerPool: new(decision.Count(2)), WhenUnsatisfiable: decision.ScheduleAnyway, FallbackAfter: time.Minute,
				RolloutRelief: 30 * time.Second, Overflow: decision.NeverOverflow, Exemptions: decision.IgnoreExemptions,
			}.String(),
			want: "minOnDemand=30% maxPerPool=2 whenUnsatisfiable=ScheduleAnyway fallbackAfter=1m0s rolloutRelief=30s overflow=Never exemptions=Ignore",
		},
		"settings with a disruption limit": {
			got: decision.WorkloadSettings{FallbackAfter: decision.Never, RolloutRelief: decision.Never, DisruptionLimit: 3, Disruptions: 1}.String(),
			want: "minOnDemand=0 maxPerPool=none whenUnsatisfiable=DoNotSchedule fallbackAfter=never rolloutRelief=never overflow=Allow exemptions=Allow " +
				"disruptionLimit=3 onDisruptionLimit=RequireOnDemand disruptions=1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("got  %s\nwant %s", test.got, test.want)
			}
		})
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
