package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// setting is a value of the chart and a field of an object that it sets.
type setting struct {
	set        any
	kind, path string
	want       any
}

const (
	pod       = "spec/template/spec/"
	container = pod + "containers/0/"
)

// programSettings are the values of one program, by name.
var programSettings = map[string]setting{
	"image":         {"registry.example/ours:v3", "Deployment", container + "image", "registry.example/ours:v3"},
	"replicas":      {3, "Deployment", "spec/replicas", 3.0},
	"resources":     {values{"limits": values{"memory": "2Gi"}}, "Deployment", container + "resources/limits/memory", "2Gi"},
	"goMemoryLimit": {"1GiB", "Deployment", container + "env", nil}, // TestGoMemoryLimit
	"extraArgs":     {[]any{"-v=4"}, "Deployment", container + "args", "-v=4"},
	"nodeSelector":  {values{"pool": "system"}, "Deployment", pod + "nodeSelector", object{"kubernetes.io/os": "linux", "pool": "system"}},
	"tolerations":   {[]any{values{"operator": "Exists"}}, "Deployment", pod + "tolerations", []any{object{"operator": "Exists"}}},
	"affinity": {
		values{"podAntiAffinity": values{"requiredDuringSchedulingIgnoredDuringExecution": []any{}}},
		"Deployment", pod + "affinity/podAntiAffinity", object{"requiredDuringSchedulingIgnoredDuringExecution": []any{}},
	},
	"topologySpreadConstraints": {
		[]any{values{"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}},
		"Deployment", pod + "topologySpreadConstraints", []any{object{"topologyKey": "rack", "maxSkew": 2.0, "whenUnsatisfiable": "ScheduleAnyway"}},
	},
	"priorityClassName": {"platform", "Deployment", pod + "priorityClassName", "platform"},
	"podAnnotations":    {values{"team": "platform"}, "Deployment", "spec/template/metadata/annotations", object{"team": "platform"}},
	"podLabels":         {values{"team": "platform"}, "Deployment", "spec/template/metadata/labels/team", "platform"},
	"extraEnv":          {[]any{values{"name": "HTTPS_PROXY", "value": "x"}}, "Deployment", container + "env", object{"name": "HTTPS_PROXY", "value": "x"}},
	"extraVolumes": {
		[]any{values{"name": "ca", "emptyDir": values{}}}, "Deployment", pod + "volumes", object{"name": "ca", "emptyDir": object{}},
	},
	"extraVolumeMounts": {
		[]any{values{"name": "ca", "mountPath": "/ca"}}, "Deployment", container + "volumeMounts", object{"name": "ca", "mountPath": "/ca"},
	},
	"securityContext":      {values{"readOnlyRootFilesystem": false}, "Deployment", container + "securityContext/readOnlyRootFilesystem", false},
	"livenessProbe":        {values{"failureThreshold": 20}, "Deployment", container + "livenessProbe/failureThreshold", 20.0},
	"readinessProbe":       {values{"periodSeconds": 3}, "Deployment", container + "readinessProbe/periodSeconds", 3.0},
	"strategy":             {values{"type": "Recreate"}, "Deployment", "spec/strategy", object{"type": "Recreate"}},
	"revisionHistoryLimit": {0, "Deployment", "spec/revisionHistoryLimit", 0.0},
	"podDisruptionBudget":  {values{"minAvailable": "50%"}, "PodDisruptionBudget", "spec/minAvailable", "50%"},
	"serviceAccount":       {values{"annotations": values{"role": "x"}}, "ServiceAccount", "metadata/annotations", object{"role": "x"}},
}

// programs are the programs with the names of their values and objects, and other values that they
// need.
var programs = map[string]struct {
	object string
	values values
}{
	"scheduler":  {"spot-aware-scheduler", nil},
	"controller": {"spot-controller", nil},
	"extender":   {"spot-extender", values{"enabled": true}},
}

// TestProgramSettings sets all values of each program at once. Lists with further elements end in
// the wanted one.
func TestProgramSettings(t *testing.T) {
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			v := values{}
			for value, s := range programSettings {
				v[value] = s.set
			}
			maps.Copy(v, program.values)
			text, err := render(t, values{name: v})
			live.Must(t, err)
			objects := decode(t, text)
			for value, s := range programSettings {
				if s.want == nil {
					continue
				}
				got := at(find(objects, s.kind, program.object), s.path)
				if list, ok := got.([]any); ok {
					if _, whole := s.want.([]any); !whole {
						got = list[len(list)-1]
						if len(list) < 2 {
							t.Errorf("%s: %s has one element, want the manifest's too", value, s.path)
						}
					}
				}
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Errorf("%s: %s of the %s (-want +got):\n%s", value, s.path, s.kind, diff)
				}
			}
			budget := at(find(objects, "PodDisruptionBudget", program.object), "spec").(object)
			if _, ok := budget["maxUnavailable"]; ok {
				t.Errorf("the PodDisruptionBudget has maxUnavailable and minAvailable: %v", budget)
			}
			if len(at(find(objects, "Deployment", program.object), pod+"affinity").(object)) != 2 {
				t.Error("the value removed the node affinity of the manifest")
			}
		})
	}
}

