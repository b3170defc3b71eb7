package disruptions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/disruptions"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const profile, namespace = "spot-aware-scheduler", "shop"

func newJob(edits ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "batch", UID: "batch-uid", ResourceVersion: "1", Annotations: map[string]string{spot.DisruptionLimitAnnotation: "3"},
	}}
	for _, edit := range edits {
		edit(j)
	}
	return j
}

func annotation(key, value string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Annotations[key] = value }
}

// newPod returns a failed and disrupted pod of the Job.
func newPod(name string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{batchv1.ControllerUidLabel: "batch-uid"}, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: "batch", UID: "batch-uid", Controller: ptr.To(true),
		}}},
		Spec:   v1.PodSpec{SchedulerName: profile},
		Status: v1.PodStatus{Phase: v1.PodFailed, Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func terminating(p *v1.Pod) {
	p.Status.Phase, p.DeletionTimestamp, p.Finalizers = v1.PodRunning, ptr.To(metav1.Now()), []string{batchv1.JobTrackingFinalizer}
}

// cluster has a fake API server. It does not filter by field, so both informers have all pods.
type cluster struct {
	*testing.T
	client *fake.Clientset
	policy decision.Policy

	mu sync.Mutex
	// conflicts counts the patches whose resourceVersion was outdated.
	conflicts int
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	c := &cluster{T: t, client: fake.NewClientset(objects...)}
	c.client.PrependReactor("patch", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		job, err := c.patch(action.(clienttesting.PatchAction))
		return true, job, err
	})
	return c
}

// patch applies a patch of annotations to a Job. Unlike the fake API server, it requires the
// resourceVersion in the patch, and changes it.
func (c *cluster) patch(action clienttesting.PatchAction) (*batchv1.Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := batchv1.SchemeGroupVersion.WithResource("jobs")
	object, err := c.client.Tracker().Get(resource, action.GetNamespace(), action.GetName())
	if err != nil {
		return nil, err
	}
	job, patch := object.(*batchv1.Job), &batchv1.Job{}
	if err := json.Unmarshal(action.GetPatch(), patch); err != nil {
		return nil, err
	}
	if patch.ResourceVersion != job.ResourceVersion || patch.UID != job.UID {
		c.conflicts++
		return nil, apierrors.NewConflict(resource.GroupResource(), action.GetName(), errors.New("outdated"))
	}
	maps.Copy(job.Annotations, patch.Annotations)
	job.ResourceVersion += "0"
	return job, c.client.Tracker().Update(resource, job, action.GetNamespace())
}

// run runs a Counter on new informers until it has nothing left to do.
func (c *cluster) run() {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithTransform(transform.Trim))
	failed := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithTransform(transform.FailedPod))
	counter, err := disruptions.New(factory, failed, c.client, workload.Scope{Profile: profile}, &c.policy)
	if err != nil {
		c.Fatal(err)
	}
	for _, f := range []informers.SharedInformerFactory{factory, failed} {
		f.Start(ctx.Done())
		f.WaitForCacheSync(ctx.Done())
		defer f.Shutdown()
	}
	done := make(chan error, 1)
	go func() { done <- counter.Run(ctx) }()
	time.Sleep(time.Hour) // of the synctest bubble
	synctest.Wait()
	cancel()
	if err := <-done; err != nil {
		c.Error(err)
	}
}

