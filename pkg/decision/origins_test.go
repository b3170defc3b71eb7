package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestExplain(t *testing.T) {
	two, half, all := decision.Count(2), decision.Percent(50), decision.Percent(100)
	anyway, soon, stricter, ignore, none := decision.ScheduleAnyway, time.Minute, decision.StricterOnly, decision.IgnoreExemptions, decision.NeverOverflow
	protect := true
	onPod := map[string]string{spot.MinOnDemandAnnotation: "1", spot.FallbackAfterAnnotation: "never", spot.RolloutReliefAnnotation: "10s"}
	onOwner := map[string]string{spot.MinOnDemandAnnotation: "0", spot.ProtectAnnotation: "false"}
	base := decision.Policy{Defaults: decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second}}
	withRules := base
	withRules.Rules = []decision.Rule{
		{Name: "other", Namespaces: []string{"other"}, Overrides: decision.Overrides{MinOnDemand: &all}},
		{Name: "shop", Overrides: decision.Overrides{MinOnDemand: &two, MaxPerPool: &half, WhenUnsatisfiable: &anyway, FallbackAfter: &soon, RolloutRelief: &soon, Overflow: &none,
			Exemptions: &ignore, Protect: &protect, DisruptionLimit: new(3), OnDisruptionLimit: new(decision.PreferOnDemand)}},
	}
	strict := base
	strict.Rules = []decision.Rule{{Name: "strict", Annotations: &stricter}}
	ignoring := base
	ignoring.Annotations = decision.IgnoreAnnotations
	from := func(change func(*decision.Origins)) decision.Origins {
		const profile = "the profile"
		o := decision.Origins{
			MinOnDemand: profile, MaxPerPool: profile, WhenUnsatisfiable: profile, FallbackAfter: profile, RolloutRelief: profile,
			Overflow: profile, Exemptions: profile, Protect: "the default",
			DisruptionLimit: profile, OnDisruptionLimit: profile,
		}
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		policy decision.Policy
		pod    decision.Pod
		want   decision.Origins
	}{
		"the profile":           {base, decision.Pod{}, from(func(o *decision.Origins) {})},
		"a Job":                 {base, decision.Pod{Workload: decision.Workload{Batch: decision.Retriable}}, from(func(o *decision.Origins) { o.MinOnDemand = "the default of Jobs that retry" })},
		"a Job without retries": {base, decision.Pod{Workload: decision.Workload{Batch: decision.NotRetriable}}, from(func(o *decision.Origins) { o.MinOnDemand = "the default of Jobs without retries" })},
		"the first rule that matches": {withRules, decision.Pod{Workload: decision.Workload{Batch: decision.Retriable}},
			decision.Origins{
				MinOnDemand: `rule "shop"`, MaxPerPool: `rule "shop"`, WhenUnsatisfiable: `rule "shop"`, FallbackAfter: `rule "shop"`,
				RolloutRelief: `rule "shop"`, Overflow: `rule "shop"`, Exemptions: `rule "shop"`, Protect: `rule "shop"`,
				DisruptionLimit: `rule "shop"`, OnDisruptionLimit: `rule "shop"`,
			}},
		"the owner before the pod, the pod before the rule": {withRules, decision.Pod{Annotations: onPod, Workload: decision.Workload{Kind: "Deployment", Annotations: onOwner}},
			decision.Origins{
				MinOnDemand: "annotation spot-aware-scheduler.io/min-on-demand on the Deployment", MaxPerPool: `rule "shop"`, WhenUnsatisfiable: `rule "shop"`,
				FallbackAfter: "annotation spot-aware-scheduler.io/fallback-after on the pod",
				RolloutRelief: "annotation spot-aware-scheduler.io/rollout-relief on the pod", Overflow: `rule "shop"`, Exemptions: `rule "shop"`,
				Protect: "annotation spot-aware-scheduler.io/protect on the Deployment", DisruptionLimit: `rule "shop"`, OnDisruptionLimit: `rule "shop"`,
			}},
		"not stricter": {strict, decision.Pod{Annotations: onPod, Workload: decision.Workload{Kind: "Deployment", Annotations: onOwner, Desired: 3}},
			from(func(o *decision.Origins) {
				o.MinOnDemand = "annotation spot-aware-scheduler.io/min-on-demand on the pod"
				o.FallbackAfter = "annotation spot-aware-scheduler.io/fallback-after on the pod"
				o.Overruled = []string{
					"annotation spot-aware-scheduler.io/min-on-demand on the Deployment: not stricter than the policy (annotationPolicy StricterOnly)",
					"annotation spot-aware-scheduler.io/protect on the Deployment: not stricter than the policy (annotationPolicy StricterOnly)",
					"annotation spot-aware-scheduler.io/rollout-relief on the pod: not stricter than the policy (annotationPolicy StricterOnly)",
				}
			})},
		"not read": {ignoring, decision.Pod{Annotations: map[string]string{spot.MinOnDemandAnnotation: "0", spot.RolloutReliefAnnotation: "1s"}, Workload: decision.Workload{Kind: "Deployment"}},
			from(func(o *decision.Origins) {
				o.Overruled = []string{
					"annotation spot-aware-scheduler.io/min-on-demand on the pod: annotationPolicy Ignore",
					"annotation spot-aware-scheduler.io/rollout-relief on the pod: annotationPolicy Ignore",
				}
			})},
		"invalid": {base, decision.Pod{Annotations: map[string]string{spot.MinOnDemandAnnotation: "many"}}, from(func(o *decision.Origins) {})},
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
