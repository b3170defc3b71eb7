package workload_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Every resource limits the room, and only if it is requested.
func TestResourcesCover(t *testing.T) {
	for _, name := range []v1.ResourceName{
		v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods, "example.com/gpu",
	} {
		of := func(text string) workload.Resources {
			return workload.ResourcesOf(v1.ResourceList{name: resource.MustParse(text)})
		}
		free, none := of("3"), workload.Resources{}
		free.Add(v1.ResourceList{name: resource.MustParse("1")}, -1)
		two, three := of("2"), of("3")
		if !free.Covers(&two) || free.Covers(&three) || none.Covers(&two) {
			t.Errorf("%s: 3 less 1 must cover 2, but not 3, and nothing must not cover 2", name)
		}
		if overcommitted := of("-1"); !overcommitted.Covers(&none) {
			t.Errorf("%s: it is overcommitted, but not requested", name)
		}
	}
}
