package config_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Arguments with every field set.
const (
	everyReplicaSafetyArg = `
minOnDemand: 2
unlabeledNodes: Spot
maxPerPool: "50%"
whenUnsatisfiable: ScheduleAnyway
fallbackAfter: 5m
rolloutRelief: 1m
overflow: Never
exemptions: Ignore
disruptionLimit: 3
onDisruptionLimit: PreferOnDemand
rules:
- name: critical
  namespaces: [shop, bank]
  podSelector: {matchLabels: {tier: front}, matchExpressions: [{key: app, operator: In, values: [web, api]}]}
  priorityClasses: [high]
  minPriority: 1000
  qosClasses: [Guaranteed, Burstable]
  ownerKinds: [Deployment, Pod]
  minOnDemand: "100%"
  maxPerPool: 3
  whenUnsatisfiable: DoNotSchedule
  fallbackAfter: never
  rolloutRelief: never
  overflow: Allow
  exemptions: Allow
  disruptionLimit: never
  onDisruptionLimit: RequireOnDemand
  annotationPolicy: Ignore
- {name: rest, annotationPolicy: Allow}
labelGrace: 1m30s
gateTimeout: 1m
annotationPolicy: StricterOnly
capacityLabels:
- {key: example.com/life, spot: [spot, ""], onDemand: [regular]}
signals:
- {taint: example.com/gone, class: reclaim, notice: 2m}
- {taint: example.com/gone=soon, class: drain}
- {condition: Failing, class: advisory}
- {condition: Healthy=False, class: drain}
- {condition: Failing, mentions: disk, class: reclaim, onlySpot: true}
- {label: example.com/l=v, class: drain}
- {annotation: "example.com/a=any = text", class: drain}
`
	everySpotPreferenceArg = `
riskHalfLife: 30m
poolRisk:
- {instanceType: m6i.large, zone: a, risk: 0.25}
- {instanceType: m6i.large, zone: b, risk: 1}
`
)

