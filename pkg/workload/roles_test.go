package workload_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
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
		"ReplicaSet":             {"ReplicaSet", texts{"app.kubernetes.io/component": "x"}, texts{spot.MinOnDemandAnnotation: "1"}, ""},
		"Job":                    {"Job", texts{"jobset.sigs.k8s.io/replicatedjob-name": "x"}, texts{spot.MinOnDemandAnnotation: "1"}, ""},
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
