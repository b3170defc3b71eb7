package workload_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node/nodetest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var builtinPolicy = &decision.Policy{LabelGrace: 30 * time.Second, CapacityLabels: providers.CapacityLabels()}

// Short names of the builders.
var (
	meta  = clustertest.Meta
	by    = clustertest.OwnedBy
	podOf = clustertest.NewPod
)

// ownersOf returns Owners under builtinPolicy whose caches contain objects.
func ownersOf(t *testing.T, objects ...runtime.Object) *workload.Owners {
	t.Helper()
	return ownersIn(t, informers.NewSharedInformerFactory(fake.NewClientset(), 0), builtinPolicy, objects...)
}

func ownersIn(t *testing.T, factory informers.SharedInformerFactory, policy *decision.Policy, objects ...runtime.Object) *workload.Owners {
	t.Helper()
	owners, err := workload.NewOwners(factory, policy)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Fill(t, factory, objects...)
	return owners
}

// annotated returns meta with an annotation whose value is the name.
func annotated(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	m := meta(name, owners...)
	m.Annotations = map[string]string{"spot-aware-scheduler.io/of": name}
	return m
}

func replicaSet(name string, replicas *int32, owners ...metav1.OwnerReference) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: annotated(name, owners...), Spec: appsv1.ReplicaSetSpec{Replicas: replicas}}
}

func deployment(name string, replicas *int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: annotated(name), Spec: appsv1.DeploymentSpec{Replicas: replicas}}
}

func statefulSet(name string, replicas *int32, start int32) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: annotated(name), Spec: appsv1.StatefulSetSpec{Replicas: replicas}}
	if start != 0 {
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: start}
	}
	return set
}

func parallel(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	return set
}

