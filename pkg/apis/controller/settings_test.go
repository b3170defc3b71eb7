package controller

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const head = "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"

var defaults = Settings{
	RequestsPerSecond: 200, Concurrency: 50, LeaseDuration: 15 * time.Second, MetricsAddress: ":8443", HealthAddress: ":8081",
	Interruption: true, DefaultNotice: 2 * time.Minute, NotReadyAfter: 40 * time.Second, DeleteAtDeadline: true,
	AdvisoryLimit: 30 * time.Minute, AdvisoryPause: time.Hour, DrainAssist: true, SurgeTimeout: 2 * time.Minute,
	Heal: true, MakeRoom: true, ReturnToSpot: true, MaxMoves: 5, PauseAfterInterruption: 5 * time.Minute, CalmPeriod: 10 * time.Minute,
	GatingLabels: []string{"karpenter.sh/capacity-type"}, GatingSpotLabel: "karpenter.sh/capacity-type", NodeStartup: 3 * time.Minute,
	BuyForReturn: true, HealRunning: true,
	DeletionCosts: true, EvictableOwners: []schema.GroupKind{
		{Group: "core.strimzi.io", Kind: "StrimziPodSet"}, {Group: "postgresql.cnpg.io", Kind: "Cluster"},
		{Group: "apps.kruise.io", Kind: "CloneSet"}, {Group: "apps.kruise.io", Kind: "StatefulSet"},
	},
}

// every is a configuration in which no value is the default.
const every = head + `
dryRun: true
requestsPerSecond: 7
concurrency: 3
leaderElection: {leaseDuration: 1m}
metrics: {bindAddress: "127.0.0.1:0"}
health: {bindAddress: "[::1]:1"}
interruption:
  enabled: true
  namespaceSelector: {matchLabels: {team: shop}}
  defaultNotice: 30s
  notReadyAfter: 25s
  deleteAtDeadline: false
  advisory: {enabled: true, timeLimit: 10s, pause: 1m}
drain: {assist: false, cordons: true, evictionRequests: true}
migration: {surgeTimeout: 3m, evictableOwners: [Shard.example.com]}
rebalance:
  namespaceSelector: {matchExpressions: [{key: team, operator: In, values: [mail, shop]}]}
  heal: false
  makeRoom: false
  returnToSpot: false
  localStorage: Move
  maxMoves: 1
  pauseAfterInterruption: 0s
  calmPeriod: 1ms
deletionCosts: {enabled: false}
gating: {enabled: true, labels: [eks.amazonaws.com/capacityType], spotLabel: "", nodeStartup: 10s, buyForReturn: false, healRunning: false}
costs: {priceFile: prices.csv}
`

func parsed(selector string) labels.Selector {
	s, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	return s
}

