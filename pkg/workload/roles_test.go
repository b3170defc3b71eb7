package workload_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The pods of one controller with these labels and annotations are groups of their own, each with
// its own replica count. Pods of one template have no role.
func TestRoles(t *testing.T) {
	type texts = map[string]string
	cases := map[string]struct {
		owner               string
		labels, annotations texts
		want                string
	}{
		"Ray head":               {"ray.io/v1/RayCluster", texts{"ray.io/node-type": "head", "ray.io/group": "headgroup"}, nil, "head, headgroup"},
		"Ray worker":             {"ray.io/v1/RayCluster", texts{"ray.io/node-type": "worker"}, nil, "worker"},
		"settings":               {"ray.io/v1/RayCluster", texts{"ray.io/node-type": "head"}, texts{spot.MinOnDemandAnnotation: "100%"}, `head, min-on-demand="100%"`},
		"two settings":           {"ray.io/v1/RayCluster", nil, texts{spot.OverflowAnnotation: "Never", spot.MinOnDemandAnnotation: "1"}, `min-on-demand="1", overflow="Never"`},
		"settings of CloneSet":   {"CloneSet", nil, texts{spot.MinOnDemandAnnotation: "2"}, `min-on-demand="2"`},
		"state is no setting":    {"CloneSet", nil, texts{spot.AssignedAnnotation: "spot: x", "other": "y"}, ""},
		"impossible value":       {"CloneSet", nil, texts{spot.MinOnDemandAnnotation: "a\nb"}, `min-on-demand="a\nb"`},
		"long value":             {"CloneSet", nil, texts{spot.MinOnDemandAnnotation: strings.Repeat("1", 100_000)}, ""},
		"PyTorchJob":             {"kubeflow.org/v1/PyTorchJob", texts{"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/job-role": "master"}, nil, "master"},
		"MPIJob":                 {"kubeflow.org/v2beta1/MPIJob", texts{"training.kubeflow.org/job-role": "worker"}, nil, "worker"},
		"Spark driver":           {"sparkoperator.k8s.io/v1beta2/SparkApplication", texts{"spark-role": "driver"}, nil, "driver"},
		"executor of its driver": {"v1/Pod", texts{"spark-role": "executor"}, nil, "executor"},
		"JobSet":                 {"jobset.x-k8s.io/v1alpha2/JobSet", texts{"jobset.sigs.k8s.io/replicatedjob-name": "leader"}, nil, "leader"},
		"WebLogic cluster":       {"weblogic.oracle/v9/Domain", texts{"weblogic.serverName": "managed-1", "weblogic.clusterName": "c1"}, nil, "c1"},
		"WebLogic admin server":  {"weblogic.oracle/v9/Domain", texts{"weblogic.serverName": "admin-server", "app": "x"}, nil, ""},
		"copy of a vcluster": {"v1/Service", texts{"vcluster.loft.sh/namespace": "default", "vcluster.loft.sh/label-vc-x-a172cedcae": "db",
			"ray.io/group": "g"}, nil, "g, db, default"},
		"unknown owner": {"v1/Service", texts{"app": "db", "pod-template-hash": "5c4f", "other": "z"}, nil, "5c4f, db"},
		"number":        {"v1/Service", texts{"app": "db", "name": "0"}, nil, "db"},
		"one template":  {"core.strimzi.io/v1/StrimziPodSet", texts{"app": "db", "strimzi.io/pod-name": "o-a"}, nil, ""},
		"ReplicaSet":    {"ReplicaSet", texts{"app.kubernetes.io/component": "x"}, texts{spot.MinOnDemandAnnotation: "1"}, ""},
		"Job":           {"Job", texts{"jobset.sigs.k8s.io/replicatedjob-name": "x"}, texts{spot.MinOnDemandAnnotation: "1"}, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			pod := func(name string) *v1.Pod {
				p := podOf(name, by(test.owner, "o"))
				p.Labels, p.Annotations = test.labels, test.annotations
				return p
			}
			a, b, other := pod("o-a"), pod("o-b"), podOf("o-other", by(test.owner, "o"))
			other.Labels = texts{"dask.org/component": "other"}
			if got := workload.RevisionOf(a).Role; got != test.want {
				t.Fatalf("role %q, want %q", got, test.want)
			}
			if !workload.HasUnsupportedController(a) {
				return
			}
			owners := ownersOf(t, []runtime.Object{a, b, other}...)
			for pod, desired := range map[*v1.Pod]int{a: 2, b: 2, other: 1} {
				subject, err := owners.Subject(pod)
				if err != nil || subject.Pod.Workload.Desired != desired || subject.WorkloadKey != workload.RevisionOf(pod) {
					t.Errorf("%s: %+v, %v; want %d replicas", pod.Name, subject, err, desired)
				}
			}
		})
	}
}

