package transform

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ordinaryNode returns a node as an informer receives it.
func ordinaryNode(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelInstanceTypeStable: "m5.large", v1.LabelHostname: name},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
		Spec: v1.NodeSpec{ProviderID: "aws:///" + name, Taints: []v1.Taint{{Key: "spot", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{Capacity: resources("2"), Allocatable: resources("1900m"),
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(created)}},
			Images:     []v1.ContainerImage{{Names: []string{"web"}, SizeBytes: 1}},
			NodeInfo:   v1.NodeSystemInfo{MachineID: name, KubeletVersion: "v1.36.4"}},
	}
}

// Sharing never changes a node: each one is equal to itself without managedFields, whatever the
// node before it had.
func TestNodesShareEqualParts(t *testing.T) {
	changes := []func(*v1.Node){
		func(*v1.Node) {},
		func(n *v1.Node) { n.Status.Capacity = resources("4") },
		func(n *v1.Node) { n.Status.Allocatable = resources("1.9") },
		func(n *v1.Node) { n.Status.Allocatable = nil },
		func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionUnknown },
		func(n *v1.Node) { n.Status.Images[0].Names[0] = "other" },
		func(n *v1.Node) { n.Spec.Unschedulable, n.Spec.Taints = true, nil },
		func(n *v1.Node) { n.Spec.Taints[0].Effect = v1.TaintEffectNoExecute },
		func(n *v1.Node) { n.Labels = nil },
		func(n *v1.Node) { n.Labels[v1.LabelInstanceTypeStable] = "other" },
	}
	trimmer := new(NodeTrimmer)
	var got, want []*v1.Node
	for i := range 2 * len(changes) {
		node := ordinaryNode(string(rune('a' + i)))
		changes[i/2](node)
		untrimmed := node.DeepCopy()
		untrimmed.ManagedFields = nil
		want = append(want, untrimmed)
		for range 2 { // an informer trims some objects twice
			if trimmed, err := trimmer.Trim(node); err != nil || trimmed != any(node) {
				t.Fatalf("Trim returned another object, or the error %v", err)
			}
		}
		got = append(got, node)
	}
	if !reflect.DeepEqual(want, got) { // cmp considers 1900m and 1.9 equal
		t.Errorf("nodes (-want +got):\n%s", cmp.Diff(want, got))
	}
	if &got[0].Spec.Taints[0] != &got[1].Spec.Taints[0] {
		t.Error("equal taints are not shared")
	}
}

// Equal nodes in an informer's cache share most of their memory. Each map of resources uses 0.7 KB.
func TestMemoryOfNodes(t *testing.T) {
	data, err := ordinaryNode("node").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	alone, shared := memoryOf[v1.Node](t, 1_000, data, Trim), memoryOf[v1.Node](t, 1_000, data, new(NodeTrimmer).Trim)
	t.Logf("%.0f bytes alone, %.0f bytes shared", alone, shared)
	if alone-shared < 1_200 {
		t.Errorf("a node uses %.0f bytes alone, %.0f bytes shared; want 1,200 less", alone, shared)
	}
}