func TestSubject(t *testing.T) {
	of := func(name string) map[string]string { return map[string]string{"spot-aware-scheduler.io/of": name} }
	cloneSet := by("CloneSet", "clones")
	clone := func(name string, change func(*v1.Pod)) *v1.Pod {
		pod := podOf(name, cloneSet)
		if change != nil {
			change(pod)
		}
		return pod
	}
	cases := map[string]struct {
		caches                     []runtime.Object
		pod                        *v1.Pod
		want                       decision.Workload
		wantRevision, wantWorkload types.UID
	}{
		"no controller": {
			pod:          podOf("p"),
			want:         decision.Workload{Kind: "Pod", Revision: "shop/p", Desired: 1},
			wantRevision: "p-uid", wantWorkload: "p-uid",
		},
		"an owner that is not the controller": {
			pod:          podOf("p", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c-uid"}),
			want:         decision.Workload{Kind: "Pod", Revision: "shop/p", Desired: 1},
			wantRevision: "p-uid", wantWorkload: "p-uid",
		},
		"Deployment, by its ReplicaSet": {
			caches:       []runtime.Object{replicaSet("web-1", ptr.To[int32](4), by("Deployment", "web")), deployment("web", ptr.To[int32](3))},
			pod:          podOf("p", by("ReplicaSet", "web-1")),
			want:         decision.Workload{Kind: "Deployment", Revision: "shop/web-1", Annotations: of("web"), Desired: 3},
			wantRevision: "web-1-uid", wantWorkload: "web-uid",
		},
		"Deployment without replicas": {
			caches:       []runtime.Object{replicaSet("web-1", nil, by("Deployment", "web")), deployment("web", nil)},
			pod:          podOf("p", by("ReplicaSet", "web-1")),
			want:         decision.Workload{Kind: "Deployment", Revision: "shop/web-1", Annotations: of("web"), Desired: 1},
			wantRevision: "web-1-uid", wantWorkload: "web-uid",
		},
		"Deployment of 0 replicas": {
			caches:       []runtime.Object{replicaSet("web-1", ptr.To[int32](1), by("Deployment", "web")), deployment("web", ptr.To[int32](0))},
			pod:          podOf("p", by("ReplicaSet", "web-1")),
			want:         decision.Workload{Kind: "Deployment", Revision: "shop/web-1", Annotations: of("web"), Desired: 0},
			wantRevision: "web-1-uid", wantWorkload: "web-uid",
		},
		"ReplicaSet without an owner": {
			caches:       []runtime.Object{replicaSet("alone", ptr.To[int32](5))},
			pod:          podOf("p", by("ReplicaSet", "alone")),
			want:         decision.Workload{Kind: "ReplicaSet", Revision: "shop/alone", Annotations: of("alone"), Desired: 5},
			wantRevision: "alone-uid", wantWorkload: "alone-uid",
		},
		"ReplicaSet by a reference of an older version": {
			caches:       []runtime.Object{replicaSet("alone", ptr.To[int32](5))},
			pod:          podOf("p", by("apps/v1beta2/ReplicaSet", "alone")),
			want:         decision.Workload{Kind: "ReplicaSet", Revision: "shop/alone", Annotations: of("alone"), Desired: 5},
			wantRevision: "alone-uid", wantWorkload: "alone-uid",
		},
		"ReplicaSet of an Argo Rollout": {
			caches:       []runtime.Object{replicaSet("canary-1", ptr.To[int32](2), by("argoproj.io/v1alpha1/Rollout", "canary"))},
			pod:          podOf("p", by("ReplicaSet", "canary-1")),
			want:         decision.Workload{Kind: "Rollout", Revision: "shop/canary-1", Annotations: of("canary-1"), Desired: 2},
			wantRevision: "canary-1-uid", wantWorkload: "canary-uid",
		},
		"ReplicaSet without replicas": {
			caches:       []runtime.Object{replicaSet("alone", nil)},
			pod:          podOf("p", by("ReplicaSet", "alone")),
			want:         decision.Workload{Kind: "ReplicaSet", Revision: "shop/alone", Annotations: of("alone"), Desired: 1},
			wantRevision: "alone-uid", wantWorkload: "alone-uid",
		},
		"ReplicationController": {
			caches: []runtime.Object{&v1.ReplicationController{ObjectMeta: annotated("rc"),
				Spec: v1.ReplicationControllerSpec{Replicas: ptr.To[int32](3)}}},
			pod:          podOf("p", by("ReplicationController", "rc")),
			want:         decision.Workload{Kind: "ReplicationController", Revision: "shop/rc", Annotations: of("rc"), Desired: 3},
			wantRevision: "rc-uid", wantWorkload: "rc-uid",
		},
		"StatefulSet": {
			caches:       []runtime.Object{statefulSet("db", ptr.To[int32](5), 0)},
			pod:          podOf("db-3", by("StatefulSet", "db")),
			want:         decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Annotations: of("db"), Desired: 5, Ordered: true, BlocksLater: true, Ordinal: 3},
			wantRevision: "db-uid", wantWorkload: "db-uid",
		},
		"StatefulSet, Parallel pod management": {
			caches:       []runtime.Object{parallel(statefulSet("db", ptr.To[int32](5), 0))},
			pod:          podOf("db-0", by("StatefulSet", "db")),
			want:         decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Annotations: of("db"), Desired: 5, Ordered: true},
			wantRevision: "db-uid", wantWorkload: "db-uid",
		},
		"StatefulSet that starts at 7": {
			caches:       []runtime.Object{statefulSet("db", nil, 7)},
			pod:          podOf("db-7", by("StatefulSet", "db")),
			want:         decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Annotations: of("db"), Desired: 1, Ordered: true, BlocksLater: true, Ordinal: 0},
			wantRevision: "db-uid", wantWorkload: "db-uid",
		},
		"StatefulSet whose name ends in a number": {
			caches:       []runtime.Object{statefulSet("db-2", ptr.To[int32](5), 0)},
			pod:          podOf("db-2-4", by("StatefulSet", "db-2")),
			want:         decision.Workload{Kind: "StatefulSet", Revision: "shop/db-2", Annotations: of("db-2"), Desired: 5, Ordered: true, BlocksLater: true, Ordinal: 4},
			wantRevision: "db-2-uid", wantWorkload: "db-2-uid",
		},
		"Job of a CronJob": {
			caches: []runtime.Object{&batchv1.Job{ObjectMeta: annotated("job", by("batch/v1/CronJob", "nightly")),
				Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](2)}}},
			pod:          podOf("job-x", by("Job", "job")),
			want:         decision.Workload{Kind: "Job", Revision: "shop/job", Annotations: of("job"), Desired: 2, Batch: decision.Retriable},
			wantRevision: "job-uid", wantWorkload: "job-uid",
		},
		"an unsupported kind, by its live pods": {
			caches: []runtime.Object{
				clone("unbound", nil),
				clone("bound", func(p *v1.Pod) { p.Spec.NodeName = "n"; p.Status.Phase = v1.PodRunning }),
				clone("terminating", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: clustertest.Now} }),
				clone("done", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }),
				clone("failed", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }),
				podOf("other", by("CloneSet", "others")),
				podOf("unowned"),
			},
			pod:          podOf("unbound", cloneSet),
			want:         decision.Workload{Kind: "CloneSet", Revision: "shop/clones", Desired: 2},
			wantRevision: "clones-uid", wantWorkload: "clones-uid",
		},
		"a supported kind of another group is unsupported": {
			caches:       []runtime.Object{podOf("p", by("example.com/v1/StatefulSet", "odd"))},
			pod:          podOf("p", by("example.com/v1/StatefulSet", "odd")),
			want:         decision.Workload{Kind: "StatefulSet", Revision: "shop/odd", Desired: 1},
			wantRevision: "odd-uid", wantWorkload: "odd-uid",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ownersOf(t, test.caches...).Subject(test.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Pod.Workload, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Workload (-want +got):\n%s", diff)
			}
			if got.RevisionKey.UID != test.wantRevision || got.WorkloadKey.UID != test.wantWorkload {
				t.Errorf("Revision, Workload = %s, %s; want %s, %s", got.RevisionKey.UID, got.WorkloadKey.UID, test.wantRevision, test.wantWorkload)
			}
		})
	}
}