func TestRead(t *testing.T) {
	shipped, err := os.ReadFile("../../../config/controller-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file string
		want Settings
	}{
		"no settings": {head, defaults},
		"as shipped":  {string(shipped), defaults},
		"nulls":       {head + "dryRun: null\ninterruption: null\n", defaults},
		"all settings": {every, Settings{
			DryRun: true, RequestsPerSecond: 7, Concurrency: 3, LeaseDuration: time.Minute, MetricsAddress: "127.0.0.1:0", HealthAddress: "[::1]:1",
			Interruption: true, DefaultNotice: 30 * time.Second, NotReadyAfter: 25 * time.Second, Advisory: true,
			AdvisoryLimit: 10 * time.Second, AdvisoryPause: time.Minute, DrainCordons: true, EvictionRequests: true, SurgeTimeout: 3 * time.Minute, MaxMoves: 1, CalmPeriod: time.Millisecond, MoveLocalStorage: true,
			EvictableOwners: []schema.GroupKind{{Group: "example.com", Kind: "Shard"}},
			Gating:          true, GatingLabels: []string{"eks.amazonaws.com/capacityType"}, NodeStartup: 10 * time.Second,
			PriceFile:              "prices.csv",
			InterruptionNamespaces: parsed("team=shop"), RebalanceNamespaces: parsed("team in (mail,shop)"),
		}},
		"no evictable owners":       {head + "migration: {evictableOwners: []}\n", func() Settings { s := defaults; s.EvictableOwners = nil; return s }()},
		"selectors that select all": {head + "interruption: {namespaceSelector: {}}\nrebalance: {namespaceSelector: {matchLabels: {}}}\n", defaults},
		"interruption off":          {head + "interruption: {enabled: false}\n", func() Settings { s := defaults; s.Interruption = false; return s }()},
		"JSON": {`{"apiVersion": "spot-aware-scheduler.io/v1beta1", "kind": "SpotControllerConfiguration", "rebalance": {"maxMoves": 9}}`,
			func() Settings { s := defaults; s.MaxMoves = 9; return s }()},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read([]byte(test.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

// The shipped file contains every setting, so that it is a complete reference.
func TestShippedFileIsComplete(t *testing.T) {
	shipped, err := os.ReadFile("../../../config/controller-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	var visit func(reflect.Type)
	visit = func(config reflect.Type) {
		for i := range config.NumField() {
			name, _, _ := strings.Cut(config.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(shipped), name+":") {
				missing = append(missing, name)
			}
			if f := config.Field(i).Type; f.Kind() == reflect.Struct && f.PkgPath() == config.PkgPath() {
				visit(f)
			}
		}
	}
	visit(reflect.TypeFor[SpotControllerConfiguration]())
	if len(missing) > 0 {
		t.Errorf("config/controller-config.yaml does not contain %v", missing)
	}
}

// Validation reports every error with its field.
func TestMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"all at once": {`
dryRun: maybe
requestsPerSecond: 0
concurrency: -1
leaderElection: {leaseDuration: 2500ms}
metrics: {bindAddress: 8443}
health: {bindAddress: ":70000"}
interruption:
  enabled: 1
  defaultNotice: 0s
  notReadyAfter: soon
  deleteAtDeadline: "no"
  advisory: {enabled: [true], timeLimit: -1m, pause: 5}
migration: {surgeTimeout: "", evictableOwners: [CloneSet, clonesets.apps.kruise.io, CloneSet.Apps, ".io", "", {kind: CloneSet}, 5, A.b]}
rebalance:
  heal: "True"
  makeRoom: {}
  returnToSpot: 0
  localStorage: move
  maxMoves: 10%
  pauseAfterInterruption: 1
  calmPeriod: -1s
deletionCosts: {enabled: yes please}
costs: {priceFile: prices.txt}
gating: {enabled: on and on, labels: [a b, ""], spotLabel: /, nodeStartup: 9s, buyForReturn: 1, healRunning: "yes"}
`, []string{
			"concurrency", "costs.priceFile", "deletionCosts.enabled", "dryRun", "gating.buyForReturn", "gating.enabled", "gating.healRunning", "gating.labels[0]",
			"gating.labels[1]", "gating.nodeStartup", "gating.spotLabel", "health.bindAddress", "interruption.advisory.enabled", "interruption.advisory.pause",
			"interruption.advisory.timeLimit", "interruption.defaultNotice", "interruption.deleteAtDeadline", "interruption.enabled",
			"interruption.notReadyAfter", "leaderElection.leaseDuration", "metrics.bindAddress",
			"migration.evictableOwners[0]", "migration.evictableOwners[1]", "migration.evictableOwners[2]", "migration.evictableOwners[3]",
			"migration.evictableOwners[4]", "migration.evictableOwners[5]", "migration.evictableOwners[6]",
			"migration.surgeTimeout", "rebalance.calmPeriod",
			"rebalance.heal", "rebalance.localStorage", "rebalance.makeRoom", "rebalance.maxMoves", "rebalance.pauseAfterInterruption", "rebalance.returnToSpot",
			"requestsPerSecond",
		}},
		"durations that are too short": {`
interruption: {defaultNotice: 9999ms, notReadyAfter: 19999ms, advisory: {timeLimit: 9999ms, pause: 59999ms}}
migration: {surgeTimeout: 4999ms}
`, []string{
			"interruption.advisory.pause", "interruption.advisory.timeLimit", "interruption.defaultNotice", "interruption.notReadyAfter",
			"migration.surgeTimeout",
		}},
		"selectors": {`
interruption: {namespaceSelector: {matchLabels: {a b: c}, matchExpressions: [{key: a, operator: Is}]}}
rebalance: {namespaceSelector: {matchLabels: {a: "b c"}}}
`, []string{
			"interruption.namespaceSelector.matchExpressions[0].operator", "interruption.namespaceSelector.matchLabels",
			"rebalance.namespaceSelector.matchLabels",
		}},
		"gating without labels":             {"gating: {enabled: true, labels: []}", []string{"gating.labels"}},
		"a lease of a second":               {"leaderElection: {leaseDuration: 1s}", []string{"leaderElection.leaseDuration"}},
		"half a request":                    {"requestsPerSecond: 0.5", []string{"requestsPerSecond"}},
		"advisory without interruption":     {"interruption: {enabled: false, advisory: {enabled: true}}", []string{"interruption.advisory.enabled"}},
		"metrics and health on one address": {`health: {bindAddress: ":8443"}`, []string{"health.bindAddress"}},
		"an address without a port":         {"metrics: {bindAddress: localhost}", []string{"metrics.bindAddress"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(head + test.file))
			var list utilerrors.Aggregate
			if !errors.As(err, &list) {
				t.Fatalf("Read: %v, want a list of mistakes", err)
			}
			var got []string
			for _, err := range list.Errors() {
				var mistake *field.Error
				if !errors.As(err, &mistake) || mistake.Type != field.ErrorTypeInvalid || mistake.Detail == "" {
					t.Errorf("%v: want an invalid value with the expected format", err)
					continue
				}
				got = append(got, mistake.Field)
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

// Strict decoding rejects unknown content, and the error names the location.
func TestStrictDecoding(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"unknown fields":        {head + "speed: 1\nrebalance: {heel: true}\n", []string{`unknown field "speed"`, `unknown field "rebalance.heel"`}},
		"another case":          {head + "dryrun: true\n", []string{`unknown field "dryrun"`}},
		"a field twice":         {head + "dryRun: true\ndryRun: false\n", []string{`"dryRun" already set`}},
		"a number for a struct": {head + "rebalance: 5\n", []string{"rebalance"}},
		"a list for a struct":   {head + "interruption: {advisory: []}\n", []string{"interruption.advisory"}},
		"an unknown selector":   {head + "rebalance: {namespaceSelector: {matchNames: [a]}}\n", []string{`unknown field "rebalance.namespaceSelector.matchNames"`}},
		"advice":                {head + "dryRun: true\nnotices: {}\n", []string{`unknown field "notices"`, "docs/reference/configuration.md", "docs/upgrading.md"}},
		"another kind": {strings.Replace(head, "Spot", "Spit", 1),
			[]string{`kind: Unsupported value: "SpitControllerConfiguration": supported values: "SpotControllerConfiguration"`}},
		"another version": {strings.Replace(head, "v1beta1", "v1alpha1", 1),
			[]string{`apiVersion: Unsupported value: "spot-aware-scheduler.io/v1alpha1": supported values: "spot-aware-scheduler.io/v1beta1"`}},
		"another group": {strings.Replace(head, "spot-aware-scheduler.io/", "example.com/", 1), []string{`apiVersion: Unsupported value: "example.com/v1beta1"`}},
		"no version":    {"kind: SpotControllerConfiguration\n", []string{`apiVersion: Unsupported value: ""`}},
		"no kind":       {"dryRun: true\n", []string{`kind: Unsupported value: ""`, `apiVersion: Unsupported value: ""`}},
		"nothing":       {"", []string{`kind: Unsupported value: ""`}},
		"no YAML":       {"{", []string{"yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(test.file))
			for _, want := range test.want {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("Read: %v, want an error with %q", err, want)
				}
			}
		})
	}
}

// A second document, which the decoder ignores, is an error.
func TestSecondDocument(t *testing.T) {
	const header = "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"
	for _, text := range []string{header + "---\n" + header + "dryRun: true\n", header + "---\nnonsense: {unknown: field}\n", "---\n---\n" + header} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), "one YAML document") {
			t.Errorf("%q: error %v, want one that names the problem", text, err)
		}
	}
	if s, err := Read([]byte("# comment\n---\n" + header + "dryRun: true\n---\n")); err != nil || !s.DryRun {
		t.Errorf("one document: error %v, dryRun %v; want none and true", err, s != nil && s.DryRun)
	}
}
