package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// The garbage collector works harder before the kernel kills the process: what is not heap, such as the program itself, must fit between
// GOMEMLIMIT and the container's limit, and most of the memory that is paid for must be of use.
func TestMemoryLimits(t *testing.T) {
	files, err := filepath.Glob("../../manifests/components/*/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d appsv1.Deployment
		if err := yaml.Unmarshal(data, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			checked++
			limit, collector := float64(c.Resources.Limits.Memory().Value()), 0.0
			for _, env := range c.Env {
				if env.Name != "GOMEMLIMIT" {
					continue
				}
				// Go writes MiB where Kubernetes writes Mi.
				quantity, err := resource.ParseQuantity(strings.TrimSuffix(env.Value, "B"))
				if err != nil {
					t.Fatalf("%s: GOMEMLIMIT: %v", file, err)
				}
				collector = float64(quantity.Value())
			}
			if collector < 0.8*limit || collector > 0.9*limit || limit == 0 {
				t.Errorf("%s: container %s has GOMEMLIMIT %.0f and limits.memory %.0f; want 80 to 90 %% of it", file, c.Name, collector, limit)
			}
		}
	}
	if checked < 3 {
		t.Errorf("%d containers were checked, want those of scheduler, controller and extender", checked)
	}
}
