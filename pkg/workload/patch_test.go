package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// TestPatchPod: a nil field changes nothing, a nil value removes, and a list replaces the whole
// list, also if it is empty.
func TestPatchPod(t *testing.T) {
	pod := func(change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web-0", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web", "old": "1"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1", UID: "1"}, {Kind: "ConfigMap", Name: "c", UID: "2"}},
			},
			Spec: v1.PodSpec{SchedulingGates: []v1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}, NodeSelector: map[string]string{"disk": "ssd"}},
		}
		change(p)
		return p
	}
	affinity := &v1.Affinity{PodAffinity: &v1.PodAffinity{}}
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
		"no gate left, and affinity": {
			workload.PodPatch{Spec: &workload.PodSpecPatch{Affinity: affinity, SchedulingGates: []v1.PodSchedulingGate{}}},
			pod(func(p *v1.Pod) { p.Spec.SchedulingGates, p.Spec.Affinity = nil, affinity }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := pod(func(*v1.Pod) {})
			client := fake.NewClientset(before)
			if err := workload.PatchPod(t.Context(), client, before, test.patch); err != nil {
				t.Fatal(err)
			}
			got, err := client.CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Spec.SchedulingGates) == 0 {
				got.Spec.SchedulingGates = nil
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}
