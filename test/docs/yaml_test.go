package docs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	podgroups "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
)

// TestYAML decodes every YAML block strictly, like the program that reads it.
func TestYAML(t *testing.T) {
	read := map[string]int{}
	for _, page := range pages(t) {
		for _, block := range page.blocks {
			if block.language != "yaml" {
				continue
			}
			for _, document := range strings.Split(block.text, "\n---\n") {
				kind, err := decode(t, document)
				if read[kind]++; err != nil {
					t.Errorf("%s: %s: %v\n%s", page.file, kind, err, document)
				}
			}
		}
	}
	for _, kind := range []string{"args", "Kustomization", "Deployment", "values"} {
		if read[kind] == 0 {
			t.Errorf("found no %s in %v: this test recognizes too few documents", kind, read)
		}
	}
}

// decode returns the kind of a document, and an error if it is invalid.
func decode(t *testing.T, document string) (kind string, err error) {
	var head struct {
		Kind  string `json:"kind"`
		Image any    `json:"image"` // only in values of the chart
	}
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		return "something", err
	}
	switch {
	case head.Kind == "Kustomization":
		// A reader who keeps the scheduler names its overlay instead of the base.
		err := build(t, document)
		for _, overlay := range []string{"any-scheduler", "any-scheduler-webhook"} {
			err = errors.Join(err, build(t, strings.ReplaceAll(document, base, "/manifests/overlays/"+overlay+"\n")))
		}
		return head.Kind, err
	case head.Kind == controller.Kind:
		_, err := controller.Read([]byte(document))
		return head.Kind, err
	case head.Kind == "CapacityBuffer":
		// No module of this project contains its Go types. In test/autoscaler, Karpenter reads such
		// an object.
		var buffer struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				PodTemplateRef struct {
					Name string `json:"name"`
				} `json:"podTemplateRef"`
				Replicas int32 `json:"replicas"`
			} `json:"spec"`
		}
		return head.Kind, yaml.UnmarshalStrict([]byte(document), &buffer)
	case head.Image != nil:
		return "values", template(t, document)
	case head.Kind != "":
		objects := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, podgroups.AddToScheme} {
			must(t, add(objects))
		}
		_, err := strictly(objects, document)
		return head.Kind, err
	default:
		ours := runtime.NewScheme()
		must(t, config.AddToScheme(ours))
		args, err := strictly(ours, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: ReplicaSafetyArgs\n"+document)
		if err != nil {
			return "args", err
		}
		return "args", args.(*config.ReplicaSafetyArgs).Validate(nil).ToAggregate()
	}
}

// strictly decodes an object with strict field validation, like the API server, and applies
// defaults.
func strictly(scheme *runtime.Scheme, document string) (runtime.Object, error) {
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(document), nil, nil)
	if err == nil {
		scheme.Default(object)
	}
	return object, err
}

// template renders the chart with values, which checks them against the schema of the chart.
func template(t *testing.T, values string) error {
	file := filepath.Join(t.TempDir(), "my-values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		return err
	}
	chart := filepath.Join(root, "manifests/charts/spot-aware-scheduler")
	out, err := exec.Command(filepath.Join(root, ".local/bin/helm"), "template", "spot-aware-scheduler", chart, "--set=image.registry=localhost",
		"--values="+file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("helm template: %w (make tools builds it)\n%s", err, out)
	}
	return nil
}

// base ends the path of the resource that installs the scheduler and the controller.
const base = "/manifests/base\n"

// build runs kubectl on a kustomization in a folder beside the clone.
func build(t *testing.T, kustomization string) error {
	beside := t.TempDir()
	clone, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	overlay := filepath.Join(beside, "my-cluster")
	if err := os.Symlink(clone, filepath.Join(beside, "spot-aware-scheduler")); err != nil {
		return err
	}
	if err := os.Mkdir(overlay, 0o700); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"kustomization.yaml": kustomization, "scheduler-config.yaml": read(t, "config/scheduler-config.yaml") + "# mine\n",
		"controller-config.yaml": read(t, "config/controller-config.yaml") + "# mine too\n",
		"web.yaml":               "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {}}}}",
	} {
		if err := os.WriteFile(filepath.Join(overlay, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	out, err := exec.Command(filepath.Join(root, ".local/bin/kubectl"), "kustomize", overlay).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl kustomize: %w (make tools builds it)\n%s", err, out)
	}
	// The result must contain the effect of each part of the overlay.
	for field, want := range map[string]string{
		base: "image: registry.example/spot-aware-scheduler:v1\n", "configMapGenerator:": "# mine\n",
		"newName: registry.example/spot-controller": "image: registry.example/spot-controller:v1\n", "- controller-config.yaml": "# mine too\n",
		"patches:": "schedulerName: spot-aware-scheduler\n",
	} {
		if strings.Contains(kustomization, field) && !strings.Contains(string(out), want) {
			return fmt.Errorf("the overlay has %s, but the result does not contain %q", field, want)
		}
	}
	return nil
}