// TestSettingsAreTested compares programSettings with the schema.
func TestSettingsAreTested(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	live.Must(t, err)
	var schema struct {
		Defs map[string]property `json:"$defs"`
	}
	live.Must(t, json.Unmarshal(data, &schema))
	got := slices.Collect(maps.Keys(programSettings))
	got = append(got, "admission", "config", "enabled", "prices") // not of all programs
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(schema.Defs["program"].Properties)), got); diff != "" {
		t.Errorf("values of a program in the schema and in this test (-schema +test):\n%s", diff)
	}
}

// TestSettings sets one value of the chart, and compares one field of an object. A nil field means
// that there is no such object or field.
func TestSettings(t *testing.T) {
	monitoring := func(v values) values {
		v["enabled"] = true
		return values{"monitoring": v}
	}
	label := values{"cost": "platform"}
	relabelings := []any{values{"targetLabel": "cluster", "replacement": "a"}}
	for name, test := range map[string]struct {
		values           values
		kind, name, path string
		want             any
	}{
		"budget": {
			values{}, "PodDisruptionBudget", "spot-controller", "spec/maxUnavailable", 1.0,
		},
		"larger budget": {
			values{"controller": values{"podDisruptionBudget": values{"maxUnavailable": "50%"}}},
			"PodDisruptionBudget", "spot-controller", "spec/maxUnavailable", "50%",
		},
		"null in a budget": {
			values{"controller": values{"podDisruptionBudget": values{"minAvailable": nil}}},
			"PodDisruptionBudget", "spot-controller", "spec/maxUnavailable", 1.0,
		},
		"null and a limit in a budget": {
			values{"controller": values{"podDisruptionBudget": values{"maxUnavailable": nil, "minAvailable": 0}}},
			"PodDisruptionBudget", "spot-controller", "spec/minAvailable", 0.0,
		},
		"nulls": {
			values{
				"commonLabels": nil, "podTemplate": nil,
				"controller": values{"extraEnv": nil, "extraArgs": nil, "extraVolumes": nil, "extraVolumeMounts": nil, "podLabels": nil},
			},
			"Deployment", "spot-controller", pod + "serviceAccountName", "spot-controller",
		},
		"namespace in an annotation": {
			values{"controller": values{"podAnnotations": values{"namespace": "kube-system"}}},
			"Deployment", "spot-controller", "spec/template/metadata/annotations/namespace", "kube-system",
		},
		"no budget": {
			values{"controller": values{"podDisruptionBudget": values{"enabled": false}}}, "PodDisruptionBudget", "spot-controller", "kind", nil,
		},
		"budget of the other program": {
			values{"controller": values{"podDisruptionBudget": values{"enabled": false}}},
			"PodDisruptionBudget", "spot-aware-scheduler", "kind", "PodDisruptionBudget",
		},
		"no ServiceAccount": {
			values{"controller": values{"serviceAccount": values{"create": false, "name": "robot"}}}, "ServiceAccount", "robot", "kind", nil,
		},
		"other ServiceAccount": {
			values{"controller": values{"serviceAccount": values{"create": false, "name": "robot"}}},
			"Deployment", "spot-controller", pod + "serviceAccountName", "robot",
		},
		"subject of the other ServiceAccount": {
			values{"controller": values{"serviceAccount": values{"name": "robot"}}},
			"ClusterRoleBinding", "spot-controller", "subjects/0/name", "robot",
		},
		"label of an object": {
			values{"commonLabels": label},
			"ClusterRole", "spot-controller", "metadata/labels/cost", "platform",
		},
		"label of a pod": {
			values{"commonLabels": label},
			"Deployment", "spot-controller", "spec/template/metadata/labels/cost", "platform",
		},
		"annotation of objects": {
			values{"commonAnnotations": label},
			"ClusterRole", "spot-controller", "metadata/annotations", object{"cost": "platform"},
		},
		"no NetworkPolicy": {
			values{"networkPolicy": values{"enabled": false}},
			"NetworkPolicy", "spot-controller", "kind", nil,
		},
		"interval": {
			monitoring(values{"serviceMonitor": values{"interval": "45s"}}),
			"ServiceMonitor", "spot-controller", "spec/endpoints/0/interval", "45s",
		},
		"relabelings": {
			monitoring(values{"serviceMonitor": values{"relabelings": relabelings}}),
			"ServiceMonitor", "spot-controller", "spec/endpoints/0/relabelings/0/targetLabel", "cluster",
		},
		"no ServiceMonitors": {
			monitoring(values{"serviceMonitor": values{"enabled": false}}),
			"ServiceMonitor", "spot-controller", "kind", nil,
		},
		"no rules": {
			monitoring(values{"prometheusRule": values{"enabled": false}}),
			"PrometheusRule", "spot-aware-scheduler", "kind", nil,
		},
		"no dashboard": {
			monitoring(values{"dashboard": values{"enabled": false}}),
			"ConfigMap", "spot-aware-scheduler-dashboard", "kind", nil,
		},
		"dashboard": {monitoring(values{}), "ConfigMap", "spot-aware-scheduler-dashboard", "kind", "ConfigMap"},
		"failsafe": {
			values{"scheduler": values{"enabled": false}, "controller": values{"priorityClassName": "platform"}},
			"Deployment", "spot-failsafe", pod + "priorityClassName", "platform",
		},
		"null in podTemplate": {
			values{"podTemplate": values{"spec": values{"securityContext": values{"runAsUser": nil}}}},
			"Deployment", "spot-controller", pod + "securityContext/runAsUser", nil,
		},
		"list in podTemplate": {
			values{"podTemplate": values{"spec": values{"tolerations": []any{}}}},
			"Deployment", "spot-controller", pod + "tolerations", []any{},
		},
		"pull secrets by name": {
			values{"global": values{"imagePullSecrets": []any{"a", values{"name": "b"}}}},
			"Deployment", "spot-controller", pod + "imagePullSecrets", []any{object{"name": "a"}, object{"name": "b"}},
		},
		"registry of all charts": {
			values{"global": values{"imageRegistry": "registry.example/all"}},
			"Deployment", "spot-controller", container + "image", "registry.example/all/spot-controller:dev",
		},
		"further object": {
			values{"extraObjects": []any{values{"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": "{{ .Release.Name }}-more"}}}},
			"ConfigMap", release + "-more", "kind", "ConfigMap",
		},
		"nameOverride": {
			values{"nameOverride": "acme"},
			"Deployment", release + "-acme-controller", "kind", "Deployment",
		},
		"nameOverride like the release": {values{"nameOverride": "po"}, "Deployment", release, "kind", "Deployment"},
		"fullnameOverride": {
			values{"fullnameOverride": "acme"},
			"PodDisruptionBudget", "acme-controller", "kind", "PodDisruptionBudget",
		},
		"Services stay": {values{"fullnameOverride": "acme"}, "Service", "spot-controller", "kind", "Service"},
		"labels stay": {
			values{"fullnameOverride": "acme"},
			"Deployment", "acme", "spec/template/metadata/labels/app.kubernetes.io~1name", "spot-aware-scheduler",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, test.values)
			live.Must(t, err)
			if diff := cmp.Diff(test.want, at(find(decode(t, text), test.kind, test.name), test.path)); diff != "" {
				t.Errorf("%s of %s %s (-want +got):\n%s", test.path, test.kind, test.name, diff)
			}
		})
	}
}