// The decision receives every field of the pod that a rule may select by.
func TestSubjectPod(t *testing.T) {
	pod := podOf("p")
	pod.Labels, pod.Annotations = map[string]string{"app": "web"}, map[string]string{"a": "b"}
	pod.Spec.PriorityClassName, pod.Spec.Priority = "high", ptr.To[int32](7)
	pod.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "spot"}
	pod.Status.QOSClass = v1.PodQOSGuaranteed
	got, err := ownersOf(t).Subject(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := decision.Pod{
		Namespace: "shop", Labels: pod.Labels, Annotations: pod.Annotations, PriorityClass: "high", Priority: 7, QOSClass: "Guaranteed",
		OnlySpot: true, Workload: decision.Workload{Kind: "Pod", Revision: "shop/p", Desired: 1},
	}
	if diff := cmp.Diff(want, got.Pod); diff != "" {
		t.Errorf("Pod (-want +got):\n%s", diff)
	}
	pod.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "on-demand"}
	if got, err = ownersOf(t).Subject(pod); err != nil {
		t.Fatal(err)
	}
	want.OnlySpot, want.OnlyOnDemand = false, true
	if diff := cmp.Diff(want, got.Pod); diff != "" {
		t.Errorf("Pod that selects on-demand (-want +got):\n%s", diff)
	}
}

// The decision receives the controller's annotations if their values are known.
func TestSubjectAssignment(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		assigned    decision.AssignedCapacity
		granted     decision.Grant
	}{
		"none":             {},
		"spot":             {annotations: map[string]string{spot.AssignedAnnotation: "spot: beyond the floor"}, assigned: decision.AssignedSpot},
		"any":              {annotations: map[string]string{spot.AssignedAnnotation: "any: beyond the floor"}, assigned: decision.AssignedAny},
		"on-demand":        {annotations: map[string]string{spot.AssignedAnnotation: "on-demand: of the floor"}, assigned: decision.AssignedOnDemand},
		"without a reason": {annotations: map[string]string{spot.AssignedAnnotation: "any"}, assigned: decision.AssignedAny},
		"unknown":          {annotations: map[string]string{spot.AssignedAnnotation: "Any: x", spot.GrantedAnnotation: "Fallback"}},
		"empty":            {annotations: map[string]string{spot.AssignedAnnotation: "", spot.GrantedAnnotation: ""}},
		"fallback":         {annotations: map[string]string{spot.GrantedAnnotation: "fallback p-uid"}, granted: decision.GrantFallback},
		"rollout relief":   {annotations: map[string]string{spot.GrantedAnnotation: "rollout-relief p-uid"}, granted: decision.GrantRolloutRelief},
		"of another pod":   {annotations: map[string]string{spot.GrantedAnnotation: "fallback q-uid"}},
		"of no pod":        {annotations: map[string]string{spot.GrantedAnnotation: "fallback"}},
	} {
		pod := podOf("p")
		pod.Annotations = test.annotations
		got, err := ownersOf(t).Subject(pod)
		if err != nil || got.Pod.Assigned != test.assigned || got.Pod.Granted != test.granted {
			t.Errorf("%s: %d, %d, %v; want %d, %d", name, got.Pod.Assigned, got.Pod.Granted, err, test.assigned, test.granted)
		}
	}
}