// Names of one pod show nothing about its template, and neither does the version of an image. A
// forged text of any length gives a short role.
func TestRolesByTemplate(t *testing.T) {
	pod := podOf("db-0-x-ns-x-vc", by("v1/Service", "vc"))
	pod.Labels = map[string]string{"app": "db-0", "name": pod.Name, "tier": "data"}
	pod.Spec.Containers = []v1.Container{{Name: "main", Image: "registry:5000/team/db:v1@sha256:0"}, {Name: "proxy", Image: "proxy"}}
	if got, want := workload.RevisionOf(pod).Role, "data, main, db, proxy"; got != want {
		t.Errorf("role %q, want %q", got, want)
	}
	for range 1000 {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: rand.Text()})
	}
	if role := workload.RevisionOf(pod).Role; len(role) > 64 {
		t.Errorf("a role of %d bytes", len(role))
	}
}

// The group is the replica: a floor contains all pods of the first groups. The annotations of the
// leaders' StatefulSet count, so that leaders and workers have one floor.
func TestGroupsWithLeaders(t *testing.T) {
	leaders, other := clustertest.NewStatefulSet("lws", 4), clustertest.NewStatefulSet("web", 9)
	leaders.Annotations = map[string]string{spot.MinOnDemandAnnotation: "30%"}
	for leader, want := range map[string]string{
		"lws-0": "100%", "lws-1": "100%", "lws-2": "0%", "lws-9": "0%", // 30% of 4 groups
		"gone-0": "25%", "lws": "25%", "lws-x": "25%", "": "25%", // no group
	} {
		workers := clustertest.NewStatefulSet("workers", 2)
		workers.OwnerReferences = []metav1.OwnerReference{by("v1/Pod", leader)}
		subject, err := ownersOf(t, leaders, other, workers).Subject(podOf("workers-1", by("StatefulSet", "workers")))
		if err != nil {
			t.Fatal(err)
		}
		policy := &decision.Policy{Defaults: decision.WorkloadSettings{MinOnDemand: decision.Percent(25)}}
		settings, _ := policy.Settings(&subject.Pod)
		if got := settings.MinOnDemand.String(); got != want {
			t.Errorf("the leader %q: minOnDemand %s, want %s", leader, got, want)
		}
		if inGroup := subject.GroupsKey != (workload.OwnerKey{}); inGroup != (want != "25%") {
			t.Errorf("the leader %q: in a group is %v", leader, inGroup)
		}
	}
}

// A controller of Jobs may restart a failed one. Forged labels of it change nothing.
func TestJobThatMayBeRestarted(t *testing.T) {
	for owner, want := range map[string]decision.Batch{
		"jobset.x-k8s.io/v1alpha2/JobSet": decision.MaybeRetriable, "batch/v1/CronJob": decision.NotRetriable,
	} {
		job := clustertest.NewJob("sum", 1)
		job.Spec.BackoffLimit, job.OwnerReferences = new(int32(0)), []metav1.OwnerReference{by(owner, "o")}
		pod := podOf("sum-a", by("Job", "sum"))
		pod.Labels = map[string]string{"jobset.sigs.k8s.io/jobset-name": "o"}
		if subject, err := ownersOf(t, job).Subject(pod); err != nil || subject.Pod.Workload.Batch != want {
			t.Errorf("%s: %+v, %v; want %d", owner, subject, err, want)
		}
	}
}