// TestControllerAwayIsSilent shows that a controller without replicas causes no alert about it.
func TestControllerAwayIsSilent(t *testing.T) {
	for replicas, want := range map[any]bool{0: false, 1: true, nil: true} { // null means 2, as in the manifest
		text, err := render(t, values{"monitoring": values{"enabled": true}, "controller": values{"replicas": replicas}})
		live.Must(t, err)
		alerts := map[string]bool{}
		groups := at(find(decode(t, text), "PrometheusRule", "spot-aware-scheduler"), "spec/groups").([]any)
		for _, group := range groups {
			for _, rule := range group.(object)["rules"].([]any) {
				alerts[rule.(object)["alert"].(string)] = true
			}
		}
		if alerts["SpotControllerAway"] != want || !alerts["SpotControllerBlind"] || !alerts["PodsWaitForOnDemand"] {
			t.Errorf("%v replicas: alerts %v, want SpotControllerAway: %t, and the others", replicas, alerts, want)
		}
	}
}

// TestGoMemoryLimit shows that GOMEMLIMIT is 80 % of the memory limit, unless a value sets it.
func TestGoMemoryLimit(t *testing.T) {
	for memory, want := range map[any]string{
		"1Gi": "820MiB", "2Gi": "1639MiB", "1.5Gi": "1229MiB", "900M": "687MiB", 1 << 30: "820MiB", nil: "off",
	} {
		text, err := render(t, values{"controller": values{"resources": values{"limits": values{"memory": memory}}}})
		live.Must(t, err)
		got := at(find(decode(t, text), "Deployment", "spot-controller"), container+"env").([]any)
		if !slices.ContainsFunc(got, func(v any) bool { return cmp.Equal(v, object{"name": "GOMEMLIMIT", "value": want}) }) {
			t.Errorf("limits.memory %v: environment %v, want GOMEMLIMIT %s", memory, got, want)
		}
	}
	text, err := render(t, values{"controller": values{"goMemoryLimit": "1GiB"}})
	live.Must(t, err)
	if got := at(find(decode(t, text), "Deployment", "spot-controller"), container+"env/0/value"); got != "1GiB" {
		t.Errorf("goMemoryLimit 1GiB: GOMEMLIMIT %v", got)
	}
}
