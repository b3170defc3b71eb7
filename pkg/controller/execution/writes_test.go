package execution

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// A pending pod is deleted at once, but only in the version that was planned for.
func TestDeletePending(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: clustertest.Meta("web")}
	pod.UID, pod.ResourceVersion = "u", "7"
	client := fake.NewClientset(pod)
	if err := DeletePending(t.Context(), client, pod); err != nil {
		t.Fatal(err)
	}
	want := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}}
	clustertest.Equal(t, "options", want, client.Actions()[0].(clienttesting.DeleteAction).GetDeleteOptions())
}