// The policy of a pod with an unknown owner is never guessed. The error contains the owner.
func TestUnknownOwner(t *testing.T) {
	cases := map[string]struct {
		caches []runtime.Object
		owner  metav1.OwnerReference
		want   workload.UnknownOwner
	}{
		"ReplicaSet": {nil, by("ReplicaSet", "rs"), workload.UnknownOwner{Name: "rs", Key: workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: "rs-uid"}}},
		"Deployment of a known ReplicaSet": {[]runtime.Object{replicaSet("rs", ptr.To[int32](3), by("Deployment", "d"))},
			by("ReplicaSet", "rs"), workload.UnknownOwner{Name: "d", Key: workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "Deployment", UID: "d-uid"}}},
		"StatefulSet":           {nil, by("StatefulSet", "s"), workload.UnknownOwner{Name: "s", Key: workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "StatefulSet", UID: "s-uid"}}},
		"ReplicationController": {nil, by("ReplicationController", "rc"), workload.UnknownOwner{Name: "rc", Key: workload.OwnerKey{Namespace: "shop", Kind: "ReplicationController", UID: "rc-uid"}}},
		"Job":                   {nil, by("Job", "j"), workload.UnknownOwner{Name: "j", Key: workload.OwnerKey{Namespace: "shop", Group: "batch", Kind: "Job", UID: "j-uid"}}},
		"ReplicaSet that is being deleted": {[]runtime.Object{terminating(replicaSet("rs", ptr.To[int32](3)))}, by("ReplicaSet", "rs"),
			workload.UnknownOwner{Name: "rs", Key: workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: "rs-uid"}, BeingDeleted: true}},
		"the same name, recreated": {[]runtime.Object{replicaSet("rs", ptr.To[int32](3))},
			metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "before", Controller: ptr.To(true)},
			workload.UnknownOwner{Name: "rs", Key: workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: "before"}}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ownersOf(t, test.caches...).Subject(podOf(test.owner.Name+"-0", test.owner))
			unknown := (*workload.UnknownOwner)(nil)
			if !errors.As(err, &unknown) {
				t.Fatalf("error %v, want an UnknownOwner", err)
			}
			if diff := cmp.Diff(test.want, *unknown); diff != "" {
				t.Errorf("UnknownOwner (-want +got):\n%s", diff)
			}
		})
	}
}

// terminating returns rs with a deletionTimestamp.
func terminating(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	rs.DeletionTimestamp, rs.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"orphan"}
	return rs
}

// The ReplicaSets of a Deployment still replace lost pods while a finalizer delays its deletion.
func TestDeploymentBeingDeleted(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d", UID: "d-uid",
		DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}, Finalizers: []string{"held"}}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}}
	owners := ownersOf(t, d, replicaSet("rs", ptr.To[int32](3), by("Deployment", "d")))
	if s, err := owners.Subject(podOf("p", by("ReplicaSet", "rs"))); err != nil || s.Pod.Workload.Desired != 3 {
		t.Errorf("Subject = %+v, %v; want 3 desired", s, err)
	}
}

func TestOwnerDeletedMeanwhile(t *testing.T) {
	rs := replicaSet("rs", ptr.To[int32](3))
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	owners, pod := ownersIn(t, factory, builtinPolicy, rs), podOf("p", by("ReplicaSet", "rs"))
	if _, err := owners.Subject(pod); err != nil {
		t.Fatal(err)
	}
	if err := clustertest.CacheOf(t, factory, rs).Delete(rs); err != nil {
		t.Fatal(err)
	}
	if _, err := owners.Subject(pod); !errors.As(err, new(*workload.UnknownOwner)) {
		t.Errorf("error %v, want an UnknownOwner", err)
	}
}

