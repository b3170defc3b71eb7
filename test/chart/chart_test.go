// Package chart tests the Helm chart in manifests/charts with the pinned Helm 3 and Helm 4.
//
// The tests by file; the suffix _test.go is omitted.
//
//	manifests        the chart renders the same objects as the kustomize manifests
//	values           the programs accept the configurations of the chart, and reject invalid ones
//	settings         each value changes the objects
//	places           parent charts, names, versions of Kubernetes and images
//	installation     a release beside another installation is refused
//	live             lint, install, upgrade, rollback and uninstall on a real control plane
//
// Helpers: chart runs helm and kubectl, and decodes objects.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// kubeVersion selects the version for which the chart is rendered, unless a test sets another one.
const kubeVersion = "--kube-version=1.36.4"

// render returns the objects of the chart as text, or Helm's error. Helm 3 and Helm 4 must agree.
func render(t *testing.T, v values, flags ...string) (string, error) {
	t.Helper()
	return renderFolder(t, chart, v, flags...)
}

// renderFolder is render for the chart in a folder or a package.
func renderFolder(t *testing.T, folder string, v values, flags ...string) (string, error) {
	t.Helper()
	args := append([]string{"template", release, folder, "--namespace=" + elsewhere, kubeVersion, "--values=" + file(t, v)}, flags...)
	text, err := command(t, "", "helm", args...)
	text3, err3 := command(t, "", "helm3", args...)
	if (err == nil) != (err3 == nil) {
		t.Fatalf("Helm 4: %v\nHelm 3: %v\nwant the same", err, err3)
	}
	if err == nil {
		if diff := cmp.Diff(decode(t, text3), decode(t, text)); diff != "" {
			t.Errorf("Helm 3 and Helm 4 differ (-3 +4):\n%s", diff)
		}
	}
	return text, err
}

// file writes values to a file and returns its path. The images have a registry unless the values
// name one.
func file(t *testing.T, v values) string {
	t.Helper()
	all := values{"image": values{"registry": "localhost"}}
	maps.Copy(all, v)
	data, err := yaml.Marshal(all)
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

// find returns the object with this kind and name, in any namespace, or nil.
func find(objects map[string]object, kind, name string) object {
	for key, o := range objects {
		if strings.HasPrefix(key, kind+" ") && strings.HasSuffix(key, "/"+name) {
			return o
		}
	}
	return nil
}

// at returns the field of an object at a path such as "spec/containers/0/name", or nil. ~1 is a
// slash in the name of a field.
func at(o any, path string) any {
	for _, name := range strings.Split(path, "/") {
		switch v := o.(type) {
		case object:
			o = v[strings.ReplaceAll(name, "~1", "/")]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return nil
			}
			o = v[i]
		default:
			return nil
		}
	}
	return o
}
