package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
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
	want := workload.Resources{MilliCPU: 2000, Memory: 14 << 30, Pods: 8, Others: map[v1.ResourceName]int64{"example.com/gpu": 0}}
	clustertest.Equal(t, "free resources", want, c.nodes["n"].free)
}

// A tenant may create pods on nodes that do not exist. Such a node is forgotten with its last pod,
// also if nothing requests a Refresh.
func TestClusterForgetsUnknownNodes(t *testing.T) {
	c := NewCluster(testReader())
	for _, name := range []string{"a", "b"} {
		pod := requestingPod()
		pod.Name, pod.UID, pod.Spec.NodeName = name, clustertest.UID(name), name
		c.SetPod(nil, pod)
		if name == "b" {
			c.Refresh(now)
		}
		c.SetPod(pod, terminating(pod))
		if len(c.byName[name].pods) != 1 {
			t.Errorf("the pod on %s is forgotten, although the cache has it", name)
		}
		c.SetPod(terminating(pod), nil)
	}
	if len(c.byName) > 0 || len(c.changed) > 0 {
		t.Errorf("got %d nodes, %d changed; want none", len(c.byName), len(c.changed))
	}
	// A node that counts is removed by Refresh, unless it exists again.
	pod := requestingPod()
	pod.Name, pod.UID, pod.Spec.NodeName = "n", clustertest.UID("n"), "n"
	for _, again := range []bool{true, false} {
		c.SetNode(clustertest.NewNode("n", "", "m/a"))
		c.SetPod(nil, pod)
		c.Refresh(now)
		c.DeleteNode("n")
		c.SetPod(pod, nil)
		if again {
			c.SetNode(clustertest.NewNode("n", "", "m/a"))
		}
		c.Refresh(now)
		if c.HasNode("n") != again || len(c.nodes) != len(c.byName) {
			t.Errorf("exists again: %v; got %d nodes, %d counted", again, len(c.byName), len(c.nodes))
		}
	}
}
