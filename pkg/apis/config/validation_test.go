package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

// The plugin names in profiles.
const (
	replicaSafety  = "ReplicaSafety"
	spotPreference = "SpotPreference"
)

// decode decodes a configuration file as the scheduler does.
func decode(file string) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	obj, _, err := schedulerscheme.Codecs.UniversalDecoder().Decode([]byte(file), nil, nil)
	if err != nil {
		return nil, err
	}
	return obj.(*schedulerconfig.KubeSchedulerConfiguration), nil
}

// file returns a configuration file with both plugins. One plugin has the given arguments (YAML;
// without arguments there is no pluginConfig entry).
func file(plugin, args string) string {
	text := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: spot-aware-scheduler
  plugins: {multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference}]}}
`
	if args != "" {
		text += fmt.Sprintf("  pluginConfig:\n  - name: %s\n    args:\n%s\n", plugin, indent(args))
	}
	return text
}

func indent(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}

// decodeArgs returns the arguments of a plugin as decoded by the scheduler.
func decodeArgs(t *testing.T, plugin, args string) runtime.Object {
	t.Helper()
	cfg, err := decode(file(plugin, args))
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return argsOf(t, cfg, plugin)
}

func argsOf(t *testing.T, cfg *schedulerconfig.KubeSchedulerConfiguration, plugin string) runtime.Object {
	t.Helper()
	for _, pluginConfig := range cfg.Profiles[0].PluginConfig {
		if pluginConfig.Name == plugin {
			return pluginConfig.Args
		}
	}
	t.Fatalf("no arguments for %s in %v", plugin, cfg.Profiles[0].PluginConfig)
	return nil
}

// fieldErr is a field.Error without its message: tests do not depend on the wording.
type fieldErr struct {
	Type         field.ErrorType
	Field, Value string
}

func fieldErrsOf(errs field.ErrorList) []fieldErr {
	var result []fieldErr
	for _, err := range errs {
		result = append(result, fieldErr{err.Type, err.Field, fmt.Sprint(err.BadValue)})
	}
	return result
}

func TestReplicaSafetyArgsErrors(t *testing.T) {
	const (
		invalid   = field.ErrorTypeInvalid
		required  = field.ErrorTypeRequired
		duplicate = field.ErrorTypeDuplicate
	)
	for name, test := range map[string]struct {
		args string
		want []fieldErr
	}{
		"nothing set":                  {`{}`, nil},
		"negative floor":               {`minOnDemand: -1`, []fieldErr{{invalid, "args.minOnDemand", "-1"}}},
		"floor over 100 percent":       {`minOnDemand: "130%"`, []fieldErr{{invalid, "args.minOnDemand", "130%"}}},
		"letter O in a percentage":     {`minOnDemand: "3O%"`, []fieldErr{{invalid, "args.minOnDemand", "3O%"}}},
		"fraction of a replica":        {`minOnDemand: 1.5`, []fieldErr{{invalid, "args.minOnDemand", "1.5"}}},
		"floor of another type":        {`minOnDemand: true`, []fieldErr{{invalid, "args.minOnDemand", "true"}}},
		"floor that is an object":      {`minOnDemand: {count: 1}`, []fieldErr{{invalid, "args.minOnDemand", `{"count":1}`}}},
		"floor that is empty":          {`minOnDemand: ""`, []fieldErr{{invalid, "args.minOnDemand", ""}}},
		"null is unset":                {`minOnDemand: null`, nil},
		"cap of 0":                     {`maxPerPool: 0`, []fieldErr{{invalid, "args.maxPerPool", "0"}}},
		"no time for the controller":   {`gateTimeout: 999ms`, []fieldErr{{invalid, "args.gateTimeout", "999ms"}}},
		"no gate timeout":              {`gateTimeout: never`, []fieldErr{{invalid, "args.gateTimeout", "never"}}},
		"negative fallback":            {`fallbackAfter: -5m`, []fieldErr{{invalid, "args.fallbackAfter", "-5m0s"}}},
		"fallback without a unit":      {`fallbackAfter: 5`, []fieldErr{{invalid, "args.fallbackAfter", "5"}}},
		"fallback that is no duration": {`fallbackAfter: soon`, []fieldErr{{invalid, "args.fallbackAfter", "soon"}}},
		"negative relief":              {`rolloutRelief: -30s`, []fieldErr{{invalid, "args.rolloutRelief", "-30s"}}},
		"relief without a unit":        {`rolloutRelief: 30`, []fieldErr{{invalid, "args.rolloutRelief", "30"}}},
		"relief that is no duration":   {`rolloutRelief: Never`, []fieldErr{{invalid, "args.rolloutRelief", "Never"}}},
		"relief that is empty":         {`rolloutRelief: ""`, []fieldErr{{invalid, "args.rolloutRelief", ""}}},
		"no relief":                    {`rolloutRelief: never`, nil},
		"relief of 0":                  {`rolloutRelief: 0s`, nil},
		"unknown overflow":             {`overflow: never`, []fieldErr{{invalid, "args.overflow", "never"}}},
		"overflow as a truth value":    {`overflow: true`, []fieldErr{{invalid, "args.overflow", "true"}}},
		"no overflow":                  {`overflow: Never`, nil},
		"unknown exemptions":           {`exemptions: Never`, []fieldErr{{invalid, "args.exemptions", "Never"}}},
		"exemptions as a truth value":  {`exemptions: false`, []fieldErr{{invalid, "args.exemptions", "false"}}},
		"exemptions ignored":           {`exemptions: Ignore`, nil},
		"disruption limit of 0":        {`disruptionLimit: 0`, []fieldErr{{invalid, "args.disruptionLimit", "0"}}},
		"negative disruption limit":    {`disruptionLimit: -1`, []fieldErr{{invalid, "args.disruptionLimit", "-1"}}},
		"disruption limit over 100":    {`disruptionLimit: 101`, []fieldErr{{invalid, "args.disruptionLimit", "101"}}},
		"fraction as disruption limit": {`disruptionLimit: 1.5`, []fieldErr{{invalid, "args.disruptionLimit", "1.5"}}},
		"no disruption limit":          {`disruptionLimit: never`, nil},
		"disruption limit":             {`{disruptionLimit: 3, onDisruptionLimit: PreferOnDemand}`, nil},
		"unknown onDisruptionLimit":    {`onDisruptionLimit: Require`, []fieldErr{{invalid, "args.onDisruptionLimit", "Require"}}},
		"negative grace":               {`labelGrace: -1s`, []fieldErr{{invalid, "args.labelGrace", "-1s"}}},
		"grace of never":               {`labelGrace: never`, []fieldErr{{invalid, "args.labelGrace", "never"}}},
		"unlabeled nodes as labels spell it": {`unlabeledNodes: on-demand`,
			[]fieldErr{{invalid, "args.unlabeledNodes", "on-demand"}}},
		"unknown whenUnsatisfiable": {`whenUnsatisfiable: Wait`, []fieldErr{{invalid, "args.whenUnsatisfiable", "Wait"}}},
		"unknown annotationPolicy":  {`annotationPolicy: Deny`, []fieldErr{{invalid, "args.annotationPolicy", "Deny"}}},
		"all errors at once": {"minOnDemand: -1\nlabelGrace: x\nrules: [{name: a, minOnDemand: x}]\nsignals: [{taint: a, class: x}]", []fieldErr{
			{invalid, "args.minOnDemand", "-1"},
			{invalid, "args.labelGrace", "x"},
			{invalid, "args.rules[0].minOnDemand", "x"},
			{invalid, "args.signals[0].class", "x"},
		}},

		"rule without a name": {`rules: [{minOnDemand: 1}]`, []fieldErr{{required, "args.rules[0].name", ""}}},
		"two rules of one name": {`rules: [{name: a, namespaces: [x], minOnDemand: 1}, {name: a, minOnDemand: 2}]`,
			[]fieldErr{{duplicate, "args.rules[1].name", "a"}}},
		"two rules with the same conditions": {
			`rules: [{name: a, namespaces: [x], minPriority: 1, minOnDemand: 1}, {name: b, minPriority: 1, ownerKinds: [], namespaces: [x], maxPerPool: 1}]`,
			[]fieldErr{{invalid, "args.rules[1]", "b"}}},
		"two rules with the same selector": {
			`rules: [{name: a, podSelector: {matchLabels: {a: b}}, minOnDemand: 1}, {name: b, podSelector: {matchLabels: {a: b}}, minOnDemand: 2}]`,
			[]fieldErr{{invalid, "args.rules[1]", "b"}}},
		"two rules without conditions": {`rules: [{name: a, minOnDemand: 1}, {name: b, minOnDemand: 2}]`, []fieldErr{{invalid, "args.rules[1]", "b"}}},
		"rules that differ in one condition": {
			`rules: [{name: a, namespaces: [x], minOnDemand: 1}, {name: b, namespaces: [x], minPriority: 1, minOnDemand: 1},
			{name: c, namespaces: [x], qosClasses: [Burstable], minOnDemand: 1}, {name: d, namespaces: [x], ownerKinds: [Job], minOnDemand: 1},
			{name: e, namespaces: [x], priorityClasses: [p], minOnDemand: 1}, {name: f, namespaces: [x], podSelector: {matchLabels: {a: b}}, minOnDemand: 1},
			{name: g, namespaces: [z], minOnDemand: 1}]`, nil},
		"rule that sets nothing": {`rules: [{name: a, namespaces: [x]}]`, []fieldErr{{required, "args.rules[0]", ""}}},
		"settings of a rule": {
			`rules: [{name: a, minOnDemand: "101%", maxPerPool: 0, whenUnsatisfiable: x, fallbackAfter: x, rolloutRelief: x, overflow: x, exemptions: x, disruptionLimit: x, onDisruptionLimit: x, annotationPolicy: x}]`,
			[]fieldErr{
				{invalid, "args.rules[0].minOnDemand", "101%"},
				{invalid, "args.rules[0].maxPerPool", "0"},
				{invalid, "args.rules[0].whenUnsatisfiable", "x"},
				{invalid, "args.rules[0].fallbackAfter", "x"},
				{invalid, "args.rules[0].rolloutRelief", "x"},
				{invalid, "args.rules[0].overflow", "x"},
				{invalid, "args.rules[0].exemptions", "x"},
				{invalid, "args.rules[0].disruptionLimit", "x"},
				{invalid, "args.rules[0].onDisruptionLimit", "x"},
				{invalid, "args.rules[0].annotationPolicy", "x"},
			}},
		"conditions of a rule": {
			`rules: [{name: a, minOnDemand: 1, minPriority: 1.5, namespaces: [team-*], priorityClasses: [High], qosClasses: [best-effort],
  ownerKinds: [deployment, DaemonSet, CronJob]}]`,
			[]fieldErr{
				{invalid, "args.rules[0].minPriority", "1.5"},
				{invalid, "args.rules[0].namespaces[0]", "team-*"},
				{invalid, "args.rules[0].priorityClasses[0]", "High"},
				{invalid, "args.rules[0].qosClasses[0]", "best-effort"},
				{invalid, "args.rules[0].ownerKinds[0]", "deployment"},
				{invalid, "args.rules[0].ownerKinds[1]", "DaemonSet"},
				{invalid, "args.rules[0].ownerKinds[2]", "CronJob"},
			}},
		"priority beyond int32":    {`rules: [{name: a, minOnDemand: 1, minPriority: 3000000000}]`, []fieldErr{{invalid, "args.rules[0].minPriority", "3000000000"}}},
		"namespace twice":          {`rules: [{name: a, minOnDemand: 1, namespaces: [x, x]}]`, []fieldErr{{duplicate, "args.rules[0].namespaces[1]", "x"}}},
		"selector with a bad key":  {`rules: [{name: a, minOnDemand: 1, podSelector: {matchLabels: {a b: c}}}]`, []fieldErr{{invalid, "args.rules[0].podSelector.matchLabels", "a b"}}},
		"selector with bad values": {`rules: [{name: a, minOnDemand: 1, podSelector: {matchExpressions: [{key: a, operator: In}]}}]`, []fieldErr{{required, "args.rules[0].podSelector.matchExpressions[0].values", ""}}},
		"selector with a bad operator": {`rules: [{name: a, minOnDemand: 1, podSelector: {matchExpressions: [{key: a, operator: Is}]}}]`,
			[]fieldErr{{invalid, "args.rules[0].podSelector.matchExpressions[0].operator", "Is"}}},

		"capacity label without a key":  {`capacityLabels: [{spot: [a]}]`, []fieldErr{{invalid, "args.capacityLabels[0].key", ""}}},
		"capacity label with a bad key": {`capacityLabels: [{key: a b, spot: [a]}]`, []fieldErr{{invalid, "args.capacityLabels[0].key", "a b"}}},
		"the project's own label":       {`capacityLabels: [{key: node.kubernetes.io/capacity, spot: [cheap]}]`, []fieldErr{{field.ErrorTypeForbidden, "args.capacityLabels[0].key", ""}}},
		"capacity label twice":          {`capacityLabels: [{key: a, spot: [a]}, {key: a, onDemand: [b]}]`, []fieldErr{{duplicate, "args.capacityLabels[1].key", "a"}}},
		"capacity label without values": {`capacityLabels: [{key: a}]`, []fieldErr{{required, "args.capacityLabels[0]", ""}}},
		"value that means both":         {`capacityLabels: [{key: a, spot: [a, b], onDemand: [b]}]`, []fieldErr{{duplicate, "args.capacityLabels[0].onDemand[0]", "b"}}},
		"value that no label can have":  {`capacityLabels: [{key: a, spot: [a b]}]`, []fieldErr{{invalid, "args.capacityLabels[0].spot[0]", "a b"}}},

		"signal of no kind":               {`signals: [{class: drain}]`, []fieldErr{{required, "args.signals[0]", ""}}},
		"signal of two kinds":             {`signals: [{taint: a, label: b, class: drain}]`, []fieldErr{{invalid, "args.signals[0]", "[taint label]"}}},
		"signal without a class":          {`signals: [{taint: a}]`, []fieldErr{{required, "args.signals[0].class", ""}}},
		"signal of an unknown class":      {`signals: [{taint: a, class: Reclaim}]`, []fieldErr{{invalid, "args.signals[0].class", "Reclaim"}}},
		"signal with a negative notice":   {`signals: [{taint: a, class: drain, notice: -1s}]`, []fieldErr{{invalid, "args.signals[0].notice", "-1s"}}},
		"taint with an effect":            {`signals: [{taint: "a=b:NoSchedule", class: drain}]`, []fieldErr{{invalid, "args.signals[0].taint", "a=b:NoSchedule"}}},
		"label without a value after =":   {`signals: [{label: "a=", class: drain}]`, []fieldErr{{invalid, "args.signals[0].label", "a="}}},
		"annotation with a bad key":       {`signals: [{annotation: "a b=c", class: drain}]`, []fieldErr{{invalid, "args.signals[0].annotation", "a b=c"}}},
		"annotation with any value":       {`signals: [{annotation: "a=b c", class: drain}]`, nil},
		"condition with a strange status": {`signals: [{condition: A=true, class: drain}]`, []fieldErr{{invalid, "args.signals[0].condition", "A=true"}}},
		"signal twice": {`signals: [{condition: A, class: drain}, {label: A, class: drain}, {condition: A=True, class: reclaim}]`,
			[]fieldErr{{duplicate, "args.signals[2].condition", "A=True"}}},
		"mentions with a taint": {`signals: [{taint: a, mentions: b, class: drain}]`, []fieldErr{{invalid, "args.signals[0].mentions", "b"}}},
		"onlySpot of no kind":   {`signals: [{taint: a, onlySpot: perhaps, class: drain}]`, []fieldErr{{invalid, "args.signals[0].onlySpot", "perhaps"}}},
		"condition twice, with different mentions": {`signals: [{condition: A, mentions: b, class: drain}, {condition: A, mentions: c, class: drain}, {condition: A, mentions: b, class: reclaim}]`,
			[]fieldErr{{duplicate, "args.signals[2].condition", "A"}}},
		"one key in two kinds": {`signals: [{taint: a, class: drain}, {label: a, class: drain}, {label: a=b, class: drain}]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			args := decodeArgs(t, replicaSafety, test.args).(*config.ReplicaSafetyArgs)
			if diff := cmp.Diff(test.want, fieldErrsOf(args.Validate(field.NewPath("args"))), inAnyOrder); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if _, _, err := args.Policy(); (err != nil) != (test.want != nil) {
				t.Errorf("Policy: error %v, but errors %v", err, test.want)
			}
		})
	}
}

