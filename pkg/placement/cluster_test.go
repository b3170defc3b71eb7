package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// All pods on a node occupy it, also without a controller and while they terminate.
func TestClusterFree(t *testing.T) {
	c := NewCluster(testReader())
	node := clustertest.NewNode("n", "", "m/a")
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("16Gi"), v1.ResourcePods: resource.MustParse("10"),
		"example.com/gpu": resource.MustParse("2"),
	}
	c.SetNode(node)
	for _, name := range []string{"a", "b"} {
		pod := requestingPod()
		pod.Name, pod.UID, pod.Spec.NodeName = name, clustertest.UID(name), "n"
		pod.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		c.SetPod(nil, pod)
		c.SetPod(pod, terminating(pod))
	}
	c.Refresh(now)
	info := c.nodes["n"].info
	for name, want := range map[v1.ResourceName]int64{v1.ResourceCPU: 2000, v1.ResourceMemory: 14 << 30, v1.ResourcePods: 8, "example.com/gpu": 0} {
		if got := info.Free(name); got != want {
			t.Errorf("free %s: %d, want %d", name, got, want)
		}
	}
	if free := c.nodes["n"].free; free.milliCPU != 2000 || free.memory != 14<<30 || free.pods != 8 {
		t.Errorf("free capacity for searches: %+v", free)
	}
}
