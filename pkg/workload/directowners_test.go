package workload_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// labelled returns pod with a label.
func labelled(pod *v1.Pod, key, value string) *v1.Pod {
	pod.Labels = map[string]string{key: value}
	return pod
}

// Pods that an object controls without having created them are a group of their own. It is neither
// that of the object's own pods nor that of the object itself, and needs no object in the cache.
func TestPodsOfOthers(t *testing.T) {
	deploymentPod := func(name string) *v1.Pod { return podOf(name, by("ReplicaSet", "web-r")) }
	job := clustertest.NewJob("sum", 7)
	for name, test := range map[string]struct {
		kind string
		// own are pods of the object, and others are the pods that it only controls.
		own, others []*v1.Pod
		caches      []runtime.Object
	}{
		"Deployment": {
			kind: "PodsOfDeployment", own: []*v1.Pod{deploymentPod("web-r-1"), deploymentPod("web-r-2")},
			others: []*v1.Pod{podOf("web-task-1", by("Deployment", "web")), podOf("web-task-2", by("Deployment", "web"))},
			caches: clustertest.NewDeployment("web", 5),
		},
		"Pod": {
			kind: "PodsOfPod", own: []*v1.Pod{podOf("driver")},
			others: []*v1.Pod{podOf("exec-1", by("v1/Pod", "driver")), podOf("exec-2", by("v1/Pod", "driver")), podOf("exec-3", by("v1/Pod", "driver"))},
		},
		"StatefulSet": {
			kind: "PodsOfStatefulSet", own: []*v1.Pod{podOf("db-0", by("StatefulSet", "db")), podOf("db-11", by("StatefulSet", "db"))},
			others: []*v1.Pod{
				podOf("db", by("StatefulSet", "db")), podOf("db-x", by("StatefulSet", "db")), podOf("db-0-1", by("StatefulSet", "db")),
				podOf("db--1", by("StatefulSet", "db")), podOf("backup-1", by("StatefulSet", "db")), podOf("db-99999999999", by("StatefulSet", "db")),
			},
			caches: []runtime.Object{clustertest.NewStatefulSet("db", 12)},
		},
		"Job": {
			kind: "PodsOfJob", own: []*v1.Pod{podOf("sum-x", by("Job", "sum")), labelled(podOf("truncated", by("Job", "sum")), batchv1.ControllerUidLabel, "sum-uid")},
			others: []*v1.Pod{podOf("helper", by("Job", "sum")), labelled(podOf("other", by("Job", "sum")), batchv1.ControllerUidLabel, "other-uid")},
			caches: []runtime.Object{job},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := test.caches
			for _, pod := range test.others { // of one template
				delete(pod.Labels, "app")
			}
			for _, pod := range append(test.own, test.others...) {
				all = append(all, pod)
			}
			var owners []*workload.Owners
			if owners = append(owners, ownersOf(t, all...)); name != "Pod" {
				var pods []runtime.Object
				for _, pod := range test.others {
					pods = append(pods, pod)
				}
				owners = append(owners, ownersOf(t, pods...)) // the object is not in the cache
			}
			own, err := owners[0].Subject(test.own[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, owners := range owners {
				for _, pod := range test.others {
					subject, err := owners.Subject(pod)
					if err != nil {
						t.Fatalf("%s: %v", pod.Name, err)
					}
					if w := subject.Pod.Workload; w.Kind != test.kind || w.Desired != len(test.others) || w.Ordered || w.Batch != decision.NotBatch {
						t.Errorf("%s: %+v, want %d pods of kind %s", pod.Name, w, len(test.others), test.kind)
					}
					if subject.RevisionKey != workload.RevisionOf(pod) || subject.WorkloadKey != subject.RevisionKey {
						t.Errorf("%s: keys %v, %v; want %v", pod.Name, subject.RevisionKey, subject.WorkloadKey, workload.RevisionOf(pod))
					}
					if subject.RevisionKey == own.RevisionKey || subject.RevisionKey == own.WorkloadKey {
						t.Errorf("%s: has the key of the object's own pods: %v", pod.Name, subject.RevisionKey)
					}
					if _, objects, _ := owners.SubjectAndObjects(pod); !workload.HasUnsupportedController(pod) || objects != (workload.Objects{}) || workload.OfJob(pod) {
						t.Errorf("%s: counts as a pod that its controller creates", pod.Name)
					}
				}
			}
			for _, pod := range test.own {
				if subject, err := owners[0].Subject(pod); err != nil || subject.RevisionKey != own.RevisionKey || workload.HasUnsupportedController(pod) {
					t.Errorf("%s: %+v, %v; want a pod of %v", pod.Name, subject, err, own.RevisionKey)
				}
			}
		})
	}
}

// A pod that claims to be released counts nowhere, so it neither belongs to the group of the pods
// that its Deployment controls nor waits for an owner.
func TestReleasedIsNotOfTheGroup(t *testing.T) {
	released := podOf("web-r-1", by("Deployment", "web"))
	released.OwnerReferences = append(released.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-r", UID: "web-r-uid"})
	task := podOf("task", by("Deployment", "web"))
	owners := ownersOf(t, append(clustertest.NewDeployment("web", 3), released, task)...)
	if workload.RevisionOf(released) == workload.RevisionOf(task) || workload.HasUnsupportedController(released) {
		t.Error("the released pod counts in the group of the Deployment's other pods")
	}
	if subject, err := owners.Subject(task); err != nil || subject.Pod.Workload.Desired != 1 {
		t.Errorf("%+v, %v; want a group of 1", subject, err)
	}
	subject, err := owners.Subject(released)
	if err != nil || subject.Pod.Workload.Desired != 1 || subject.WorkloadKey != workload.RevisionOf(task) {
		t.Errorf("a pod that claims a release: %+v, %v; want a group of 1", subject, err)
	}
}

// rolloutOf returns the ReplicaSet of a revision of an Argo Rollout. An annotation "" is omitted.
func rolloutOf(rollout, name string, replicas int32, desired, revision string) *appsv1.ReplicaSet {
	rs := replicaSet(name, ptr.To(replicas), by("argoproj.io/v1alpha1/Rollout", rollout))
	for key, value := range map[string]string{"rollout.argoproj.io/desired-replicas": desired, "rollout.argoproj.io/revision": revision} {
		if value != "" {
			rs.Annotations[key] = value
		}
	}
	return rs
}

func TestDesiredOfRollout(t *testing.T) {
	for desired, want := range map[string]int{"10": 10, "0": 0, "": 1, "-3": 1, "many": 1, "1e1": 1, "9999999999": 1, " 10": 1} {
		got, err := ownersOf(t, rolloutOf("shop", "shop-canary", 1, desired, "2")).Subject(podOf("p", by("ReplicaSet", "shop-canary")))
		if err != nil {
			t.Fatal(err)
		}
		if w := got.Pod.Workload; w.Desired != want || w.Kind != "Rollout" || w.Revision != "shop/shop-canary" || got.RevisionNumber != 2 {
			t.Errorf("%q: %+v, revision %d; want %d replicas of a Rollout, revision 2", desired, w, got.RevisionNumber, want)
		}
	}
}

func TestOlderRevisionsOfRollout(t *testing.T) {
	owners := ownersOf(t, rolloutOf("shop", "a", 9, "10", "9"), rolloutOf("shop", "b", 1, "10", "10"), rolloutOf("other", "c", 1, "10", "1"))
	for name, want := range map[string]int{"a": 0, "b": 1, "c": 0} {
		subject, err := owners.Subject(podOf("p", by("ReplicaSet", name)))
		if err != nil {
			t.Fatal(err)
		}
		if older, err := owners.OlderRevisions(subject); err != nil || len(older) != want {
			t.Errorf("%s: %v, %v; want %d", name, older, err, want)
		}
	}
}

// Owners that other controllers make are counted, or known by their live pods. None waits.
func TestOwnersOfOtherControllers(t *testing.T) {
	worker := clustertest.NewStatefulSet("serve-0", 3) // of a LeaderWorkerSet, controlled by the leader
	worker.OwnerReferences, worker.Spec.Ordinals = []metav1.OwnerReference{by("v1/Pod", "serve-0")}, &appsv1.StatefulSetOrdinals{Start: 1}
	leaders := clustertest.NewStatefulSet("serve", 2)
	leaders.OwnerReferences = []metav1.OwnerReference{by("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "serve")}
	ofJob := func(name string, owner metav1.OwnerReference) *batchv1.Job {
		job := clustertest.NewJob(name, 4)
		job.OwnerReferences = []metav1.OwnerReference{owner}
		return job
	}
	knative := clustertest.NewDeployment("hello-1-deployment", 2)
	knative[0].(*appsv1.Deployment).OwnerReferences = []metav1.OwnerReference{by("serving.knative.dev/v1/Revision", "hello-1")}
	advanced := by("apps.kruise.io/v1beta1/StatefulSet", "db")
	caches := append(knative, worker, leaders,
		ofJob("train-workers-0", by("jobset.x-k8s.io/v1alpha2/JobSet", "train")), ofJob("queue-x7d2k", by("keda.sh/v1alpha1/ScaledJob", "queue")),
		podOf("db-0", advanced), podOf("db-1", advanced))
	owners := ownersOf(t, caches...)
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want decision.Workload
	}{
		"JobSet":                  {podOf("train-workers-0-0-abcde", by("Job", "train-workers-0")), decision.Workload{Kind: "Job", Desired: 4, Batch: decision.Retriable}},
		"ScaledJob":               {podOf("queue-x7d2k-abcde", by("Job", "queue-x7d2k")), decision.Workload{Kind: "Job", Desired: 4, Batch: decision.Retriable}},
		"LeaderWorkerSet, leader": {podOf("serve-0", by("StatefulSet", "serve")), decision.Workload{Kind: "StatefulSet", Desired: 2, Ordered: true, BlocksLater: true}},
		"LeaderWorkerSet, worker": {podOf("serve-0-2", by("StatefulSet", "serve-0")), decision.Workload{Kind: "StatefulSet", Desired: 3, Ordered: true, BlocksLater: true, Ordinal: 1}},
		"AdvancedStatefulSet":     {podOf("db-1", advanced), decision.Workload{Kind: "StatefulSet", Desired: 2}},
		"Knative revision":        {podOf("hello-1-deployment-r-x", by("ReplicaSet", "hello-1-deployment-r")), decision.Workload{Kind: "Deployment", Desired: 2}},
	} {
		subject, err := owners.Subject(test.pod)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := subject.Pod.Workload
		got.Revision, got.Annotations = "", nil
		if got.Kind != test.want.Kind || got.Desired != test.want.Desired || got.Ordered != test.want.Ordered || got.Ordinal != test.want.Ordinal || got.Batch != test.want.Batch {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