func TestJobs(t *testing.T) {
	ignore := func(condition v1.PodConditionType) *batchv1.PodFailurePolicy {
		return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Values: []int32{1}}},
			{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: condition}}},
		}}
	}
	failing := ignore(v1.DisruptionTarget)
	failing.Rules[1].Action = batchv1.PodFailurePolicyActionFailJob
	counting := ignore(v1.DisruptionTarget)
	counting.Rules[1].Action = batchv1.PodFailurePolicyActionCount
	cases := map[string]struct {
		spec        batchv1.JobSpec
		succeeded   int32
		wantDesired int
		wantBatch   decision.Batch
	}{
		"no fields set":                       {batchv1.JobSpec{}, 0, 1, decision.Retriable},
		"parallelism":                         {batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, 0, 4, decision.Retriable},
		"parallelism 0":                       {batchv1.JobSpec{Parallelism: ptr.To[int32](0)}, 0, 0, decision.Retriable},
		"more completions than parallelism":   {batchv1.JobSpec{Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](9)}, 0, 4, decision.Retriable},
		"fewer completions than parallelism":  {batchv1.JobSpec{Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](2)}, 0, 2, decision.Retriable},
		"few completions left":                {batchv1.JobSpec{Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](9)}, 6, 3, decision.Retriable},
		"no completions left":                 {batchv1.JobSpec{Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](9)}, 9, 0, decision.Retriable},
		"more succeeded than wanted":          {batchv1.JobSpec{Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](9)}, 10, 0, decision.Retriable},
		"a work queue, one done":              {batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, 1, 4, decision.Retriable},
		"backoffLimit 1":                      {batchv1.JobSpec{BackoffLimit: ptr.To[int32](1)}, 0, 1, decision.Retriable},
		"backoffLimit 0":                      {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0)}, 0, 1, decision.NotRetriable},
		"backoffLimitPerIndex 0":              {batchv1.JobSpec{BackoffLimitPerIndex: ptr.To[int32](0)}, 0, 1, decision.NotRetriable},
		"backoffLimitPerIndex 1":              {batchv1.JobSpec{BackoffLimitPerIndex: ptr.To[int32](1)}, 0, 1, decision.Retriable},
		"backoffLimit 0, disruptions ignored": {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), PodFailurePolicy: ignore(v1.DisruptionTarget)}, 0, 1, decision.Retriable},
		"backoffLimit 0, another condition ignored": {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), PodFailurePolicy: ignore("Other")}, 0, 1,
			decision.NotRetriable},
		"disruptions fail the Job, no limit":       {batchv1.JobSpec{PodFailurePolicy: failing}, 0, 1, decision.NotRetriable},
		"disruptions are counted":                  {batchv1.JobSpec{PodFailurePolicy: counting}, 0, 1, decision.Retriable},
		"backoffLimit 0, disruptions fail the Job": {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), PodFailurePolicy: failing}, 0, 1, decision.NotRetriable},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: meta("j"), Spec: test.spec, Status: batchv1.JobStatus{Succeeded: test.succeeded}}
			got, err := ownersOf(t, job).Subject(podOf("j-x", by("Job", "j")))
			if err != nil {
				t.Fatal(err)
			}
			if w := got.Pod.Workload; w.Desired != test.wantDesired || w.Batch != test.wantBatch {
				t.Errorf("Desired, Batch = %d, %d; want %d, %d", w.Desired, w.Batch, test.wantDesired, test.wantBatch)
			}
		})
	}
}

