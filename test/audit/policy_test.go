package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// effectiveSettings are the settings of one subject.
type effectiveSettings struct {
	Floor, PoolCap int // PoolCap 0: none
	Anyway         bool
	FallbackAfter  time.Duration // 0: never
	Relief         time.Duration // 0: the default of 30 s
	NoOverflow     bool
}

func TestResolve(t *testing.T) {
	for name, test := range map[string]struct {
		args    string
		kind    string // default Deployment
		desired int
		fragile bool
		// disruptions is the annotation of a Job.
		disruptions string
		owner       map[string]string
		pod         func(*corev1.Pod)
		want        effectiveSettings
	}{
		"defaults":                            {desired: 3, want: effectiveSettings{Floor: 1}},
		"no replicas":                         {desired: 0, want: effectiveSettings{Floor: 0}},
		"percent rounds up":                   {args: "minOnDemand: 30%", desired: 4, want: effectiveSettings{Floor: 2}},
		"floor is at most desired":            {args: "minOnDemand: 5", desired: 4, want: effectiveSettings{Floor: 4}},
		"owner's annotation takes precedence": {args: "minOnDemand: 1", desired: 9, owner: minOnDemand("2"), pod: annotated(minOnDemand("3")), want: effectiveSettings{Floor: 2}},
		"bad annotation is skipped":           {args: "minOnDemand: 1", desired: 9, owner: minOnDemand("3O%"), pod: annotated(minOnDemand("3")), want: effectiveSettings{Floor: 3}},
		"more than 100% is bad":               {desired: 9, owner: minOnDemand("130%"), want: effectiveSettings{Floor: 1}},
		"annotations: Ignore":                 {args: "annotationPolicy: Ignore", desired: 9, owner: minOnDemand("2"), want: effectiveSettings{Floor: 1}},
		"annotations: StricterOnly, up":       {args: "annotationPolicy: StricterOnly", desired: 9, owner: minOnDemand("2"), want: effectiveSettings{Floor: 2}},
		"annotations: StricterOnly, down": {args: "{annotationPolicy: StricterOnly, minOnDemand: 3}", desired: 9, owner: map[string]string{
			prefix + "min-on-demand": "2", prefix + "when-unsatisfiable": "ScheduleAnyway", prefix + "fallback-after": "1s", prefix + "max-per-pool": "3",
		}, want: effectiveSettings{Floor: 3, PoolCap: 3}},
		"overflow":               {args: "overflow: Never", desired: 3, want: effectiveSettings{Floor: 1, NoOverflow: true}},
		"overflow, by a rule":    {args: "{overflow: Never, rules: [{namespaces: [shop], overflow: Allow}]}", desired: 3, want: effectiveSettings{Floor: 1}},
		"overflow, bad":          {args: "overflow: Never", desired: 3, owner: map[string]string{prefix + "overflow": "allow"}, want: effectiveSettings{Floor: 1, NoOverflow: true}},
		"overflow, annotation":   {args: "overflow: Never", desired: 3, owner: map[string]string{prefix + "overflow": "Allow"}, want: effectiveSettings{Floor: 1}},
		"overflow, not stricter": {args: "{overflow: Never, annotationPolicy: StricterOnly}", desired: 3, owner: map[string]string{prefix + "overflow": "Allow"}, want: effectiveSettings{Floor: 1, NoOverflow: true}},
		"overflow, stricter on the pod": {args: "annotationPolicy: StricterOnly", desired: 3, owner: map[string]string{prefix + "overflow": "Allow"},
			pod: annotated(map[string]string{prefix + "overflow": "Never"}), want: effectiveSettings{Floor: 1, NoOverflow: true}},
		"another relief": {args: "rolloutRelief: 2m", desired: 3, want: effectiveSettings{Floor: 1, Relief: 2 * time.Minute}},
		"no relief, by a rule": {args: "{rules: [{namespaces: [shop], rolloutRelief: never}]}", desired: 3,
			want: effectiveSettings{Floor: 1, Relief: never}},
		"relief by an annotation": {desired: 3, owner: map[string]string{prefix + "rollout-relief": "1s"},
			want: effectiveSettings{Floor: 1, Relief: time.Second}},
		"relief, StricterOnly, sooner": {args: "annotationPolicy: StricterOnly", desired: 3, owner: map[string]string{prefix + "rollout-relief": "1s"},
			want: effectiveSettings{Floor: 1}},
		"relief, StricterOnly, later": {args: "annotationPolicy: StricterOnly", desired: 3, owner: map[string]string{prefix + "rollout-relief": "never"},
			want: effectiveSettings{Floor: 1, Relief: never}},
		"every annotation": {desired: 10, owner: map[string]string{
			prefix + "min-on-demand": "0", prefix + "when-unsatisfiable": "ScheduleAnyway", prefix + "fallback-after": "1s", prefix + "max-per-pool": "25%",
		}, want: effectiveSettings{PoolCap: 3, Anyway: true, FallbackAfter: time.Second}},
		"every field": {
			args:    "{minOnDemand: 50%, maxPerPool: 2, whenUnsatisfiable: ScheduleAnyway, fallbackAfter: 5m}",
			desired: 10, want: effectiveSettings{Floor: 5, PoolCap: 2, Anyway: true, FallbackAfter: 5 * time.Minute}},
		"first matching rule": {
			args:    "{fallbackAfter: 5m, rules: [{namespaces: [other], minOnDemand: 4}, {namespaces: [shop], minOnDemand: 5, fallbackAfter: never}, {minOnDemand: 6}]}",
			desired: 10, want: effectiveSettings{Floor: 5}},
		"rule by selector": {
			args:    "{rules: [{podSelector: {matchLabels: {app: web}}, minOnDemand: 5}]}",
			desired: 10, pod: func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }, want: effectiveSettings{Floor: 5}},
		"rule by another selector": {
			args:    "{rules: [{podSelector: {matchLabels: {app: web}}, minOnDemand: 5}]}",
			desired: 10, want: effectiveSettings{Floor: 1}},
		"rule by priority": {
			args:    "{rules: [{minPriority: 100, minOnDemand: 5}]}",
			desired: 10, pod: func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](100) }, want: effectiveSettings{Floor: 5}},
		"rule by a higher priority": {
			args:    "{rules: [{minPriority: 100, minOnDemand: 5}]}",
			desired: 10, pod: func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](99) }, want: effectiveSettings{Floor: 1}},
		"rule by class": {
			args:    "{rules: [{priorityClasses: [gold], qosClasses: [Guaranteed], minOnDemand: 5}]}",
			desired: 10, pod: func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Status.QOSClass = "gold", "Guaranteed" }, want: effectiveSettings{Floor: 5}},
		"rule by owner kind": {args: "{rules: [{ownerKinds: [StatefulSet], minOnDemand: 5}]}", kind: "StatefulSet", desired: 10, want: effectiveSettings{Floor: 5}},
		"rule that forbids annotations": {
			args:    "{rules: [{namespaces: [shop], minOnDemand: 5, annotationPolicy: Ignore}]}",
			desired: 10, owner: minOnDemand("0"), want: effectiveSettings{Floor: 5}},
		"Job":                               {args: "minOnDemand: 3", kind: "Job", desired: 10},
		"Job with a rule":                   {args: "{rules: [{ownerKinds: [Job], minOnDemand: 2}]}", kind: "Job", desired: 10, want: effectiveSettings{Floor: 2}},
		"Job, annotated":                    {kind: "Job", desired: 10, owner: minOnDemand("30%"), want: effectiveSettings{Floor: 3}},
		"Job, fragile":                      {kind: "Job", desired: 10, fragile: true, want: effectiveSettings{Floor: 10}},
		"Job at its limit":                  {args: "disruptionLimit: 2", kind: "Job", desired: 10, disruptions: "2", want: effectiveSettings{Floor: 10}},
		"Job below its limit":               {args: "disruptionLimit: 2", kind: "Job", desired: 10, disruptions: "1"},
		"Job that only prefers on-demand":   {args: "{disruptionLimit: 2, onDisruptionLimit: PreferOnDemand}", kind: "Job", desired: 10, disruptions: "2"},
		"pool cap is 1 or more, by percent": {args: "maxPerPool: 1%", desired: 10, want: effectiveSettings{Floor: 1, PoolCap: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
			if test.pod != nil {
				test.pod(pod)
			}
			if test.kind == "" {
				test.kind = "Deployment"
			}
			s, floor := policyOf(t, test.args).resolve(subject{
				pod: pod, kind: test.kind, annotations: policyAnnotations(test.owner), desired: test.desired, fragileJob: test.fragile, disruptions: test.disruptions,
			})
			got := effectiveSettings{Floor: floor, Anyway: s.anyway, NoOverflow: s.overflow == "Never"}
			if s.fallbackAfter != never {
				got.FallbackAfter = s.fallbackAfter
			}
			if s.rolloutRelief != 30*time.Second {
				got.Relief = s.rolloutRelief
			}
			if s.maxPerPool != nil {
				got.PoolCap = s.maxPerPool.count(test.desired)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func annotated(annotations map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = annotations }
}

func TestPolicyFromSchedulerConfig(t *testing.T) {
	config := `
profiles:
- schedulerName: other
  pluginConfig: [{name: ReplicaSafety, args: {minOnDemand: 9}}]
- schedulerName: spot-aware-scheduler
  pluginConfig:
  - {name: NodeAffinity, args: {x: y}}
  - {name: ReplicaSafety, args: {minOnDemand: 2, unlabeledNodes: Spot, labelGrace: 5s}}
`
	policy, err := PolicyFromSchedulerConfig([]byte(config))
	must(t, err)
	if diff := cmp.Diff([]any{2, true, 5 * time.Second}, []any{policy.defaults.minOnDemand.n, policy.unlabeledSpot, policy.labelGrace}); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if _, err := PolicyFromSchedulerConfig([]byte("profiles: [{schedulerName: spot-aware-scheduler}]")); err != nil {
		t.Errorf("a profile without arguments: %v", err)
	}
}

func TestBadPolicy(t *testing.T) {
	for name, test := range map[string]struct{ config, want string }{
		"no such profile": {"profiles: [{schedulerName: other}]", "profiles"},
		"not YAML":        {"profiles: [", "scheduler configuration"},
		"bad amount":      {profile("{minOnDemand: 130%}"), "minOnDemand"},
		"bad cap":         {profile("{maxPerPool: 0}"), "maxPerPool"},
		"bad word":        {profile("{whenUnsatisfiable: Maybe}"), "whenUnsatisfiable"},
		"bad duration":    {profile("{fallbackAfter: soon}"), "fallbackAfter"},
		"bad rule":        {profile("{rules: [{}, {minOnDemand: -1}]}"), "rules[1].minOnDemand"},
		"bad selector":    {profile("{rules: [{podSelector: {matchExpressions: [{key: a, operator: Like}]}}]}"), "rules[0].podSelector"},
		"bad signal":      {profile("{signals: [{class: drain}]}"), "signals[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := PolicyFromSchedulerConfig([]byte(test.config)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that names %s", err, test.want)
			}
		})
	}
}

