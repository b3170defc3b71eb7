package workload_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// TestPatchPod: a nil field changes nothing, a nil value removes, and a list replaces the whole
// list, also if it is empty. The patch contains the version of the pod.
func TestPatchPod(t *testing.T) {
	required := func(zone string) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{zone}}}}},
		}}}
	}
	pod := func(change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web-0", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web", "old": "1"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1", UID: "1"}, {Kind: "ConfigMap", Name: "c", UID: "2"}},
			},
			Spec: v1.PodSpec{SchedulingGates: []v1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}, Affinity: required("a")},
		}
		change(p)
		return p
	}
	for name, test := range map[string]struct {
		patch workload.PodPatch
		want  *v1.Pod
	}{
		"nothing": {workload.PodPatch{}, pod(func(*v1.Pod) {})},
		"labels and annotations": {
			workload.PodPatch{Labels: map[string]*string{"old": nil, "new": ptr.To("2")}, Annotations: map[string]*string{"none": nil, "note": ptr.To("x")}},
			pod(func(p *v1.Pod) {
				p.Labels, p.Annotations = map[string]string{"app": "web", "new": "2"}, map[string]string{"note": "x"}
			}),
		},
		"owners": {
			workload.PodPatch{OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "3"}}},
			pod(func(p *v1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "3"}}
			}),
		},
		"one gate left": {
			workload.PodPatch{Spec: &workload.PodSpecPatch{SchedulingGates: []v1.PodSchedulingGate{{Name: "b"}}}},
			pod(func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "b"}} }),
		},
		"no gate left, and other affinity": {
			workload.PodPatch{Spec: &workload.PodSpecPatch{Affinity: required("b"), SchedulingGates: []v1.PodSchedulingGate{}}},
			pod(func(p *v1.Pod) { p.Spec.SchedulingGates, p.Spec.Affinity = nil, required("b") }),
		},
		"no owners left": {
			workload.PodPatch{OwnerReferences: []metav1.OwnerReference{}},
			pod(func(p *v1.Pod) { p.OwnerReferences = nil }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := pod(func(*v1.Pod) {})
			client := fake.NewClientset(before)
			if err := workload.PatchPod(t.Context(), client, before, test.patch); err != nil {
				t.Fatal(err)
			}
			sent := string(client.Actions()[0].(clienttesting.PatchAction).GetPatch())
			if !strings.Contains(sent, `"uid":"u"`) || !strings.Contains(sent, `"resourceVersion":"7"`) {
				t.Errorf("patch %s, want the UID and the resource version of the pod", sent)
			}
			got, err := client.CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}