func TestHasOpinion(t *testing.T) {
	mirror := podOf("p", by("v1/Node", "n"))
	mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
	mirrorWithoutOwner := podOf("p")
	mirrorWithoutOwner.Annotations = mirror.Annotations
	cases := map[string]struct {
		pod               *v1.Pod
		want, wantCounted bool
	}{
		"no controller":             {podOf("p"), true, false},
		"ReplicaSet":                {podOf("p", by("ReplicaSet", "rs")), true, false},
		"StatefulSet":               {podOf("s-0", by("StatefulSet", "s")), true, false},
		"ReplicationController":     {podOf("p", by("ReplicationController", "rc")), true, false},
		"Job":                       {podOf("j-x", by("Job", "j")), true, false},
		"unknown kind":              {podOf("p", by("CloneSet", "c")), true, true},
		"DaemonSet":                 {podOf("p", by("DaemonSet", "ds")), false, false},
		"DaemonSet of another kind": {podOf("p", by("apps.kruise.io/v1alpha1/DaemonSet", "ds")), true, true},
		"static pod":                {podOf("p", by("v1/Node", "n")), false, false},
		"mirror pod":                {mirror, false, false},
		"mirror pod without owner":  {mirrorWithoutOwner, false, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := workload.PolicyApplies(test.pod); got != test.want {
				t.Errorf("HasOpinion = %t, want %t", got, test.want)
			}
			if got := workload.HasUnsupportedController(test.pod); got != test.wantCounted {
				t.Errorf("HasUnsupportedController = %t, want %t", got, test.wantCounted)
			}
		})
	}
}

func TestOlderRevisions(t *testing.T) {
	revision := func(name, number, owner string) *appsv1.ReplicaSet {
		rs := replicaSet(name, ptr.To[int32](1), by("Deployment", owner))
		rs.Annotations = map[string]string{"deployment.kubernetes.io/revision": number}
		return rs
	}
	elsewhere := revision("forged", "1", "web")
	elsewhere.Namespace = "elsewhere"
	caches := []runtime.Object{
		deployment("web", ptr.To[int32](3)), revision("web-a", "3", "web"), revision("web-b", "10", "web"), revision("web-c", "2", "web"),
		revision("web-new", "", "web"), // the Deployment controller has not numbered it yet
		// Rolled back: the first ReplicaSet is the newest revision again.
		deployment("rolledback", ptr.To[int32](3)), revision("rolledback-a", "3", "rolledback"), revision("rolledback-b", "2", "rolledback"),
		deployment("other", ptr.To[int32](3)), revision("other-a", "1", "other"),
		replicaSet("alone", ptr.To[int32](3)),
		elsewhere, // in another namespace, with a reference to Deployment web
	}
	cases := map[string]struct {
		pod  *v1.Pod
		want []types.UID
	}{
		"newest, by number not by text": {podOf("p", by("ReplicaSet", "web-b")), []types.UID{"web-a-uid", "web-c-uid", "web-new-uid"}},
		"in the middle":                 {podOf("p", by("ReplicaSet", "web-a")), []types.UID{"web-c-uid", "web-new-uid"}},
		"not numbered yet":              {podOf("p", by("ReplicaSet", "web-new")), nil},
		"revision after a rollback":     {podOf("p", by("ReplicaSet", "rolledback-a")), []types.UID{"rolledback-b-uid"}},
		"revision before a rollback":    {podOf("p", by("ReplicaSet", "rolledback-b")), nil},
		"only revision":                 {podOf("p", by("ReplicaSet", "other-a")), nil},
		"ReplicaSet without an owner":   {podOf("p", by("ReplicaSet", "alone")), nil},
		"no controller":                 {podOf("p"), nil},
	}
	owners := ownersOf(t, caches...)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			subject, err := owners.Subject(test.pod)
			if err != nil {
				t.Fatal(err)
			}
			got, err := owners.OlderRevisions(subject)
			if err != nil {
				t.Fatal(err)
			}
			var uids []types.UID
			for _, key := range got {
				if key.Namespace != "shop" || key.Group != "apps" || key.Kind != "ReplicaSet" {
					t.Errorf("%v is not the key of a ReplicaSet of the namespace", key)
				}
				uids = append(uids, key.UID)
			}
			if diff := cmp.Diff(test.want, uids, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b types.UID) bool { return a < b })); diff != "" {
				t.Errorf("OlderRevisions (-want +got):\n%s", diff)
			}
		})
	}
}