// counted returns the annotations of the Job that the Counter writes.
func (c *cluster) counted() (disruptions, pods string) {
	c.Helper()
	job, err := c.client.BatchV1().Jobs(namespace).Get(c.Context(), "batch", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return job.Annotations[spot.DisruptionsAnnotation], job.Annotations[spot.DisruptedPodsAnnotation]
}

func TestCount(t *testing.T) {
	for name, test := range map[string]struct {
		job      *batchv1.Job
		pods     []*v1.Pod
		policy   decision.Policy
		want     string
		wantPods string
	}{
		"a failed pod":      {job: newJob(), pods: []*v1.Pod{newPod("a")}, want: "1", wantPods: "a"},
		"a terminating pod": {job: newJob(), pods: []*v1.Pod{newPod("a", terminating)}, want: "1", wantPods: "a"},
		"a pod that was counted before": {
			job:  newJob(annotation(spot.DisruptionsAnnotation, "1"), annotation(spot.DisruptedPodsAnnotation, "a")),
			pods: []*v1.Pod{newPod("a")}, want: "1", wantPods: "a",
		},
		"one more": {
			job:  newJob(annotation(spot.DisruptionsAnnotation, "1"), annotation(spot.DisruptedPodsAnnotation, "a")),
			pods: []*v1.Pod{newPod("a"), newPod("b")}, want: "2", wantPods: "a,b",
		},
		"at the limit": {
			job:  newJob(annotation(spot.DisruptionsAnnotation, "3"), annotation(spot.DisruptedPodsAnnotation, "a,b,c")),
			pods: []*v1.Pod{newPod("d")}, want: "3", wantPods: "a,b,c",
		},
		"a count and a list that a user has made invalid": {
			job:  newJob(annotation(spot.DisruptionsAnnotation, "many"), annotation(spot.DisruptedPodsAnnotation, ",,x,y,z,")),
			pods: []*v1.Pod{newPod("a")}, want: "1", wantPods: "z,,a",
		},
		"the limit of a rule": {
			job: newJob(func(j *batchv1.Job) { j.Annotations = map[string]string{} }), pods: []*v1.Pod{newPod("a", func(p *v1.Pod) { p.Labels["tier"] = "x" })},
			policy: decision.Policy{Rules: []decision.Rule{{
				PodSelector: func(labels map[string]string) bool { return labels["tier"] == "x" },
				Overrides:   clustertest.Overrides("disruptionLimit", "1"),
			}}},
			want: "1", wantPods: "a",
		},
		"the limit of the pod": {
			job: newJob(func(j *batchv1.Job) { j.Annotations = map[string]string{} }), pods: []*v1.Pod{newPod("a", func(p *v1.Pod) {
				p.Annotations = map[string]string{spot.DisruptionLimitAnnotation: "2"}
			})}, want: "1", wantPods: "a",
		},
		"podFailurePolicy Ignore": {
			job: newJob(func(j *batchv1.Job) {
				j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
					Action:          batchv1.PodFailurePolicyActionIgnore,
					OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
				}}}
			}),
			pods: []*v1.Pod{newPod("a")}, want: "1", wantPods: "a",
		},

		"no limit":        {job: newJob(func(j *batchv1.Job) { j.Annotations = map[string]string{} }), pods: []*v1.Pod{newPod("a")}},
		"never":           {job: newJob(annotation(spot.DisruptionLimitAnnotation, "never")), pods: []*v1.Pod{newPod("a")}},
		"a completed Job": {job: newJob(func(j *batchv1.Job) { j.Status.CompletionTime = ptr.To(metav1.Now()) }), pods: []*v1.Pod{newPod("a")}},
		"a Job being deleted": {job: newJob(func(j *batchv1.Job) {
			j.DeletionTimestamp, j.Finalizers = ptr.To(metav1.Now()), []string{metav1.FinalizerDeleteDependents}
		}), pods: []*v1.Pod{newPod("a")}},
		"another Job of the same name": {job: newJob(func(j *batchv1.Job) { j.UID = "another" }), pods: []*v1.Pod{newPod("a")}},
		"a pod of another scheduler":   {job: newJob(), pods: []*v1.Pod{newPod("a", func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" })}},
		"a failure":                    {job: newJob(), pods: []*v1.Pod{newPod("a", func(p *v1.Pod) { p.Status.Conditions = nil })}},
		"a disruption that did not happen": {job: newJob(), pods: []*v1.Pod{newPod("a", func(p *v1.Pod) {
			p.Status.Conditions[0].Status = v1.ConditionFalse
		})}},
		"a disruption that has not happened yet": {job: newJob(), pods: []*v1.Pod{newPod("a", func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })}},
		"a pod of another controller": {job: newJob(), pods: []*v1.Pod{newPod("a", func(p *v1.Pod) {
			p.OwnerReferences[0].APIVersion = "example.com/v1"
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []runtime.Object{test.job}
				for _, p := range test.pods {
					objects = append(objects, p)
				}
				c := newCluster(t, objects...)
				c.policy = test.policy
				for range 2 { // the second Counter is that of the next leader
					c.run()
					got, pods := c.counted()
					clustertest.Equal(t, "disruptions and pods", []string{test.want, test.wantPods}, []string{got, pods})
				}
			})
		})
	}
}

// TestCountsEachPodOnce: many pods of a Job end at once, and the Counter sees each in both
// informers. Conflicts with an outdated cache are retried.
func TestCountsEachPodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{newJob(annotation(spot.DisruptionLimitAnnotation, "50"))}
		for i := range 40 {
			objects = append(objects, newPod(fmt.Sprintf("pod-%d", i)))
		}
		c := newCluster(t, objects...)
		c.run()
		n, pods := c.counted()
		uids := map[string]bool{}
		for _, uid := range strings.Split(pods, ",") {
			uids[uid] = true
		}
		if n != "40" || len(uids) != 40 {
			t.Errorf("%s disruptions of %d pods, want 40", n, len(uids))
		}
		if c.conflicts == 0 {
			t.Error("no write met a conflict: the test does not show that they are retried")
		}
	})
}

// The API server refuses every write to a Job whose annotations a user has filled. Its pods do not
// stay in the queue.
func TestInvalidJobIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, newJob(), newPod("a"))
		writes := 0
		c.client.PrependReactor("patch", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes++
			return true, nil, apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "batch", nil)
		})
		c.run()
		if writes == 0 || writes > 2 { // the pod is in both informers
			t.Errorf("%d writes in an hour, want one for each informer", writes)
		}
	})
}
