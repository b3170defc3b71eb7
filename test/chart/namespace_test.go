package chart

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// everything is a kustomization with all parts that use the namespace.
var everything = []string{
	"base", "overlays/autoscaler", "overlays/monitoring", "overlays/namespace-opt-in", "overlays/operator", "overlays/viewer",
}

// TestNamespace shows that nothing in a kustomization with another namespace refers to kube-system,
// except what is about kube-system itself, and that all references lead to an object.
func TestNamespace(t *testing.T) {
	for name, test := range map[string]struct{ resources, components []string }{
		"scheduler":     {everything, nil},
		"webhook":       {everything, []string{"components/webhook"}},
		"extender":      {[]string{"overlays/extender", "overlays/monitoring-extender"}, nil},
		"any scheduler": {[]string{"overlays/any-scheduler", "overlays/monitoring-any-scheduler"}, nil},
		"gang":          {[]string{"overlays/gang"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			objects := decode(t, kustomize(t, test.resources, test.components, "", nil))
			for key, o := range objects {
				if namespace, ok := o["metadata"].(object)["namespace"]; ok && namespace != elsewhere {
					t.Errorf("%s is not in namespace %s", key, elsewhere)
				}
				checkReferences(t, key, o, objects)
				text, err := yaml.Marshal(o)
				live.Must(t, err)
				for line := range strings.Lines(string(text)) {
					switch line = strings.TrimSpace(line); {
					case !strings.Contains(line, "kube-system"), strings.HasPrefix(line, "#"), line == "- kube-system":
						// A comment of a configuration, or the exclusion of the system's pods.
					case line == "resourceNamespace: kube-system": // --leader-elect-resource-namespace overrides it
					default:
						t.Errorf("%s contains %q", key, line)
					}
				}
			}
		})
	}
}

// checkReferences checks the subjects of a binding, the parameters of a policy, the Service of a
// webhook, and that a Deployment passes the namespace on to the program.
func checkReferences(t *testing.T, key string, o object, objects map[string]object) {
	t.Helper()
	want := func(key string) {
		t.Helper()
		if objects[key] == nil {
			t.Errorf("no %s", key)
		}
	}
	subjects, _ := o["subjects"].([]any)
	for _, s := range subjects {
		if s := s.(object); s["kind"] == "ServiceAccount" {
			want(fmt.Sprintf("ServiceAccount %s/%s", s["namespace"], s["name"]))
		}
	}
	switch kind, _, _ := strings.Cut(key, " "); kind {
	case "ValidatingAdmissionPolicyBinding":
		// The policy of budgets is bound for the scheduler too, which these overlays replace.
		if ref, ok := o["spec"].(object)["paramRef"].(object); ok && ref["name"] != "spot-aware-scheduler" {
			want(fmt.Sprintf("ClusterRoleBinding /%s", ref["name"]))
		}
	case "MutatingWebhookConfiguration":
		for _, hook := range o["webhooks"].([]any) {
			service := hook.(object)["clientConfig"].(object)["service"].(object)
			want(fmt.Sprintf("Service %s/%s", service["namespace"], service["name"]))
		}
	case "Deployment":
		template := o["spec"].(object)["template"].(object)
		// The pods of the programs must not wait for the programs.
		if label := template["metadata"].(object)["labels"].(object)["spot-aware-scheduler.io/opt-in"]; label != "false" {
			t.Errorf("the pods of %s do not opt out", key)
		}
		container := template["spec"].(object)["containers"].([]any)[0].(object)
		text, err := yaml.Marshal(container["env"])
		live.Must(t, err)
		if !strings.Contains(string(text), "name: POD_NAMESPACE\n  valueFrom:\n    fieldRef:\n      fieldPath: metadata.namespace\n") {
			t.Errorf("%s does not set POD_NAMESPACE", key)
		}
		args := fmt.Sprint(container["args"])
		if strings.HasSuffix(key, "/spot-aware-scheduler") && !strings.Contains(args, "--leader-elect-resource-namespace=$(POD_NAMESPACE)") {
			t.Errorf("%s has the arguments %s: the Lease is not in its namespace", key, args)
		}
	}
}

// TestDefaultNamespace shows that a release in kube-system is the same as the manifests without a
// namespace.
func TestDefaultNamespace(t *testing.T) {
	text, err := render(t, nil, "--namespace=kube-system")
	live.Must(t, err)
	chart := decode(t, text)
	text, err = command(t, "", "kubectl", "kustomize", filepath.Join(root, "manifests", "base"))
	live.Must(t, err)
	manifests := decode(t, text)
	keys := func(objects map[string]object) map[string]bool {
		all := map[string]bool{}
		for key := range objects {
			if !strings.HasPrefix(key, "ConfigMap ") { // its name ends in a hash
				all[key] = true
			}
		}
		return all
	}
	if diff := cmp.Diff(keys(manifests), keys(chart)); diff != "" {
		t.Errorf("objects of the manifests and of the chart differ (-manifests +chart):\n%s", diff)
	}
}
