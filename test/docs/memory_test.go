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

// TestMemoryLimits checks GOMEMLIMIT against the container's memory limit. The garbage collector
// must work harder before the kernel kills the process. So memory outside the heap, such as the
// program itself, must fit between the two values. Most of the container's memory must still be
// usable as heap.
func TestMemoryLimits(t *testing.T) {
	files, err := filepath.Glob("../../manifests/components/*/deployment.yaml")
	must(t, err)
	checked := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
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
				// Go writes MiB for the Mi of Kubernetes.
				quantity, err := resource.ParseQuantity(strings.TrimSuffix(env.Value, "B"))
				if err != nil {
					t.Fatalf("%s: GOMEMLIMIT: %v", file, err)
				}
				collector = float64(quantity.Value())
			}
			if collector < 0.8*limit || collector > 0.9*limit || limit == 0 {
				t.Errorf("%s: container %s has GOMEMLIMIT %.0f and limits.memory %.0f; want 80 to 90 %% of the limit", file, c.Name, collector, limit)
			}
		}
	}
	if checked < 3 {
		t.Errorf("%d containers were checked, want scheduler, controller and extender", checked)
	}
}