func profile(args string) string {
	return "profiles: [{schedulerName: spot-aware-scheduler, pluginConfig: [{name: ReplicaSafety, args: " + args + "}]}]"
}

func TestOnlySpot(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	exists := func(key string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists}
	}
	term := func(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: requirements}
	}
	for name, test := range map[string]struct {
		selector map[string]string
		terms    []corev1.NodeSelectorTerm
		want     bool
	}{
		"nothing":                   {},
		"selector":                  {selector: map[string]string{"karpenter.sh/capacity-type": "spot"}, want: true},
		"selector for on-demand":    {selector: map[string]string{ownLabel: "on-demand"}},
		"every term":                {terms: []corev1.NodeSelectorTerm{term(in(ownLabel, "spot")), term(in("zone", "a"), in("cloud.google.com/gke-spot", "true"))}, want: true},
		"one term admits others":    {terms: []corev1.NodeSelectorTerm{term(in(ownLabel, "spot")), term(in("zone", "a"))}},
		"one value admits others":   {terms: []corev1.NodeSelectorTerm{term(in(ownLabel, "spot", "on-demand"))}},
		"presence that means spot":  {terms: []corev1.NodeSelectorTerm{term(exists("cluster.x-k8s.io/interruptible"))}, want: true},
		"presence that may not":     {terms: []corev1.NodeSelectorTerm{term(exists("scheduling.cast.ai/spot"))}},
		"empty terms admit no node": {terms: []corev1.NodeSelectorTerm{{}}},
		"not on-demand may be absent": {terms: []corev1.NodeSelectorTerm{term(corev1.NodeSelectorRequirement{
			Key: ownLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"on-demand"}})}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: test.selector}}
			if test.terms != nil {
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}}
			}
			if got := DefaultPolicy().onlySpot(pod); got != test.want {
				t.Errorf("onlySpot = %t, want %t", got, test.want)
			}
		})
	}
}

func TestFragileJob(t *testing.T) {
	disruption := func(action batchv1.PodFailurePolicyAction) *batchv1.PodFailurePolicy {
		return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: action,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}}}
	}
	for name, test := range map[string]struct {
		spec batchv1.JobSpec
		want bool
	}{
		"retries":            {batchv1.JobSpec{BackoffLimit: ptr.To[int32](1)}, false},
		"no retries":         {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0)}, true},
		"ignores disruption": {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), PodFailurePolicy: disruption(batchv1.PodFailurePolicyActionIgnore)}, false},
		"a policy that does not ignore disruption": {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), PodFailurePolicy: disruption(batchv1.PodFailurePolicyActionFailJob)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fragile(&batchv1.Job{Spec: test.spec}); got != test.want {
				t.Errorf("fragile = %t, want %t", got, test.want)
			}
		})
	}
}
