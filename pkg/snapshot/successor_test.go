package snapshot_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// The successor of a bound pod requests what its owner's template requests, or what the pod
// requests if that is more. Every kind of owner whose template is known counts.
func TestSuccessor(t *testing.T) {
	type template = v1.PodTemplateSpec
	kinds := map[string]func(template) runtime.Object{
		"ReplicaSet": func(t template) runtime.Object {
			return &appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("web"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Template: t}}
		},
		"StatefulSet": func(t template) runtime.Object {
			set := clustertest.NewStatefulSet("web", 1)
			set.Spec.Template = t
			return set
		},
		"ReplicationController": func(t template) runtime.Object {
			return &v1.ReplicationController{ObjectMeta: clustertest.Meta("web"), Spec: v1.ReplicationControllerSpec{Replicas: new(int32(1)), Template: &t}}
		},
		"Job": func(t template) runtime.Object {
			job := clustertest.NewJob("web", 1)
			job.Spec.Template, job.Status = t, batchv1.JobStatus{Active: 1}
			return job
		},
	}
	for name, test := range map[string]struct {
		template, pod, limit, want string // CPUs
		larger, pending            bool
	}{
		"equal":                            {template: "1", pod: "1", want: "1"},
		"shrunk in place":                  {template: "3", pod: "200m", want: "3", larger: true},
		"grown in place":                   {template: "1", pod: "3", want: "3"},
		"a LimitRange set the request":     {pod: "500m", want: "500m"},
		"the limit is the default request": {limit: "2", pod: "1", want: "2", larger: true},
		"pending: its own successor":       {template: "3", pod: "200m", want: "200m", pending: true},
	} {
		for kind, newOwner := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				of := func(cpu string) v1.ResourceList {
					if cpu == "" {
						return nil
					}
					return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
				}
				w := clustertest.NewWorld(t)
				pod := clustertest.NewPod("web-0", clustertest.OwnedBy(kind, "web"))
				pod.Spec.Containers[0].Resources.Requests = of(test.pod)
				w.Put(clustertest.NewNode("n", "spot", "m/a"), newOwner(template{Spec: v1.PodSpec{NodeName: "named", Containers: []v1.Container{{
					Resources: v1.ResourceRequirements{Requests: of(test.template), Limits: of(test.limit)}}}}}))
				wantNode := ""
				if !test.pending {
					pod.Spec.NodeName, wantNode = "n", "named"
				}
				w.Put(pod)
				p := clustertest.Find(t, w.Snapshot(), "web-0")
				needs, larger := p.Successor()
				if cpu := needs[v1.ResourceCPU]; cpu.String() != test.want || larger != test.larger || p.SuccessorNode() != wantNode {
					t.Errorf("%s CPUs, larger: %t, on node %q; want %s, %t, %q", cpu.String(), larger, p.SuccessorNode(), test.want, test.larger, wantNode)
				}
				if own := p.Requests[v1.ResourceCPU]; own.String() != test.pod {
					t.Errorf("the pod itself requests %s CPUs, want %s", own.String(), test.pod)
				}
			})
		}
	}
}

// A deletion cost is read as Kubernetes reads it.
func TestDeletionCost(t *testing.T) {
	for text, want := range map[string]int{"": 0, "0": 0, "7": 7, "-7": -7, "2147483647": 2147483647, "2147483648": 0, "+7": 0, "007": 0, "1.5": 0, "x": 0} {
		p := clustertest.NewPod("web")
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1.PodDeletionCost, text)
		w := clustertest.NewWorld(t)
		w.Put(p)
		if got := clustertest.Find(t, w.Snapshot(), "web").DeletionCost(); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		p = p.DeepCopy()
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, spot.DeletionCostAnnotation, text)
		w.Put(p)
		if got := clustertest.Find(t, w.Snapshot(), "web").DeletionCost(); got != 0 {
			t.Errorf("%q, written by the controller: %d, want 0", text, got)
		}
	}
}
