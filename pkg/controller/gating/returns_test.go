package gating

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// released returns a running pod that was released from a ReplicaSet.
func released(owner, name string, ago time.Duration, toSpot bool) *v1.Pod {
	pod := clustertest.Run("o", clustertest.NewPod(name, clustertest.OwnedBy("ReplicaSet", owner)))
	pod.Labels["pod-template-hash"] = "r"
	clustertest.ReleaseFor("return-to-spot", time.Now().Add(-ago), pod)
	if toSpot {
		pod.Annotations[spot.ReleasedAnnotation] = strings.Replace(pod.Annotations[spot.ReleasedAnnotation], "{", `{"toSpot":true,`, 1)
	}
	return pod
}

// Exactly one new pod of the revision of a released pod requires spot, also for a leader that did
// not release the pod, and if its patch is retried. The requirement ends with the release.
func TestReplacementsOfReturns(t *testing.T) {
	for name, test := range map[string]struct {
		released *v1.Pod
		fail     bool // the first patch
		want     int
	}{
		"returns to spot":             {released: released("web-r", "web-old", time.Second, true), want: 1},
		"patch refused once":          {released: released("web-r", "web-old", time.Second, true), fail: true, want: 1},
		"returns to room that exists": {released: released("web-r", "web-old", time.Second, false)},
		"released long ago":           {released: released("web-r", "web-old", 2*time.Hour, true)},
		"other revision":              {released: released("other-r", "other-old", time.Second, true)},
		"no release":                  {released: clustertest.Run("o", clustertest.NewPod("web-old", clustertest.OwnedBy("ReplicaSet", "web-r")))},
	} {
		t.Run(name, func(t *testing.T) {
			earlier := unschedulable(gated("ReplicaSet", "web-r", "web-earlier"), time.Hour, "spot")
			earlier.Spec.NodeName, earlier.Status.Conditions = "s", nil // the replacement of an earlier return
			objects := append(clustertest.NewDeployment("web", 6), pooled("o", "on-demand", "a"), pooled("s", "spot", "a"), earlier, test.released)
			w := start(t, decision.WorkloadSettings{FallbackAfter: decision.Never}, objects...)
			fail := test.fail
			w.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				failed := fail
				fail = false
				return failed, nil, refusedOnce(failed)
			})
			w.create(gated("ReplicaSet", "web-r", "web-0"))
			w.assigned()
			w.create(gated("ReplicaSet", "web-r", "web-1"), gated("ReplicaSet", "web-r", "web-2"))
			got := w.assigned()
			delete(got, "web-earlier")
			if n := count(got, "spot"); n != test.want {
				t.Errorf("assigned %v, want %d on spot", got, test.want)
			}
			if err := w.client.CoreV1().Pods("shop").Delete(t.Context(), test.released.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.until("the release has ended", func() bool { return !w.owners.HasReleased(workload.RevisionOf(earlier), "", time.Now()) })
			w.create(gated("ReplicaSet", "web-r", "web-3"))
			if got := w.assigned(); got["web-3"] != "any" {
				t.Errorf("assigned %v, want web-3 without a requirement", got)
			}
		})
	}
}

// refusedOnce returns an error if failed is true.
func refusedOnce(failed bool) error {
	if failed {
		return apierrors.NewTooManyRequests("not now", 1)
	}
	return nil
}
