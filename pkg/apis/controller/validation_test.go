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
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const head = "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"

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
  breaker: {maxPercent: 100, minNodes: 1}
  advisory: {enabled: true, timeLimit: 10s, pause: 1m}
drain: {assist: false, cordons: true}
migration: {surgeTimeout: 3m, evictableOwners: [Shard.example.com]}
limits:
  movesPerHour: 0
  movesPerHourPerNamespace: 2
  movesPerHourPerWorkload: 1
  reasons: {heal: 0, return-to-spot: 5}
  schedules: [{schedule: "0 9 * * mon-fri", duration: 8h}]
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
gating: {enabled: true, labels: [eks.amazonaws.com/capacityType], spotLabel: "", nodeStartup: 10s, provisionForReturn: false, healRunning: false, webhook: {bindAddress: ":9443"}}
costs: {priceFile: prices.csv}
`

func TestRead(t *testing.T) {
	shipped, err := os.ReadFile("../../../config/controller-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	duration := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	asIs := func(*SpotControllerConfiguration) {}
	for name, test := range map[string]struct {
		file   string
		change func(*SpotControllerConfiguration) // of the defaults
	}{
		"no settings": {head, asIs},
		"as shipped": {string(shipped), func(c *SpotControllerConfiguration) {
			c.Interruption.NamespaceSelector, c.Rebalance.NamespaceSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{} // select all
		}},
		"nulls": {head + "dryRun: null\ninterruption: null\nrebalance: {maxMoves: null, calmPeriod: null}\ngating: {labels: null, spotLabel: null}\n", asIs},
		"all settings": {every, func(c *SpotControllerConfiguration) {
			*c = SpotControllerConfiguration{
				DryRun: true, RequestsPerSecond: 7, Concurrency: 3, LeaderElection: LeaderElection{LeaseDuration: duration(time.Minute)},
				Metrics: Server{BindAddress: "127.0.0.1:0"}, Health: Server{BindAddress: "[::1]:1"},
				Interruption: Interruption{
					Enabled: true, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}},
					DefaultNotice: duration(30 * time.Second), NotReadyAfter: duration(25 * time.Second),
					Breaker:  Breaker{MaxPercent: 100, MinNodes: 1},
					Advisory: Advisory{Enabled: true, TimeLimit: duration(10 * time.Second), Pause: duration(time.Minute)},
				},
				Drain:     Drain{Cordons: true},
				Migration: Migration{SurgeTimeout: duration(3 * time.Minute), EvictableOwners: []string{"Shard.example.com"}},
				Limits: Limits{
					MovesPerHourPerNamespace: 2, MovesPerHourPerWorkload: 1, Reasons: map[string]int32{"heal": 0, "return-to-spot": 5},
					Schedules: []Schedule{{"0 9 * * mon-fri", duration(8 * time.Hour)}},
				},
				Rebalance: Rebalance{
					NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "In", Values: []string{"mail", "shop"}}}},
					LocalStorage:      MoveLocalStorage, MaxMoves: 1, CalmPeriod: duration(time.Millisecond),
				},
				Gating: Gating{
					Enabled: true, Labels: []string{"eks.amazonaws.com/capacityType"}, NodeStartup: duration(10 * time.Second),
					Webhook: Webhook{BindAddress: ":9443"},
				},
				Costs: Costs{PriceFile: "prices.csv"},
			}
		}},
		"no evictable owners": {head + "migration: {evictableOwners: []}\n", func(c *SpotControllerConfiguration) { c.Migration.EvictableOwners = []string{} }},
		"no price file":       {head + "costs: {priceFile: \"\"}\n", asIs},
		"interruption off":    {head + "interruption: {enabled: false}\n", func(c *SpotControllerConfiguration) { c.Interruption.Enabled = false }},
		"JSON": {`{"apiVersion": "spot-aware-scheduler.io/v1beta1", "kind": "SpotControllerConfiguration", "rebalance": {"maxMoves": 9}}`,
			func(c *SpotControllerConfiguration) { c.Rebalance.MaxMoves = 9 }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read([]byte(test.file))
			if err != nil {
				t.Fatal(err)
			}
			want := Default()
			test.change(want)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.EquateEmpty()); diff != "" {
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

// Errors of every kind are reported at once, each with its path, and with the value and what was
// expected if there is one.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Read([]byte(head + `
dryRun: maybe
concurrency: [5]
interruption: {defaultNotice: 120, advisory: {pause: soon}}
drain: 5
rebalance: {maxMoves: 0, heel: true}
`))
	got := strings.Split(strings.Trim(fmt.Sprint(err), "[]"), ", ")
	for i, want := range []string{
		`concurrency: Invalid value: "[5]": expected a whole number`,
		`drain: Invalid value: "5": expected an object instead of a number`,
		`dryRun: Invalid value: "maybe": expected true or false`,
		`interruption.advisory.pause: Invalid value: "soon": expected a duration such as "30s"`,
		`interruption.defaultNotice: Invalid value: "120": expected a duration such as "30s"`,
		`rebalance.heel: Forbidden: unknown field "rebalance.heel"; expected each field of docs/reference/configuration.md at most once; for a file of another release see docs/upgrading.md`,
		`rebalance.maxMoves: Invalid value: 0: expected a whole number of 1 or more`,
	} {
		if i >= len(got) || got[i] != want {
			t.Errorf("error %d: want %s in\n%v", i, want, err)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d errors, want 7: %v", len(got), err)
	}
}

// Validation reports every error with its field.
func TestErrors(t *testing.T) {
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
gating: {enabled: on and on, labels: [a b, ""], spotLabel: /, nodeStartup: 9s, provisionForReturn: 1, healRunning: "yes"}
`, []string{
			"concurrency", "costs.priceFile", "deletionCosts.enabled", "dryRun", "gating.enabled", "gating.healRunning", "gating.labels[0]",
			"gating.labels[1]", "gating.nodeStartup", "gating.provisionForReturn", "gating.spotLabel", "health.bindAddress", "interruption.advisory.enabled", "interruption.advisory.pause",
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
		"a breaker of nothing":       {"interruption: {breaker: {maxPercent: 0, minNodes: 0}}", []string{"interruption.breaker.maxPercent", "interruption.breaker.minNodes"}},
		"a breaker of more than all": {"interruption: {breaker: {maxPercent: 101, minNodes: -1}}", []string{"interruption.breaker.maxPercent", "interruption.breaker.minNodes"}},
		"a breaker of a part":        {"interruption: {breaker: {maxPercent: 0.5, minNodes: 50%}}", []string{"interruption.breaker.maxPercent", "interruption.breaker.minNodes"}},
		"selectors": {`
interruption: {namespaceSelector: {matchLabels: {a b: c}, matchExpressions: [{key: a, operator: Is}]}}
rebalance: {namespaceSelector: {matchLabels: {a: "b c"}}}
`, []string{
			"interruption.namespaceSelector.matchExpressions[0].operator", "interruption.namespaceSelector.matchLabels",
			"rebalance.namespaceSelector.matchLabels",
		}},
		"limits": {`
limits: {movesPerHour: 2001, movesPerHourPerNamespace: -1, movesPerHourPerWorkload: 1.5, reasons: {heal: -1, deadline: 5, heel: 1}, schedules: 5}
`, []string{
			"limits.movesPerHour", "limits.movesPerHourPerNamespace", "limits.movesPerHourPerWorkload", "limits.reasons[deadline]",
			"limits.reasons[heal]", "limits.reasons[heel]", "limits.schedules",
		}},
		"schedules": {`
limits:
  schedules:
  - {schedule: "0 9 * * mon-fri", duration: 59s}
  - {schedule: "0 0 30 2 *", duration: 1h} # no such date
  - {schedule: "0 9 * *", duration: 1h}
  - {schedule: "@every 1h", duration: 10m}
  - {schedule: "TZ=Europe/Berlin 0 9 * * *", duration: 1h}
  - {schedule: "0 * * * *", duration: 1h}
  - {duration: 1h}
  - {schedule: "0 0 * * *", duration: 25h}
  - {schedule: "0 0 * * mon-fri", duration: 24h} # ends on Saturday
`, []string{
			"limits.schedules[0].duration", "limits.schedules[1].schedule", "limits.schedules[2].schedule", "limits.schedules[3].schedule",
			"limits.schedules[4].schedule", "limits.schedules[5].duration", "limits.schedules[6].schedule", "limits.schedules[7].duration",
		}},
		"gating without labels":              {"gating: {enabled: true, labels: []}", []string{"gating.labels"}},
		"a lease of a second":                {"leaderElection: {leaseDuration: 1s}", []string{"leaderElection.leaseDuration"}},
		"half a request":                     {"requestsPerSecond: 0.5", []string{"requestsPerSecond"}},
		"advisory without interruption":      {"interruption: {enabled: false, advisory: {enabled: true}}", []string{"interruption.advisory.enabled"}},
		"metrics and health on one address":  {`health: {bindAddress: ":8443"}`, []string{"health.bindAddress"}},
		"webhook and metrics on one address": {`gating: {webhook: {bindAddress: ":8443"}}`, []string{"gating.webhook.bindAddress"}},
		"webhook and health on one address":  {`gating: {webhook: {bindAddress: ":8081"}}`, []string{"gating.webhook.bindAddress"}},
		"a webhook without a port":           {`gating: {webhook: {bindAddress: localhost}}`, []string{"gating.webhook.bindAddress"}},
		"an address without a port":          {"metrics: {bindAddress: localhost}", []string{"metrics.bindAddress"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(head + test.file))
			var list utilerrors.Aggregate
			if !errors.As(err, &list) {
				t.Fatalf("Read: %v, want a list of errors", err)
			}
			var got []string
			for _, err := range list.Errors() {
				var fieldErr *field.Error
				if !errors.As(err, &fieldErr) || fieldErr.Type != field.ErrorTypeInvalid || fieldErr.Detail == "" {
					t.Errorf("%v: want an invalid value with the expected format", err)
					continue
				}
				got = append(got, fieldErr.Field)
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
