package chart

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestProgramsCheckValues renders the chart, and loads the configurations with the code of the
// programs. An invalid value must cause an error that contains its field and its value.
func TestProgramsCheckValues(t *testing.T) {
	for name, test := range map[string]struct {
		values values
		want   string // part of the error; empty for no error
	}{
		"defaults": {},
		"all settings of the policy": {values: values{
			"policy": values{
				"minOnDemand": "30%", "maxPerPool": "50%", "fallbackAfter": "never",
				"rules": []any{
					values{"name": "critical", "minPriority": 1000000, "minOnDemand": "100%", "protect": true},
					values{"name": "web", "namespaces": []any{"web"}, "podSelector": values{"matchLabels": values{"tier": "frontend"}}, "minOnDemand": 2},
				},
				"capacityLabels": []any{values{"key": "example.com/lifecycle", "spot": []any{"spot"}, "onDemand": []any{"regular"}}},
				"signals":        []any{values{"condition": "HardwareFailing=True", "mentions": "disk", "class": "reclaim", "notice": "10m", "onlySpot": true}},
			},
			"preference": values{"poolRisk": []any{values{"instanceType": "m6i.2xlarge", "zone": "us-east-1a", "risk": 0.2}}},
			"scheduler":  values{"config": values{"clientConnection": values{"qps": 500}}},
		}},
		"prices": {values: values{"controller": values{"prices": []any{values{"instanceType": "m5.large", "onDemand": 0.096}}}}},
		"prices without a price": {
			values: values{"controller": values{"prices": []any{values{"instanceType": "m5.large"}}}},
			want:   `price list prices.yaml:` + "\n" + `row 1: spot, onDemand: invalid value "": expected at least one price`,
		},
		"settings removed": {values: values{"policy": values{"rules": nil}, "controller": values{"config": values{"gating": nil, "drain": nil}}}},
		"floor above 100%": {
			values: values{"policy": values{"minOnDemand": "130%"}},
			want:   `args.minOnDemand: Invalid value: "130%": expected a count of 0 or more such as "2", or a percentage such as "30%", at most 100%`,
		},
		"invalid duration in a rule": {
			values: values{"policy": values{"rules": []any{values{"name": "web", "fallbackAfter": "soon"}}}},
			want:   `args.rules[0].fallbackAfter: Invalid value: "soon"`,
		},
		"invalid half-life": {
			values: values{"preference": values{"riskHalfLife": "0s"}},
			want:   `args.riskHalfLife: Invalid value: "0s"`,
		},
		"notice below the minimum": {
			values: values{"controller": values{"config": values{"interruption": values{"defaultNotice": "1s"}}}},
			want:   `interruption.defaultNotice: Invalid value: "1s"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, test.values)
			live.Must(t, err)
			message := load(t, decode(t, text))
			if (message != "") != (test.want != "") || !strings.Contains(message, test.want) {
				t.Errorf("error %q, want one that contains %q", message, test.want)
			}
		})
	}
}

// load returns the errors of the scheduler and the controller about the configurations in the
// ConfigMaps.
func load(t *testing.T, objects map[string]object) string {
	t.Helper()
	message := ""
	files := 0
	for key, o := range objects {
		if !strings.HasPrefix(key, "ConfigMap ") {
			continue
		}
		for name, content := range o["data"].(object) {
			files++
			data := []byte(content.(string))
			if name == "controller-config.yaml" {
				if _, err := controller.Read(data); err != nil {
					message += err.Error()
				}
				continue
			}
			if name == "prices.yaml" {
				if _, err := pricing.Read(data, name); err != nil {
					message += err.Error()
				}
				continue
			}
			if _, _, err := config.ReadPolicy(data, config.DefaultProfile); err != nil {
				message += err.Error()
			}
			// The scheduler also checks what only it reads, such as SpotPreference.
			path := filepath.Join(t.TempDir(), name)
			live.Must(t, os.WriteFile(path, data, 0o600))
			out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "spot-aware-scheduler"),
				"--config="+path, "--master=http://unused", "--write-config-to="+os.DevNull).CombinedOutput()
			if os.IsNotExist(err) {
				t.Fatalf("%v: make build builds it", err)
			}
			if err != nil {
				message += string(out)
			}
		}
	}
	if files < 3 {
		t.Errorf("loaded %d files, want scheduler-config.yaml, gang.yaml, controller-config.yaml, and prices.yaml if there are prices", files)
	}
	return message
}

// TestHelmChecksValues shows that helm rejects unknown names and wrong types before it contacts a
// cluster.
func TestHelmChecksValues(t *testing.T) {
	for name, test := range map[string]struct {
		values values
		want   []string
	}{
		"unknown value":               {values{"polcy": values{}}, []string{"polcy"}},
		"unknown setting":             {values{"policy": values{"minOnDemnd": 1}}, []string{"/policy", "minOnDemnd"}},
		"unknown setting of a rule":   {values{"policy": values{"rules": []any{values{"name": "a", "floor": 1}}}}, []string{"/policy/rules/0", "floor"}},
		"unknown word":                {values{"policy": values{"overflow": "Sometimes"}}, []string{"/policy/overflow", "Allow", "Never"}},
		"unknown word in a rule":      {values{"policy": values{"rules": []any{values{"name": "a", "overflow": "No"}}}}, []string{"/policy/rules/0/overflow", "Allow", "Never"}},
		"wrong price":                 {values{"controller": values{"prices": []any{values{"instanceType": "m", "spot": "cheap"}}}}, []string{"/controller/prices/0/spot", "number"}},
		"wrong type":                  {values{"controller": values{"config": values{"dryRun": "yes"}}}, []string{"/controller/config/dryRun", "boolean"}},
		"profiles of their own":       {values{"scheduler": values{"config": values{"profiles": []any{}}}}, []string{"/scheduler/config", "profiles"}},
		"wrong selector":              {program("nodeSelector", "pool=a"), []string{"/controller/nodeSelector", "object"}},
		"wrong toleration":            {program("tolerations", []any{values{"ky": "a"}}), []string{"/controller/tolerations/0", "ky"}},
		"wrong affinity":              {program("affinity", values{"nodes": values{}}), []string{"/controller/affinity", "nodes"}},
		"wrong spread":                {program("topologySpreadConstraints", []any{values{"maxSkew": 1}}), []string{"/controller/topologySpreadConstraints/0", "topologyKey"}},
		"wrong priority class":        {program("priorityClassName", 5), []string{"/controller/priorityClassName", "string"}},
		"wrong annotations":           {program("podAnnotations", values{"a": 1}), []string{"/controller/podAnnotations/a", "string"}},
		"label of the selector":       {program("podLabels", values{"app.kubernetes.io/name": "a"}), []string{"/controller/podLabels/app.kubernetes.io~1name"}},
		"wrong environment":           {program("extraEnv", []any{values{"value": "a"}}), []string{"/controller/extraEnv/0", "name"}},
		"wrong volume":                {program("extraVolumes", values{}), []string{"/controller/extraVolumes", "array"}},
		"wrong mount":                 {program("extraVolumeMounts", []any{values{"name": "a"}}), []string{"/controller/extraVolumeMounts/0", "mountPath"}},
		"wrong security context":      {program("securityContext", true), []string{"/controller/securityContext", "object"}},
		"wrong liveness probe":        {program("livenessProbe", values{"period": 1}), []string{"/controller/livenessProbe", "period"}},
		"wrong readiness probe":       {program("readinessProbe", values{"periodSeconds": 0}), []string{"/controller/readinessProbe/periodSeconds"}},
		"wrong strategy":              {program("strategy", values{"type": "None"}), []string{"/controller/strategy/type", "Recreate"}},
		"wrong history":               {program("revisionHistoryLimit", -1), []string{"/controller/revisionHistoryLimit", "0"}},
		"wrong budget":                {program("podDisruptionBudget", values{"minAvailable": "half"}), []string{"/controller/podDisruptionBudget/minAvailable"}},
		"count as text in a budget":   {program("podDisruptionBudget", values{"maxUnavailable": "1"}), []string{"/controller/podDisruptionBudget/maxUnavailable"}},
		"budget without a limit":      {program("podDisruptionBudget", values{"maxUnavailable": nil}), []string{"PodDisruptionBudget spot-controller", "maxUnavailable"}},
		"memory that Go rejects":      {program("goMemoryLimit", "800MB"), []string{"/controller/goMemoryLimit"}},
		"variable of the chart":       {program("extraEnv", []any{values{"name": "POD_NAMESPACE"}}), []string{"/controller/extraEnv/0/name"}},
		"Recreate with an update":     {program("strategy", values{"type": "Recreate", "rollingUpdate": values{}}), []string{"/controller/strategy/rollingUpdate"}},
		"successes of liveness":       {program("livenessProbe", values{"successThreshold": 1}), []string{"/controller/livenessProbe/successThreshold"}},
		"label of opt-in":             {program("podLabels", values{optIn: "true"}), []string{"/controller/podLabels/spot-aware-scheduler.io~1opt-in"}},
		"common label of opt-in":      {values{"commonLabels": values{optIn: "true"}}, []string{"/commonLabels/spot-aware-scheduler.io~1opt-in"}},
		"selected label of a pod":     {podTemplate("metadata", values{"labels": values{"app.kubernetes.io/name": nil}}), []string{"/podTemplate/metadata/labels/app.kubernetes.io~1name"}},
		"ServiceAccount of a pod":     {podTemplate("spec", values{"serviceAccountName": "a"}), []string{"/podTemplate/spec/serviceAccountName"}},
		"registry with a slash":       {values{"image": values{"registry": "registry.example/"}}, []string{"/image/registry"}},
		"global registry with slash":  {values{"global": values{"imageRegistry": "registry.example/"}}, []string{"/global/imageRegistry"}},
		"rights of two programs":      {program("serviceAccount", values{"name": "spot-aware-scheduler"}), []string{"controller.serviceAccount.name: spot-aware-scheduler: expected another name"}},
		"wrong ServiceAccount":        {program("serviceAccount", values{"nme": "a"}), []string{"/controller/serviceAccount", "nme"}},
		"wrong memory":                {program("goMemoryLimit", "1Gi"), []string{"/controller/goMemoryLimit"}},
		"wrong resources":             {program("resources", values{"limit": values{}}), []string{"/controller/resources", "limit"}},
		"value of another program":    {program("enabled", true), []string{"/controller/enabled"}},
		"containers":                  {values{"podTemplate": values{"spec": values{"containers": []any{}}}}, []string{"/podTemplate/spec/containers"}},
		"volumes":                     {values{"podTemplate": values{"spec": values{"volumes": []any{}}}}, []string{"/podTemplate/spec/volumes"}},
		"wrong common label":          {values{"commonLabels": values{"helm.sh/chart": "a"}}, []string{"/commonLabels/helm.sh~1chart"}},
		"wrong common annotation":     {values{"commonAnnotations": values{"a": true}}, []string{"/commonAnnotations/a", "string"}},
		"wrong registry":              {values{"global": values{"imageRegistry": 5}}, []string{"/global/imageRegistry", "string"}},
		"wrong pull secret":           {values{"global": values{"imagePullSecrets": []any{values{"nme": "a"}}}}, []string{"/global/imagePullSecrets/0", "name"}},
		"wrong interval":              {values{"monitoring": values{"serviceMonitor": values{"interval": "soon"}}}, []string{"/monitoring/serviceMonitor/interval"}},
		"wrong relabelings":           {values{"monitoring": values{"serviceMonitor": values{"relabelings": "a"}}}, []string{"/monitoring/serviceMonitor/relabelings", "array"}},
		"wrong switch of rules":       {values{"monitoring": values{"prometheusRule": false}}, []string{"/monitoring/prometheusRule", "object"}},
		"wrong switch of dashboards":  {values{"monitoring": values{"dashboard": values{"enable": false}}}, []string{"/monitoring/dashboard", "enable"}},
		"wrong switch of policies":    {values{"networkPolicy": values{"enabled": "no"}}, []string{"/networkPolicy/enabled", "boolean"}},
		"wrong name":                  {values{"fullnameOverride": "A_b"}, []string{"/fullnameOverride"}},
		"wrong part of the name":      {values{"nameOverride": "a.b"}, []string{"/nameOverride"}},
		"wrong object":                {values{"extraObjects": []any{values{"kind": "Secret"}}}, []string{"/extraObjects/0", "apiVersion"}},
		"unknown unit of memory":      {program("resources", values{"limits": values{"memory": "1GB"}}), []string{"controller.resources.limits.memory: invalid value \"1GB\""}},
		"gangs without the scheduler": {values{"gang": values{"enabled": true}, "extender": values{"enabled": true}}, []string{"gang.enabled: true: expected false"}},
		"two placers with one ServiceAccount": {
			values{"extender": values{"enabled": true, "serviceAccount": values{"name": "a"}}, "controller": values{"serviceAccount": values{"name": "a"}}},
			[]string{"controller.serviceAccount.name: a: expected another name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, test.values)
			if err == nil {
				t.Fatal("helm template succeeded, want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want one that contains %q", err, want)
				}
			}
		})
	}
}

// program returns a value of the controller.
func program(name string, v any) values {
	return values{"controller": values{name: v}}
}

// podTemplate returns a value of all pods.
func podTemplate(name string, v any) values {
	return values{"podTemplate": values{name: v}}
}

// optIn is the label that opts pods in. The programs' pods must not wait for the programs.
const optIn = "spot-aware-scheduler.io/opt-in"

// property is a part of values.schema.json.
type property struct {
	Properties map[string]*property
	Items      *property
}

// TestSchemaHasAllSettings compares the names in values.schema.json with the fields of the Go
// types.
func TestSchemaHasAllSettings(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	live.Must(t, err)
	var s property
	live.Must(t, json.Unmarshal(data, &s))
	compareFields(t, "policy", s.Properties["policy"], reflect.TypeFor[config.ReplicaSafetyArgs]())
	compareFields(t, "preference", s.Properties["preference"], reflect.TypeFor[config.SpotPreferenceArgs]())
	compareFields(t, "controller.config", s.Properties["controller"].Properties["config"], reflect.TypeFor[controller.SpotControllerConfiguration]())
}

// compareFields compares the properties of a schema with the JSON fields of a struct. It compares
// nested structs too.
func compareFields(t *testing.T, path string, s *property, of reflect.Type) {
	t.Helper()
	var fields []string
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "apiVersion" || name == "kind" { // an embedded struct, or TypeMeta
			continue
		}
		fields = append(fields, name)
		p := s.Properties[name]
		if p == nil {
			continue // the comparison below reports it
		}
		nested := field.Type
		if nested.Kind() == reflect.Slice {
			nested, p = nested.Elem(), p.Items
		}
		if nested.Kind() == reflect.Struct {
			compareFields(t, path+"."+name, p, nested)
		}
	}
	slices.Sort(fields)
	if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(s.Properties))); diff != "" {
		t.Errorf("%s: fields of %s and properties in values.schema.json differ (-fields +properties):\n%s", path, of, diff)
	}
}
