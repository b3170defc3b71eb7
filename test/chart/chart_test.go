// Package chart tests the Helm chart in manifests/charts with the pinned helm.
//
// The tests by file; the suffix _test.go is omitted.
//
//	manifests        the chart renders the same objects as the kustomize manifests
//	values           the programs accept the configurations of the chart, and reject invalid ones
//	live             lint, install, upgrade, rollback and uninstall on a real control plane
//
// Helpers: chart runs helm and kubectl, and decodes objects.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	root    = "../.."
	release = "spot"
	// elsewhere is a namespace that the manifests do not contain.
	elsewhere = "elsewhere"
)

var chart = filepath.Join(root, "manifests", "charts", "spot-aware-scheduler")

// values are the values of the chart that a test sets.
type values = map[string]any

// object is an object of the API.
type object = map[string]any

// command runs a program that hack/tools.sh builds. Helm stores its files in a temporary folder.
func command(t *testing.T, kubeconfig, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".local", "bin", program), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%v: make tools builds it", err)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

// render returns the objects of the chart as text, or helm's error.
func render(t *testing.T, v values) (string, error) {
	t.Helper()
	return command(t, "", "helm", "template", release, chart, "--namespace="+elsewhere, "--values="+file(t, v))
}

// file writes values to a file and returns its path.
func file(t *testing.T, v values) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	live.Must(t, err)
	path := filepath.Join(t.TempDir(), "values.yaml")
	live.Must(t, os.WriteFile(path, data, 0o600))
	return path
}

// decode returns the objects of a YAML text by "kind namespace/name".
func decode(t *testing.T, text string) map[string]object {
	t.Helper()
	objects := map[string]object{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o object
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if o == nil {
			continue
		}
		meta := o["metadata"].(object)
		if strings.Contains(o["kind"].(string), "AdmissionPolicy") {
			delete(meta, "namespace") // kustomize does not know that they have none; the API server ignores it
		}
		namespace, _ := meta["namespace"].(string)
		key := fmt.Sprintf("%s %s/%s", o["kind"], namespace, meta["name"])
		if _, ok := objects[key]; ok {
			t.Errorf("%s is defined twice", key)
		}
		objects[key] = o
	}
}