func TestSpotPreferenceArgsErrors(t *testing.T) {
	const (
		invalid   = field.ErrorTypeInvalid
		required  = field.ErrorTypeRequired
		duplicate = field.ErrorTypeDuplicate
	)
	for name, test := range map[string]struct {
		args string
		want []fieldErr
	}{
		"nothing set":              {`{}`, nil},
		"half-life of 0":           {`riskHalfLife: 0s`, []fieldErr{{invalid, "args.riskHalfLife", "0s"}}},
		"negative half-life":       {`riskHalfLife: -1h`, []fieldErr{{invalid, "args.riskHalfLife", "-1h0m0s"}}},
		"risk bounds":              {`poolRisk: [{instanceType: a, zone: b, risk: 0}, {instanceType: a, zone: c, risk: 1}]`, nil},
		"risk above 1":             {`poolRisk: [{instanceType: a, zone: b, risk: 1.1}]`, []fieldErr{{invalid, "args.poolRisk[0].risk", "1.1"}}},
		"risk below 0":             {`poolRisk: [{instanceType: a, zone: b, risk: -0.1}]`, []fieldErr{{invalid, "args.poolRisk[0].risk", "-0.1"}}},
		"risk that is no number":   {`poolRisk: [{instanceType: a, zone: b, risk: NaN}]`, []fieldErr{{invalid, "args.poolRisk[0].risk", "NaN"}}},
		"pool without risk":        {`poolRisk: [{instanceType: a, zone: b}]`, []fieldErr{{required, "args.poolRisk[0].risk", ""}}},
		"pool without a zone":      {`poolRisk: [{instanceType: a, risk: 1}]`, []fieldErr{{required, "args.poolRisk[0].zone", ""}}},
		"zone without a type":      {`poolRisk: [{zone: a, risk: 1}]`, []fieldErr{{required, "args.poolRisk[0].instanceType", ""}}},
		"zone that no node can be": {`poolRisk: [{instanceType: a, zone: b c, risk: 1}]`, []fieldErr{{invalid, "args.poolRisk[0].zone", "b c"}}},
		"pool twice": {`poolRisk: [{instanceType: a, zone: b, risk: 1}, {instanceType: a, zone: b, risk: 0}]`,
			[]fieldErr{{duplicate, "args.poolRisk[1]", "a in b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			args := decodeArgs(t, spotPreference, test.args).(*config.SpotPreferenceArgs)
			if diff := cmp.Diff(test.want, fieldErrsOf(args.Validate(field.NewPath("args"))), inAnyOrder); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if _, _, err := args.Risk(); (err != nil) != (test.want != nil) {
				t.Errorf("Risk: error %v, but errors %v", err, test.want)
			}
		})
	}
}

var inAnyOrder = cmpopts.SortSlices(func(a, b fieldErr) bool { return a.Field < b.Field })

// Unknown fields and values of a wrong type are errors, like invalid values, and all are reported
// at once.
func TestMistakesInDecoding(t *testing.T) {
	const (
		invalid   = field.ErrorTypeInvalid
		forbidden = field.ErrorTypeForbidden
	)
	for name, test := range map[string]struct {
		args string
		want []fieldErr
	}{
		"unknown field":           {`minOnDemnd: 1`, []fieldErr{{forbidden, "args.minOnDemnd", ""}}},
		"unknown field of a rule": {`rules: [{name: a, overflow: Never}, {name: b, namespaces: [b], overflow: Never, floor: 1}]`, []fieldErr{{forbidden, "args.rules[1].floor", ""}}},
		"profile with protect":    {`protect: true`, []fieldErr{{forbidden, "args.protect", ""}}},
		"field in another case":   {`minondemand: 1`, []fieldErr{{forbidden, "args.minondemand", ""}}},
		"list that is a string":   {`rules: [{name: a, overflow: Never, namespaces: b}]`, []fieldErr{{invalid, "args.rules[0].namespaces", "b"}}},
		"list that is an object":  {`signals: {taint: a}`, []fieldErr{{invalid, "args.signals", `{"taint":"a"}`}}},
		"object that is a number": {`rules: [5, {}]`, []fieldErr{{invalid, "args.rules[0]", "5"}, {field.ErrorTypeRequired, "args.rules[1].name", ""}, {field.ErrorTypeRequired, "args.rules[1]", ""}}},
		"string that is a number": {`rules: [{name: 5, overflow: Never}]`, []fieldErr{{invalid, "args.rules[0].name", "5"}}},
		"five wrong types, a bad value and an unknown field": {`{minOnDemand: [1], labelGrace: 30, fallbackAfter: 5, gateTimeout: 0s, signals: [{taint: a, class: drain, onlySpot: "yes"}],
  rules: [{name: a, minPriority: high, overflow: Never, floor: 1}]}`, []fieldErr{
			{invalid, "args.minOnDemand", "[1]"},
			{invalid, "args.labelGrace", "30"},
			{invalid, "args.fallbackAfter", "5"},
			{invalid, "args.signals[0].onlySpot", "yes"},
			{invalid, "args.rules[0].minPriority", "high"},
			{invalid, "args.gateTimeout", "0s"},
			{forbidden, "args.rules[0].floor", ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			args := decodeArgs(t, replicaSafety, test.args).(*config.ReplicaSafetyArgs)
			errs := args.Validate(field.NewPath("args"))
			if diff := cmp.Diff(test.want, fieldErrsOf(errs), inAnyOrder); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			_, _, err := config.ReadPolicy([]byte(file(replicaSafety, test.args)), "spot-aware-scheduler")
			for _, fieldErr := range errs {
				if fieldErr.Type != field.ErrorTypeRequired && !strings.Contains(fieldErr.Detail, "expected ") {
					t.Errorf("%v does not name what was expected", fieldErr)
				}
				if want := "profiles[0].pluginConfig[0]." + fieldErr.Error(); err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(want, ` "args.`, ` "`)) {
					t.Errorf("ReadPolicy: %v, want an error with %s", err, want)
				}
			}
		})
	}
	args := decodeArgs(t, spotPreference, "a: 1\nriskHalfLife: 1\npoolRisk: [{pool: b}]").(*config.SpotPreferenceArgs)
	want := []fieldErr{
		{forbidden, "args.a", ""}, {invalid, "args.riskHalfLife", "1"}, {forbidden, "args.poolRisk[0].pool", ""},
		{field.ErrorTypeRequired, "args.poolRisk[0].instanceType", ""}, {field.ErrorTypeRequired, "args.poolRisk[0].zone", ""}, {field.ErrorTypeRequired, "args.poolRisk[0].risk", ""},
	}
	if diff := cmp.Diff(want, fieldErrsOf(args.Validate(field.NewPath("args"))), inAnyOrder); diff != "" {
		t.Errorf("SpotPreference: errors (-want +got):\n%s", diff)
	}
}

// Errors of the decoder name the profile, the plugin and the field.
func TestDecoderRefuses(t *testing.T) {
	_, err := decode(file(replicaSafety, `kind: SpotPreferenceArgs`))
	for _, want := range []string{"ReplicaSafetyArgs", "got SpotPreferenceArgs", ".profiles[0].pluginConfig[0]", "plugin ReplicaSafety"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
}
