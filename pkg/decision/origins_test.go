package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestExplain(t *testing.T) {
	two, half, all := decision.Count(2), decision.Percent(50), decision.Percent(100)
	anyway, soon, stricter := decision.ScheduleAnyway, time.Minute, decision.StricterOnly
	onPod := map[string]string{decision.MinOnDemandAnnotation: "1", decision.FallbackAfterAnnotation: "never"}
	onOwner := map[string]string{decision.MinOnDemandAnnotation: "0"}
	base := decision.Policy{Defaults: decision.Settings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}}
	ruled := base
	ruled.Rules = []decision.Rule{
		{Name: "other", Namespaces: []string{"other"}, Overrides: decision.Overrides{MinOnDemand: &all}},
		{Name: "shop", Overrides: decision.Overrides{MinOnDemand: &two, MaxPerPool: &half, WhenUnsatisfiable: &anyway, FallbackAfter: &soon}},
	}
	strict := base
	strict.Rules = []decision.Rule{{Name: "strict", Annotations: &stricter}}
	deaf := base
	deaf.Annotations = decision.IgnoreAnnotations
	const profile = "the profile"
	for name, test := range map[string]struct {
		policy decision.Policy
		pod    decision.Pod
		want   decision.Origins
	}{
		"the profile":      {base, decision.Pod{}, decision.Origins{profile, profile, profile, profile, nil}},
		"a Job":            {base, decision.Pod{Workload: decision.Workload{Batch: decision.Retriable}}, decision.Origins{"the default of Jobs that retry", profile, profile, profile, nil}},
		"a Job that fails": {base, decision.Pod{Workload: decision.Workload{Batch: decision.NotRetriable}}, decision.Origins{"the default of Jobs that one lost pod fails", profile, profile, profile, nil}},
		"the first rule that matches": {ruled, decision.Pod{Workload: decision.Workload{Batch: decision.Retriable}},
			decision.Origins{`rule "shop"`, `rule "shop"`, `rule "shop"`, `rule "shop"`, nil}},
		"the owner before the pod, the pod before the rule": {ruled, decision.Pod{Annotations: onPod, Workload: decision.Workload{Kind: "Deployment", Annotations: onOwner}},
			decision.Origins{"annotation spot-aware-scheduler.io/min-on-demand on the Deployment", `rule "shop"`, `rule "shop"`,
				"annotation spot-aware-scheduler.io/fallback-after on the pod", nil}},
		"not stricter": {strict, decision.Pod{Annotations: onPod, Workload: decision.Workload{Kind: "Deployment", Annotations: onOwner, Desired: 3}},
			decision.Origins{"annotation spot-aware-scheduler.io/min-on-demand on the pod", profile, profile,
				"annotation spot-aware-scheduler.io/fallback-after on the pod",
				[]string{"annotation spot-aware-scheduler.io/min-on-demand on the Deployment: annotationPolicy StricterOnly lets it only be stricter"}}},
		"not read": {deaf, decision.Pod{Annotations: onOwner, Workload: decision.Workload{Kind: "Deployment"}},
			decision.Origins{profile, profile, profile, profile, []string{"annotation spot-aware-scheduler.io/min-on-demand on the pod: annotationPolicy Ignore"}}},
		"invalid": {base, decision.Pod{Annotations: map[string]string{decision.MinOnDemandAnnotation: "many"}}, decision.Origins{profile, profile, profile, profile, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			settings, origins, invalid := test.policy.Explain(&test.pod)
			if diff := cmp.Diff(test.want, origins); diff != "" {
				t.Errorf("origins (-want +got):\n%s", diff)
			}
			wantSettings, wantInvalid := test.policy.Settings(&test.pod)
			if settings.String() != wantSettings.String() || len(invalid) != len(wantInvalid) {
				t.Errorf("explains %s (%d invalid), and Settings says %s (%d)", settings, len(invalid), wantSettings, len(wantInvalid))
			}
		})
	}
}