// TestDefaults checks that the decoder applies SetDefaults. TestPolicyOfDefaults has the values.
func TestDefaults(t *testing.T) {
	safety := func(change func(*config.ReplicaSafetyArgs)) *config.ReplicaSafetyArgs {
		a := &config.ReplicaSafetyArgs{}
		a.SetDefaults()
		change(a)
		return a
	}
	asIs := func(*config.ReplicaSafetyArgs) {}
	for name, test := range map[string]struct {
		plugin, args string
		want         runtime.Object
	}{
		"no pluginConfig entry": {replicaSafety, "", safety(asIs)},
		"no arguments":          {replicaSafety, "null", safety(asIs)},
		"nulls":                 {replicaSafety, "{minOnDemand: null, overflow: null, labelGrace: null, fallbackAfter: null}", safety(asIs)},
		"set values are not defaulted": {replicaSafety, "{minOnDemand: 0, unlabeledNodes: Spot, labelGrace: 0s}", safety(func(a *config.ReplicaSafetyArgs) {
			a.MinOnDemand, a.UnlabeledNodes, a.LabelGrace = ptr.To(intstr.FromInt32(0)), ptr.To(config.Spot), ptr.To(duration(0))
		})},
		"no SpotPreferenceArgs":           {spotPreference, "", &config.SpotPreferenceArgs{RiskHalfLife: ptr.To(duration(time.Hour))}},
		"SpotPreferenceArgs that are set": {spotPreference, "riskHalfLife: 2h", &config.SpotPreferenceArgs{RiskHalfLife: ptr.To(duration(2 * time.Hour))}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, decodeArgs(t, test.plugin, test.args), ignoreInternals); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// ignoreInternals ignores TypeMeta, which the decoder removes and the defaults set, and errors in
// decoding.
var ignoreInternals = cmp.Options{
	cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.IgnoreUnexported(config.ReplicaSafetyArgs{}, config.SpotPreferenceArgs{}),
}

func TestPolicy(t *testing.T) {
	policy, signals, err := decodeArgs(t, replicaSafety, everyReplicaSafetyArg).(*config.ReplicaSafetyArgs).Policy()
	if err != nil {
		t.Fatal(err)
	}
	want := &decision.Policy{
		Defaults: decision.WorkloadSettings{
			MinOnDemand:       decision.Count(2),
			MaxPerPool:        ptr.To(decision.Percent(50)),
			WhenUnsatisfiable: decision.ScheduleAnyway,
			FallbackAfter:     5 * time.Minute,
			RolloutRelief:     time.Minute,
			Overflow:          decision.NeverOverflow,
			Exemptions:        decision.IgnoreExemptions,
			DisruptionLimit:   3,
			OnDisruptionLimit: decision.PreferOnDemand,
		},
		Rules: []decision.Rule{{
			Name:            "critical",
			Namespaces:      []string{"shop", "bank"},
			PriorityClasses: []string{"high"},
			MinPriority:     ptr.To[int32](1000),
			QOSClasses:      []string{"Guaranteed", "Burstable"},
			OwnerKinds:      []string{"Deployment", "Pod"},
			Overrides: clustertest.Overrides("minOnDemand", "100%", "maxPerPool", "3", "whenUnsatisfiable", "DoNotSchedule", "fallbackAfter", "never",
				"rolloutRelief", "never", "overflow", "Allow", "exemptions", "Allow", "disruptionLimit", "never", "onDisruptionLimit", "RequireOnDemand"),
			Annotations: ptr.To(decision.IgnoreAnnotations),
		}, {
			Name:        "rest",
			Annotations: ptr.To(decision.AllowAnnotations),
		}},
		Annotations:    decision.StricterOnly,
		UnlabeledNodes: decision.Spot,
		LabelGrace:     90 * time.Second,
		GateTimeout:    time.Minute,
		CapacityLabels: append(providers.CapacityLabels(),
			decision.CapacityLabel{Key: "example.com/life", Spot: []string{"spot", ""}, OnDemand: []string{"regular"}}),
	}
	if diff := cmp.Diff(want, policy, cmp.AllowUnexported(decision.Overrides{}, decision.Quantity{}), cmpopts.IgnoreFields(decision.Rule{}, "PodSelector")); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	wantSignals := append(providers.Signals(),
		providers.Signal{Kind: providers.TaintSignal, Key: "example.com/gone", Class: decision.Reclaim, Notice: 2 * time.Minute},
		providers.Signal{Kind: providers.TaintSignal, Key: "example.com/gone", Value: "soon", Class: decision.Drain},
		providers.Signal{Kind: providers.ConditionSignal, Key: "Failing", Value: "True", Class: decision.Advisory},
		providers.Signal{Kind: providers.ConditionSignal, Key: "Healthy", Value: "False", Class: decision.Drain},
		providers.Signal{Kind: providers.ConditionSignal, Key: "Failing", Value: "True", Mentions: "disk", Class: decision.Reclaim, OnlySpot: true},
		providers.Signal{Kind: providers.LabelSignal, Key: "example.com/l", Value: "v", Class: decision.Drain},
		providers.Signal{Kind: providers.AnnotationSignal, Key: "example.com/a", Value: "any = text", Class: decision.Drain},
	)
	if diff := cmp.Diff(wantSignals, signals); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}

	for labels, want := range map[string]bool{"tier=front,app=web": true, "tier=front,app=db": false, "app=web": false, "": false} {
		set := map[string]string{}
		for pair := range strings.SplitSeq(labels, ",") {
			key, value, _ := strings.Cut(pair, "=")
			set[key] = value
		}
		if got := policy.Rules[0].PodSelector(set); got != want {
			t.Errorf("podSelector on %q: %t, want %t", labels, got, want)
		}
	}
	if policy.Rules[1].PodSelector != nil {
		t.Error("a rule without podSelector has one")
	}
}

func TestPolicyOfDefaults(t *testing.T) {
	policy, signals, err := decodeArgs(t, replicaSafety, "").(*config.ReplicaSafetyArgs).Policy()
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{
		"minOnDemand": "1", "maxPerPool": "no cap", "whenUnsatisfiable": "DoNotSchedule", "fallbackAfter": "5m", "rolloutRelief": "30s",
		"overflow": "Allow", "exemptions": "Allow", "protect": "false", "disruptionLimit": "never", "onDisruptionLimit": "RequireOnDemand",
	}
	for _, setting := range decision.Settings {
		if want, got := defaults[setting.Name], setting.Text(policy.Defaults); want != "" && got != want {
			t.Errorf("%s is %s, want %s", setting.Name, got, want)
		}
		delete(defaults, setting.Name)
	}
	if len(defaults) > 0 {
		t.Errorf("no settings %v", defaults)
	}
	want := &decision.Policy{
		Defaults:       policy.Defaults,
		LabelGrace:     30 * time.Second,
		GateTimeout:    30 * time.Second,
		CapacityLabels: providers.CapacityLabels(),
	}
	compareQuantities := cmp.Comparer(func(a, b decision.Quantity) bool { return a == b })
	if diff := cmp.Diff(want, policy, compareQuantities); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(providers.Signals(), signals); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
}

func TestRisk(t *testing.T) {
	halfLife, poolRisk, err := decodeArgs(t, spotPreference, everySpotPreferenceArg).(*config.SpotPreferenceArgs).Risk()
	if err != nil {
		t.Fatal(err)
	}
	if halfLife != 30*time.Minute {
		t.Errorf("half-life %s, want 30m", halfLife)
	}
	want := map[decision.Pool]float64{
		{InstanceType: "m6i.large", Zone: "a"}: 0.25,
		{InstanceType: "m6i.large", Zone: "b"}: 1,
	}
	if diff := cmp.Diff(want, poolRisk); diff != "" {
		t.Errorf("pool risk (-want +got):\n%s", diff)
	}
}

// Arguments without defaults have the same meaning as with them.
func TestWithoutDefaults(t *testing.T) {
	policy, _, err := (&config.ReplicaSafetyArgs{}).Policy()
	if want := "minOnDemand=1"; err != nil || !strings.HasPrefix(policy.Defaults.String(), want) || policy.GateTimeout != 30*time.Second {
		t.Errorf("ReplicaSafetyArgs: %+v, error %v, want defaults", policy, err)
	}
	if halfLife, _, err := (&config.SpotPreferenceArgs{}).Risk(); err != nil || halfLife != time.Hour {
		t.Errorf("SpotPreferenceArgs: %s, error %v, want 1h", halfLife, err)
	}
}

// The scheduler can read its own output (--write-config-to), with the same meaning.
func TestRoundTrip(t *testing.T) {
	for plugin, args := range map[string]string{replicaSafety: everyReplicaSafetyArg, spotPreference: everySpotPreferenceArg} {
		t.Run(plugin, func(t *testing.T) {
			cfg, err := decode(file(plugin, args))
			if err != nil {
				t.Fatal(err)
			}
			yaml, _ := runtime.SerializerInfoForMediaType(schedulerscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
			var written bytes.Buffer
			if err := schedulerscheme.Codecs.EncoderForVersion(yaml.Serializer, kubescheduler.SchemeGroupVersion).Encode(cfg, &written); err != nil {
				t.Fatal(err)
			}
			again, err := decode(written.String())
			if err != nil {
				t.Fatalf("%v in\n%s", err, &written)
			}
			if diff := cmp.Diff(argsOf(t, cfg, plugin), argsOf(t, again, plugin), ignoreInternals); diff != "" {
				t.Errorf("arguments (-first +again):\n%s", diff)
			}
			for _, line := range map[string][]string{
				replicaSafety:  {"kind: ReplicaSafetyArgs", "minOnDemand: 2\n", "maxPerPool: 50%\n", "minPriority: 1000\n", "labelGrace: 1m30s\n", "fallbackAfter: never\n", "fallbackAfter: 5m0s\n"},
				spotPreference: {"kind: SpotPreferenceArgs", "risk: 0.25\n", "riskHalfLife: 30m0s\n"},
			}[plugin] {
				if !strings.Contains(written.String(), line) {
					t.Errorf("no %q in\n%s", line, &written)
				}
			}
		})
	}
}

// A copy is equal to the original and shares no mutable memory with it.
func TestDeepCopy(t *testing.T) {
	for plugin, args := range map[string]string{replicaSafety: everyReplicaSafetyArg, spotPreference: everySpotPreferenceArg} {
		original := decodeArgs(t, plugin, args)
		clone := original.DeepCopyObject()
		if diff := cmp.Diff(original, clone, ignoreInternals); diff != "" {
			t.Errorf("%s: copy (-original +copy):\n%s", plugin, diff)
		}
		visited := 0
		requireUnshared(t, plugin, reflect.ValueOf(original), reflect.ValueOf(clone), &visited)
		if visited == 0 {
			t.Errorf("%s: nothing compared", plugin)
		}
	}
}

// requireUnshared compares two equal values recursively. It reports pointers, slices and maps that
// both share, and counts the values it visited.
func requireUnshared(t *testing.T, path string, a, b reflect.Value, visited *int) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.IsNil() {
			return
		}
		*visited++
		if a.UnsafePointer() == b.UnsafePointer() {
			t.Errorf("%s is shared", path)
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		requireUnshared(t, path, a.Elem(), b.Elem(), visited)
	case reflect.Slice:
		for i := range a.Len() {
			requireUnshared(t, path+"[]", a.Index(i), b.Index(i), visited)
		}
	case reflect.Struct:
		for i := range a.NumField() {
			requireUnshared(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i), visited)
		}
	}
}
