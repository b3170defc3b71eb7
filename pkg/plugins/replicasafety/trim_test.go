package replicasafety

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
)

// kube-scheduler's PodTopologySpread reads the same caches: its default constraints spread the pods that an owner selects.
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
