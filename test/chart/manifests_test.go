package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestSameAsKustomize renders the chart and the kustomize manifests with the same settings, in a
// namespace other than kube-system. All objects must be equal, except for
//
//   - the labels of the chart,
//   - the hashes in the names of ConfigMaps, which depend also on comments, and
//   - empty lists in the configuration, which mean the same as no list.
func TestSameAsKustomize(t *testing.T) {
	for name, test := range map[string]struct {
		values values
		// resources are folders in manifests.
		resources []string
		// components are folders in manifests with components of kustomize.
		components []string
		// more is added to the kustomization.
		more string
		// controller edits the controller's configuration.
		controller func(config object)
	}{
		"base": {resources: []string{"base"}},
		"images and patches": {
			values: values{
				"image": values{"registry": "registry.example/team", "tag": "v1", "pullPolicy": "Always"},
				"controller": values{
					"image": "registry.example/other/controller:v2", "replicas": 0, "extraArgs": []any{"-v=4"},
					"resources": values{"limits": values{"memory": "2Gi"}}, "goMemoryLimit": "1640MiB",
				},
				"podTemplate": values{"spec": values{"imagePullSecrets": []any{values{"name": "registry"}}}},
			},
			resources: []string{"base"},
			more: `
images:
- {name: localhost/spot-aware-scheduler, newName: registry.example/team/spot-aware-scheduler, newTag: v1}
- {name: localhost/spot-controller, newName: registry.example/other/controller, newTag: v2}
patches:
- target: {kind: Deployment}
  patch: |
    - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: registry}]}
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: Always}
- target: {kind: Deployment, name: spot-controller}
  patch: |
    - {op: replace, path: /spec/replicas, value: 0}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: -v=4}
    - {op: replace, path: /spec/template/spec/containers/0/resources/limits/memory, value: 2Gi}
    - {op: replace, path: /spec/template/spec/containers/0/env/0/value, value: 1640MiB}
`,
		},
		"autoscaler": {
			values:     values{"controller": values{"config": values{"gating": values{"enabled": true}}}},
			resources:  []string{"base", "overlays/autoscaler"},
			controller: func(config object) { config["gating"].(object)["enabled"] = true },
		},
		"prices": {
			values:     values{"controller": values{"prices": []any{values{"instanceType": "m5.large", "zone": "a", "spot": 0.04, "onDemand": 0.096}}}},
			resources:  []string{"base"},
			more:       "  literals: ['prices.yaml=[{instanceType: m5.large, zone: a, spot: 0.04, onDemand: 0.096}]']\n", // of the ConfigMap
			controller: func(config object) { config["costs"].(object)["priceFile"] = "prices.yaml" },
		},
		"any scheduler": {
			values:     values{"scheduler": values{"enabled": false}},
			resources:  []string{"overlays/any-scheduler"},
			controller: func(config object) { config["gating"].(object)["enabled"] = true },
		},
		"any scheduler with the webhook": {
			values:     values{"scheduler": values{"enabled": false}, "controller": values{"admission": "webhook"}},
			resources:  []string{"overlays/any-scheduler-webhook"},
			controller: withWebhook,
		},
		"autoscaler with the webhook": {
			values:     values{"controller": values{"admission": "webhook", "config": values{"gating": values{"enabled": true}}}},
			resources:  []string{"base", "overlays/autoscaler"},
			components: []string{"components/webhook"},
			controller: withWebhook,
		},
		"extender": {
			values:    values{"extender": values{"enabled": true}},
			resources: []string{"overlays/extender"},
		},
		"gang": {
			values:    values{"gang": values{"enabled": true}},
			resources: []string{"overlays/gang"},
		},
		"monitoring": {
			values:    values{"monitoring": values{"enabled": true, "labels": values{"release": "prometheus"}}},
			resources: []string{"base", "overlays/monitoring"},
			more: `
patches:
- target: {labelSelector: app.kubernetes.io/component=monitoring}
  patch: |
    - {op: add, path: /metadata/labels/release, value: prometheus}
`,
		},
		"monitoring of the extender": {
			values:    values{"monitoring": values{"enabled": true}, "extender": values{"enabled": true}},
			resources: []string{"overlays/extender", "overlays/monitoring-extender"},
		},
		"monitoring of any scheduler": {
			values:     values{"monitoring": values{"enabled": true}, "scheduler": values{"enabled": false}},
			resources:  []string{"overlays/any-scheduler", "overlays/monitoring-any-scheduler"},
			controller: func(config object) { config["gating"].(object)["enabled"] = true },
		},
		"namespace opt-in": {
			values:    values{"namespaceOptIn": values{"enabled": true}},
			resources: []string{"base", "overlays/namespace-opt-in"},
		},
		"viewer": {
			values:    values{"viewer": values{"enabled": true, "group": "platform"}},
			resources: []string{"base", "overlays/viewer"},
			more: `
patches:
- target: {kind: ClusterRoleBinding|RoleBinding, name: spot-viewer}
  patch: |
    - {op: replace, path: /subjects/0/name, value: platform}
`,
		},
		"operator": {
			values:    values{"operator": values{"enabled": true, "group": "platform"}},
			resources: []string{"base", "overlays/operator"},
			more: `
patches:
- target: {kind: RoleBinding, name: spot-operator}
  patch: |
    - {op: replace, path: /subjects/0/name, value: platform}
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, test.values)
			live.Must(t, err)
			want := normalize(t, kustomize(t, test.resources, test.components, test.more, test.controller))
			got := normalize(t, rendered)
			for key, o := range got {
				removeChartLabels(t, key, o)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize and chart differ (-kustomize +chart):\n%s", diff)
			}
			if len(want) < 20 {
				t.Errorf("compared %d objects, expected at least 20", len(want))
			}
		})
	}
}

// TestBetaPolicies renders the chart for an API server before Kubernetes 1.36, which serves
// MutatingAdmissionPolicies only as v1beta1.
func TestBetaPolicies(t *testing.T) {
	const group = "admissionregistration.k8s.io/"
	all := values{
		"namespaceOptIn": values{"enabled": true},
		"controller":     values{"admission": "policy", "config": values{"gating": values{"enabled": true}}},
	}
	text, err := render(t, all, "--kube-version=1.34.4",
		"--api-versions="+group+"v1beta1/MutatingAdmissionPolicy,"+group+"v1beta1/MutatingAdmissionPolicyBinding")
	live.Must(t, err)
	found := map[string]int{}
	for _, o := range decode(t, text) {
		if kind := o["kind"].(string); strings.Contains(kind, "AdmissionPolicy") {
			found[fmt.Sprintf("%s %s", o["apiVersion"], strings.TrimSuffix(kind, "Binding"))]++
		}
	}
	want := map[string]int{group + "v1beta1 MutatingAdmissionPolicy": 4, group + "v1 ValidatingAdmissionPolicy": 11}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("policies and bindings (-want +got):\n%s", diff)
	}
}

// The version of the cluster selects the admission policy or the webhook, unless a value does. A
// dry run gates nothing.
func TestAdmission(t *testing.T) {
	for name, test := range map[string]struct {
		version, admission string
		config             values
		want               string
	}{
		"1.35":                         {version: "1.35.9", want: "webhook"},
		"1.35 of a managed cluster":    {version: "v1.35.9-eks-4136f65", want: "webhook"},
		"1.36":                         {version: "1.36.0", want: "policy"},
		"1.36 of a managed cluster":    {version: "v1.36.1-gke.1200", want: "policy"},
		"1.35 with the beta policies":  {version: "1.35.9", admission: "policy", want: "policy"},
		"1.36 with the webhook":        {version: "1.36.0", admission: "webhook", want: "webhook"},
		"dry run":                      {version: "1.36.0", config: values{"dryRun": true}},
		"dry run before 1.36":          {version: "1.35.9", config: values{"dryRun": true}},
		"dry run with the webhook":     {version: "1.36.0", admission: "webhook", config: values{"dryRun": true}},
		"the section gating is absent": {version: "1.35.9", config: values{"gating": nil}, want: "webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			v := values{"scheduler": values{"enabled": false}, "controller": values{"admission": test.admission}}
			if test.config != nil {
				v["controller"].(values)["config"] = test.config
			}
			text, err := render(t, v, "--kube-version="+test.version)
			live.Must(t, err)
			got := ""
			for key := range decode(t, text) {
				switch kind, _, _ := strings.Cut(key, " "); kind {
				case "MutatingAdmissionPolicy":
					got += "policy"
				case "MutatingWebhookConfiguration":
					got += "webhook"
				}
			}
			if got != test.want || strings.Contains(text, "bindAddress: :9443") != (test.want == "webhook") {
				t.Errorf("admission by %q, want %q, and the webhook in the configuration only with it", got, test.want)
			}
		})
	}
}

// TestPackage shows that a package contains all files of the chart, and that its appVersion is the
// default tag of the images.
func TestPackage(t *testing.T) {
	all := values{"monitoring": values{"enabled": true}, "gang": values{"enabled": true}}
	want, err := render(t, all)
	live.Must(t, err)
	want = strings.NewReplacer("scheduler-0.1.0", "scheduler-1.2.3", ":dev\n", ":v9\n").Replace(want)
	for _, helm := range []string{"helm", "helm3"} {
		dir := t.TempDir()
		_, err := command(t, "", helm, "package", chart, "--version=1.2.3", "--app-version=v9", "--destination="+dir)
		live.Must(t, err)
		got, err := renderFolder(t, filepath.Join(dir, "spot-aware-scheduler-1.2.3.tgz"), all)
		live.Must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("chart and package of %s differ (-chart +package):\n%s", helm, diff)
		}
	}
}

// withWebhook edits a configuration of the controller.
func withWebhook(config object) {
	gating := config["gating"].(object)
	gating["enabled"], gating["webhook"] = true, object{"bindAddress": ":9443"}
}

// kustomize builds a kustomization in the namespace elsewhere with the resources and components,
// which are folders in manifests.
func kustomize(t *testing.T, resources, components []string, more string, controller func(config object)) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir()) // kustomize resolves symbolic links too
	live.Must(t, err)
	manifests, err := filepath.Abs(filepath.Join(root, "manifests"))
	live.Must(t, err)
	relative, err := filepath.Rel(dir, manifests) // kustomize rejects absolute paths
	live.Must(t, err)
	text := "namespace: " + elsewhere + "\nresources:\n"
	for _, folder := range resources {
		text += fmt.Sprintf("- %s/%s\n", relative, folder)
	}
	text += "components:\n"
	for _, folder := range components {
		text += fmt.Sprintf("- %s/%s\n", relative, folder)
	}
	if controller != nil {
		data, err := os.ReadFile(filepath.Join(root, "config", "controller-config.yaml"))
		live.Must(t, err)
		var config object
		live.Must(t, yaml.Unmarshal(data, &config))
		controller(config)
		data, err = yaml.Marshal(config)
		live.Must(t, err)
		live.Must(t, os.WriteFile(filepath.Join(dir, "controller-config.yaml"), data, 0o600))
		text += `
configMapGenerator:
- name: spot-controller-config
  namespace: kube-system
  behavior: merge
  files: [controller-config.yaml]
`
	}
	live.Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text+more), 0o600))
	out, err := command(t, "", "kubectl", "kustomize", dir)
	live.Must(t, err)
	return out
}

// configMap matches the name of a ConfigMap with a hash.
var configMap = regexp.MustCompile(`\b(spot-aware-scheduler-config|spot-controller-config)-[a-z0-9]{10}\b`)

// normalize decodes objects, removes the hashes from the names of ConfigMaps, and replaces the
// YAML text of configurations by its content. It fails if a ConfigMap and its users have different
// hashes.
func normalize(t *testing.T, text string) map[string]object {
	t.Helper()
	full := map[string]string{}
	for _, match := range configMap.FindAllStringSubmatch(text, -1) {
		if earlier, ok := full[match[1]]; ok && earlier != match[0] {
			t.Errorf("ConfigMap %s has the names %s and %s", match[1], earlier, match[0])
		}
		full[match[1]] = match[0]
	}
	objects := decode(t, configMap.ReplaceAllString(text, "$1"))
	for _, name := range []string{"spot-aware-scheduler-config", "spot-controller-config"} {
		o, ok := objects["ConfigMap "+elsewhere+"/"+name]
		if !ok || full[name] == "" {
			t.Errorf("no ConfigMap %s with a hash", name)
			continue
		}
		for file, content := range o["data"].(object) {
			var config any
			live.Must(t, yaml.Unmarshal([]byte(content.(string)), &config))
			o["data"].(object)[file] = withoutEmptyLists(config)
		}
	}
	return objects
}

// withoutEmptyLists removes the fields that are empty lists.
func withoutEmptyLists(v any) any {
	switch v := v.(type) {
	case object:
		maps.DeleteFunc(v, func(_ string, field any) bool {
			list, ok := field.([]any)
			return ok && len(list) == 0
		})
		for key, field := range v {
			v[key] = withoutEmptyLists(field)
		}
	case []any:
		for i := range v {
			v[i] = withoutEmptyLists(v[i])
		}
	}
	return v
}

// removeChartLabels removes the labels that only the chart sets. It fails if one is missing.
func removeChartLabels(t *testing.T, key string, o object) {
	t.Helper()
	meta := o["metadata"].(object)
	labels, _ := meta["labels"].(object)
	for label, want := range map[string]string{
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": release, "helm.sh/chart": "spot-aware-scheduler-",
	} {
		if value, _ := labels[label].(string); !strings.HasPrefix(value, want) {
			t.Errorf("%s has the label %s=%q, want %q", key, label, value, want)
		}
		delete(labels, label)
	}
	if len(labels) == 0 {
		delete(meta, "labels")
	}
}
