package workload_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Informers store trimmed owners.
func TestOwnersAreTrimmed(t *testing.T) {
	untrimmed := func(name string) metav1.ObjectMeta {
		m := meta(name)
		m.Labels = map[string]string{"app": "web"}
		m.Annotations = map[string]string{spot.MinOnDemandAnnotation: "2", "deployment.kubernetes.io/revision": "12", "meta.helm.sh/release-name": "web"}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1("{}")}}
		return m
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(
		&appsv1.ReplicaSet{ObjectMeta: untrimmed("web-1")}, &appsv1.Deployment{ObjectMeta: untrimmed("web")}, &appsv1.StatefulSet{ObjectMeta: untrimmed("db")},
		&v1.ReplicationController{ObjectMeta: untrimmed("rc")}, &batchv1.Job{ObjectMeta: untrimmed("job")}), 0)
	owners, err := workload.NewOwners(factory, builtinPolicy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workload.NewOwners(factory, builtinPolicy); err != nil { // for a second profile
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	for _, informer := range owners.Informers() {
		for _, object := range informer.GetStore().List() {
			if m := object.(metav1.Object); m.GetLabels() != nil || m.GetManagedFields() != nil || len(m.GetAnnotations()) != 2 {
				t.Errorf("%T: labels %v, managedFields %v, annotations %v", object, m.GetLabels(), m.GetManagedFields(), m.GetAnnotations())
			}
		}
		if n := len(informer.GetStore().List()); n != 1 {
			t.Errorf("%d objects, want 1", n)
		}
	}
}
