package round

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// A setting on an object of a kind that is not read is reported once an hour, however many roles
// the object has. The object is read as often. Other objects, and other answers, are no problem.
func TestUnreadAnnotations(t *testing.T) {
	setting := map[string]string{spot.MinOnDemandAnnotation: "2"}
	for name, test := range map[string]struct {
		owner       string
		annotations map[string]string
		uid         string
		change      func(*snapshot.Workload)
		err         error
		reads       int
		want        bool
	}{
		"setting":              {"CloneSet", setting, "c", nil, nil, 2, true},
		"other annotation":     {"CloneSet", map[string]string{spot.Domain + "assigned": "x"}, "c", nil, nil, 2, false},
		"another object":       {"CloneSet", setting, "other", nil, nil, 2, false},
		"no right":             {"CloneSet", setting, "c", nil, apierrors.NewForbidden(v1.Resource("x"), "c", nil), 2, false},
		"supported kind":       {"ReplicaSet", setting, "c", nil, nil, 0, false},
		"pods of a Deployment": {"Deployment", setting, "c", nil, nil, 0, false},
		"another scheduler":    {"CloneSet", setting, "c", func(w *snapshot.Workload) { w.InScope = false }, nil, 0, false},
		"forged kind":          {"CloneSet", setting, "c", func(w *snapshot.Workload) { w.Kind = "../other/secret" }, nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scheme := fake.NewTestScheme()
				if err := metav1.AddMetaToScheme(scheme); err != nil {
					t.Fatal(err)
				}
				client := fake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
					TypeMeta:   metav1.TypeMeta{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: clustertest.UID(test.uid), Annotations: test.annotations},
				})
				reads := 0
				client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					reads++
					return test.err != nil, nil, test.err
				})
				recorder := events.NewFakeRecorder(9)
				s := &snapshot.Snapshot{Now: time.Now()}
				for _, role := range []string{"head", "worker"} {
					pod := clustertest.NewPod(role, clustertest.OwnedBy(test.owner, "c"))
					pod.Labels = map[string]string{"ray.io/node-type": role}
					ref := pod.OwnerReferences[0]
					w := &snapshot.Workload{Key: workload.RevisionOf(pod), APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: "shop", Name: "c", InScope: true}
					w.Revisions = []*snapshot.Revision{{Workload: w, Pods: []*snapshot.Pod{{Pod: pod}}}}
					if test.change != nil {
						test.change(w)
					}
					s.Workloads = append(s.Workloads, w)
				}
				u := unreadAnnotations{read: map[workload.OwnerKey]time.Time{}}
				for range 3 { // at 0, 30 and 60 minutes
					u.observe(s, client, recorder)
					synctest.Wait()
					s.Now = s.Now.Add(30 * time.Minute)
				}
				if reads != test.reads {
					t.Errorf("%d reads, want %d", reads, test.reads)
				}
				want := 0
				if test.want {
					want = 2
				}
				if got := len(recorder.Events); got != want {
					t.Fatalf("%d events, want %d", got, want)
				}
				for range want {
					if got := <-recorder.Events; !strings.Contains(got, "Warning AnnotationNotRead Annotation spot-aware-scheduler.io/min-on-demand has no effect on a CloneSet") {
						t.Errorf("event %q", got)
					}
				}
			})
		})
	}
}
