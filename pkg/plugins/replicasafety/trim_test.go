package replicasafety

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
)

// PodTopologySpread of kube-scheduler reads the same caches: its default constraints spread the
// pods that an owner selects.
func TestTrimmedOwnersSelectTheirPods(t *testing.T) {
	selected := map[string]string{"app": "web"}
	selector := &metav1.LabelSelector{MatchLabels: selected}
	cases := map[string]struct {
		owner runtime.Object
		pod   *v1.Pod
	}{
		"ReplicaSet":            {&appsv1.ReplicaSet{ObjectMeta: meta("web-1"), Spec: appsv1.ReplicaSetSpec{Selector: selector}}, podOf("p", by("ReplicaSet", "web-1"))},
		"StatefulSet":           {&appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Selector: selector}}, podOf("p", by("StatefulSet", "db"))},
		"ReplicationController": {&v1.ReplicationController{ObjectMeta: meta("rc"), Spec: v1.ReplicationControllerSpec{Selector: selected}}, podOf("p", by("ReplicationController", "rc"))},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, test.owner)
			core, apps := w.factory.Core().V1(), w.factory.Apps().V1()
			got := helper.DefaultSelector(test.pod, core.Services().Lister(), core.ReplicationControllers().Lister(),
				apps.ReplicaSets().Lister(), apps.StatefulSets().Lister()).String()
			if got != "app=web" {
				t.Errorf("selector %q, want app=web", got)
			}
		})
	}
}

// The scheduler's caches of pods and nodes are trimmed, because they use most of its memory.
func TestCachesAreTrimmed(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	bound, waiting, n := web("bound"), web("waiting"), spotNode("n")
	for _, pod := range []*v1.Pod{bound, waiting} {
		pod.ManagedFields, pod.Spec.Containers = managed, []v1.Container{{Name: "web", Env: []v1.EnvVar{{Name: "A"}}}}
	}
	bound.Spec.NodeName, n.ManagedFields = "n", managed
	w := newWorld(t, nil, bound, waiting, n)
	core := w.factory.Core().V1()
	gotBound, err := core.Pods().Lister().Pods("shop").Get("bound")
	w.must(err)
	gotWaiting, err := core.Pods().Lister().Pods("shop").Get("waiting")
	w.must(err)
	gotNode, err := core.Nodes().Lister().Get("n")
	w.must(err)
	for _, object := range []metav1.Object{gotBound, gotWaiting, gotNode} {
		if object.GetManagedFields() != nil {
			t.Errorf("%s has managedFields", object.GetName())
		}
	}
	if gotBound.Spec.Containers[0].Env != nil || gotWaiting.Spec.Containers[0].Env == nil {
		t.Errorf("environment of the bound pod %v, of the waiting pod %v; want it removed and preserved",
			gotBound.Spec.Containers[0].Env, gotWaiting.Spec.Containers[0].Env)
	}
}