// Pods are unlike if most groups of equal pods have one pod.
func TestUnlike(t *testing.T) {
	type labels = map[string]string
	for name, test := range map[string]struct {
		owner string
		pods  []labels
		want  bool
	}{
		"equal":              {"v1/Service", []labels{{"a": "x"}, {"a": "x"}}, false},
		"one":                {"v1/Service", []labels{{"a": "x"}}, false},
		"all differ":         {"v1/Service", []labels{{"a": "x"}, {"a": "y"}}, true},
		"one of two groups":  {"v1/Service", []labels{{"a": "x"}, {"a": "y"}, {"a": "y"}}, true},
		"two roles":          {"v1/Service", []labels{{"app": "x"}, {"app": "x"}, {"app": "y"}, {"app": "y"}}, false},
		"groups in one role": {"v1/Service", []labels{{"of": "x"}, {"of": "x"}, {"of": "y"}, {"of": "y"}}, true},
		"two revisions":      {"v1/Service", []labels{{"pod-template-hash": "x"}, {"pod-template-hash": "x"}, {"pod-template-hash": "y"}, {"pod-template-hash": "y"}}, false},
		"two of three":       {"v1/Service", []labels{{"a": "x"}, {"a": "y"}, {"a": "z"}, {"a": "z"}}, true},
		"by index":           {"v1/Service", []labels{{"a": "0"}, {"a": "1"}}, false},
		"known owner":        {"ray.io/v1/RayCluster", []labels{{"a": "x"}, {"a": "y"}}, false},
		"known label":        {"v1/Pod", []labels{{"spark-role": "executor", "id": "x"}, {"spark-role": "executor", "id": "y"}}, false},
		"copies of vcluster": {"v1/Service", []labels{{"vcluster.loft.sh/namespace": "a"}, {"vcluster.loft.sh/namespace": "b"}}, false},
		"own pods":           {"ReplicaSet", []labels{{"a": "x"}, {"a": "y"}}, false},
	} {
		var pods []*v1.Pod
		for i, l := range test.pods {
			pods = append(pods, podOf(fmt.Sprint("p-", i), by(test.owner, "o")))
			pods[i].Labels = l
		}
		key := workload.KeyOf(pods[0].Namespace, &pods[0].OwnerReferences[0])
		if test.owner == "v1/Pod" {
			key.Kind = "PodsOfPod"
		}
		if got := workload.Unlike(pods)[key]; got != test.want {
			t.Errorf("%s: unlike is %v", name, got)
		}
	}
}

// Equal texts in other fields are not equal keys.
func TestRolesInIndex(t *testing.T) {
	a, b := podOf("a", by("CloneSet", "o")), podOf("b", by("CloneSet", "o"))
	a.Labels, b.OwnerReferences[0].UID = map[string]string{"spark-role": "x"}, `"x"`+clustertest.UID("o")
	if workload.RevisionOf(a).Index() == workload.RevisionOf(b).Index() {
		t.Errorf("two groups have the index value %s", workload.RevisionOf(a).Index())
	}
}

// The scheduler computes the key of every pod on every changed node.
func TestRevisionOfDoesNotAllocate(t *testing.T) {
	pods := []*v1.Pod{podOf("a", by("ReplicaSet", "rs")), podOf("a-0", by("StatefulSet", "a")), podOf("w", by("ray.io/v1/RayCluster", "r"))}
	for _, pod := range pods {
		pod.Labels, pod.Annotations = map[string]string{"ray.io/node-type": "worker"}, map[string]string{spot.MinOnDemandAnnotation: "1"}
	}
	pods[2].Annotations = nil
	for _, pod := range pods {
		if n := testing.AllocsPerRun(100, func() { workload.RevisionOf(pod) }); n != 0 {
			t.Errorf("%s: %v allocations", pod.OwnerReferences[0].Kind, n)
		}
	}
}