// Tenants write owner references. A reference with the UID of an object of another namespace or
// kind refers to a different owner.
func TestForgedOwners(t *testing.T) {
	genuine := podOf("p", by("ReplicaSet", "web"))
	forged := nodetest.Forged(genuine)
	caches := []runtime.Object{replicaSet("web", ptr.To[int32](3)), genuine}
	revisions := map[workload.OwnerKey]int{}
	for _, pod := range forged {
		caches = append(caches, pod)
		revisions[workload.RevisionOf(pod)]++
	}
	owners := ownersOf(t, caches...)
	for _, pod := range forged {
		t.Run(pod.Name, func(t *testing.T) {
			if workload.RevisionOf(pod) == workload.RevisionOf(genuine) {
				t.Errorf("the pod is counted as a replica of shop/web: %v", workload.RevisionOf(pod))
			}
			if owners.OtherRevision(genuine, pod) || owners.OtherRevision(pod, genuine) {
				t.Error("the pod counts as one of another revision of shop/web")
			}
			subject, err := owners.Subject(pod)
			if unknown := (*workload.UnknownOwner)(nil); err != nil && !errors.As(err, &unknown) {
				t.Fatal(err)
			}
			// An invented controller owns the pods with the same reference, and no others.
			if err == nil && (subject.Pod.Workload.Desired != revisions[workload.RevisionOf(pod)] || subject.WorkloadKey != workload.RevisionOf(pod)) {
				t.Errorf("Subject = %+v, want a workload of %d pods", subject, revisions[workload.RevisionOf(pod)])
			}
		})
	}
	subject, err := owners.Subject(genuine)
	if err != nil || subject.Pod.Workload.Desired != 3 {
		t.Errorf("the genuine pod: %+v, %v; want 3 desired replicas", subject, err)
	}
}

func TestOtherRevision(t *testing.T) {
	owners := ownersOf(t,
		replicaSet("web-a", nil, by("Deployment", "web")), replicaSet("web-b", nil, by("Deployment", "web")),
		replicaSet("api-a", nil, by("Deployment", "api")),
		replicaSet("canary-a", nil, by("argoproj.io/v1alpha1/Rollout", "canary")), replicaSet("canary-b", nil, by("argoproj.io/v1alpha1/Rollout", "canary")),
		replicaSet("odd-a", nil, by("example.com/v1/Rollout", "odd")), replicaSet("odd-b", nil, by("example.com/v1/Rollout", "odd")),
		replicaSet("alone", nil), replicaSet("alone-too", nil),
	)
	of := func(owner string) *v1.Pod { return podOf("p", by("ReplicaSet", owner)) }
	elsewhere := of("web-b")
	elsewhere.Namespace = "elsewhere"
	cases := map[string]struct {
		pod, other *v1.Pod
		want       bool
	}{
		"another revision":          {of("web-a"), of("web-b"), true},
		"the same revision":         {of("web-a"), of("web-a"), false},
		"another Deployment":        {of("web-a"), of("api-a"), false},
		"another namespace":         {of("web-a"), elsewhere, false},
		"no Deployment":             {of("alone"), of("alone-too"), false},
		"a controller of revisions": {of("canary-a"), of("canary-b"), true},
		"an owner of another kind":  {of("odd-a"), of("odd-b"), false},
		"an unknown ReplicaSet":     {of("web-a"), of("gone"), false},
		"without a controller":      {of("web-a"), podOf("q"), false},
		"both without a controller": {podOf("p"), podOf("q"), false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := owners.OtherRevision(test.pod, test.other); got != test.want {
				t.Errorf("OtherRevision = %t, want %t", got, test.want)
			}
		})
	}
}

// Every profile of a scheduler builds its own Owners from the same factory.
func TestNewOwnersTwice(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for profile := range 2 {
		if _, err := workload.NewOwners(factory, builtinPolicy); err != nil {
			t.Fatal(fmt.Errorf("profile %d: %w", profile, err))
		}
	}
}

// The text of a key is read as the same key, also if what tenants write contains slashes.
func TestTextOfOwnerKeys(t *testing.T) {
	for _, want := range []workload.OwnerKey{
		{},
		{Namespace: "shop", Group: "apps", Kind: "Deployment", UID: "web-uid"},
		{Namespace: "shop", Group: "ray.io", Kind: "RayCluster", UID: "train-uid", Role: `head, min-on-demand="1/2"`},
		{Namespace: "shop", Group: "ray.io", Kind: "Ray/Cluster/%2F", UID: "a/b/c%", Role: "/"},
	} {
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got workload.OwnerKey
		if err := got.UnmarshalText(text); err != nil || got != want {
			t.Errorf("%s is read as %+v (%v), want %+v", text, got, err, want)
		}
	}
}
