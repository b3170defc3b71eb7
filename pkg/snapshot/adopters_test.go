package snapshot_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// An adopter is a controller of the pod's own namespace that adopts pods by labels that a released
// pod may have.
func TestAdopters(t *testing.T) {
	w := clustertest.NewWorld(t)
	app := map[string]string{"app": "web"}
	selector := &metav1.LabelSelector{MatchLabels: app}
	elsewhere := clustertest.Meta("elsewhere")
	elsewhere.Namespace = "other"
	w.Put(
		&appsv1.DaemonSet{ObjectMeta: clustertest.Meta("agent"), Spec: appsv1.DaemonSetSpec{Selector: selector}},
		&appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("bare"), Spec: appsv1.ReplicaSetSpec{Selector: selector}},
		&appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("web-1"), Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: "1"},
		}}},
		&appsv1.StatefulSet{ObjectMeta: clustertest.Meta("db"), Spec: appsv1.StatefulSetSpec{Selector: selector}},
		&v1.ReplicationController{ObjectMeta: clustertest.Meta("old"), Spec: v1.ReplicationControllerSpec{Selector: app}},
		&v1.ReplicationController{ObjectMeta: clustertest.Meta("empty")},
		&appsv1.DaemonSet{ObjectMeta: elsewhere, Spec: appsv1.DaemonSetSpec{Selector: selector}},
	)
	want := map[string][]snapshot.Adopter{
		"shop":  {{"DaemonSet", "agent", selector}, {"ReplicaSet", "bare", selector}, {"ReplicationController", "old", selector}},
		"other": {{"DaemonSet", "elsewhere", selector}},
	}
	if diff := cmp.Diff(want, w.Snapshot().Adopters); diff != "" {
		t.Errorf("adopters (-want +got):\n%s", diff)
	}
}
