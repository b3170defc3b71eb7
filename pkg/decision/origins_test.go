package decision_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestExplain(t *testing.T) {
	stricter := decision.StricterOnly
	onPod := map[string]string{spot.MinOnDemandAnnotation: "1", spot.FallbackAfterAnnotation: "never", spot.RolloutReliefAnnotation: "10s"}
	onOwner := map[string]string{spot.MinOnDemandAnnotation: "0", spot.ProtectAnnotation: "false"}
	base := decision.Policy{Defaults: decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second}}
	ofAll, _ := decision.ParseOverrides(unusual)
	withRules := base
	withRules.Rules = []decision.Rule{
		{Name: "other", Namespaces: []string{"other"}, Overrides: overrides(t, "minOnDemand", "100%")},
		{Name: "shop", Overrides: ofAll},
	}
	strict := base
	strict.Rules = []decision.Rule{{Name: "strict", Annotations: &stricter}}
	ignoring := base
	ignoring.Annotations = decision.IgnoreAnnotations
	// from returns the origins of settings that all have one source, except those in changed.
	from := func(source string, changed map[string]string, overruled ...string) decision.Origins {
		o := decision.Origins{Sources: map[string]string{}, Overruled: overruled}
		for _, setting := range decision.Settings {
			o.Sources[setting.Name] = source
		}
		if source == "the profile" {
			o.Sources["protect"] = "the default"
		}
		maps.Copy(o.Sources, changed)
		return o
	}
	for name, test := range map[string]struct {
		policy decision.Policy
		pod    decision.Pod
		want   decision.Origins
	}{
		"the profile": {base, decision.Pod{}, from("the profile", nil)},
		"a Job": {base, decision.Pod{Workload: decision.Workload{Batch: decision.Retriable}},
			from("the profile", map[string]string{"minOnDemand": "the default of Jobs that retry"})},
		"a Job without retries": {base, decision.Pod{Workload: decision.Workload{Batch: decision.NotRetriable}},
			from("the profile", map[string]string{"minOnDemand": "the default of Jobs without retries"})},
		"the first rule that matches": {withRules, decision.Pod{Workload: decision.Workload{Batch: decision.Retriable}}, from(`rule "shop"`, nil)},
		"the owner before the pod, the pod before the rule": {withRules, decision.Pod{Annotations: onPod, Workload: decision.Workload{Kind: "Deployment", Annotations: onOwner}},
			from(`rule "shop"`, map[string]string{
				"minOnDemand":   "annotation spot-aware-scheduler.io/min-on-demand on the Deployment",
				"fallbackAfter": "annotation spot-aware-scheduler.io/fallback-after on the pod",
				"rolloutRelief": "annotation spot-aware-scheduler.io/rollout-relief on the pod",
				"protect":       "annotation spot-aware-scheduler.io/protect on the Deployment",
			})},
		"not stricter": {strict, decision.Pod{Annotations: onPod, Workload: decision.Workload{Kind: "Deployment", Annotations: onOwner, Desired: 3}},
			from("the profile", map[string]string{
				"minOnDemand":   "annotation spot-aware-scheduler.io/min-on-demand on the pod",
				"fallbackAfter": "annotation spot-aware-scheduler.io/fallback-after on the pod",
			},
				"annotation spot-aware-scheduler.io/min-on-demand on the Deployment: not stricter than the policy (annotationPolicy StricterOnly)",
				"annotation spot-aware-scheduler.io/protect on the Deployment: not stricter than the policy (annotationPolicy StricterOnly)",
				"annotation spot-aware-scheduler.io/rollout-relief on the pod: not stricter than the policy (annotationPolicy StricterOnly)",
			)},
		"not read": {ignoring, decision.Pod{Annotations: map[string]string{spot.MinOnDemandAnnotation: "0", spot.RolloutReliefAnnotation: "1s"}, Workload: decision.Workload{Kind: "Deployment"}},
			from("the profile", nil,
				"annotation spot-aware-scheduler.io/min-on-demand on the pod: annotationPolicy Ignore",
				"annotation spot-aware-scheduler.io/rollout-relief on the pod: annotationPolicy Ignore",
			)},
		"invalid": {base, decision.Pod{Annotations: map[string]string{spot.MinOnDemandAnnotation: "many"}}, from("the profile", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			settings, origins, invalid := test.policy.Explain(&test.pod)
			if diff := cmp.Diff(test.want, origins); diff != "" {
				t.Errorf("origins (-want +got):\n%s", diff)
			}
			wantSettings, wantInvalid := test.policy.Settings(&test.pod)
			if settings.String() != wantSettings.String() || len(invalid) != len(wantInvalid) {
				t.Errorf("Explain returns %s (%d invalid), Settings returns %s (%d invalid)", settings, len(invalid), wantSettings, len(wantInvalid))
			}
		})
	}
}
