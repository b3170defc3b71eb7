package rebalance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

func ours() map[string]string {
	return map[string]string{v1.PodDeletionCost: "1000", spot.DeletionCostAnnotation: "1000"}
}

func TestDeletionCosts(t *testing.T) {
	spread := []string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 5 o o o s s min=2"}
	cases := map[string]struct {
		lines  []string
		change func(*world)
		want   []string
	}{
		"floor": {spread, func(*world) {}, []string{"web-0=1000", "web-1=1000"}},
		"oldest pods": {spread, func(w *world) { w.pod("web-2").created = start.Add(-2 * time.Hour) },
			[]string{"web-2=1000", "web-0=1000"}},
		"pods that require on-demand": {spread, func(w *world) { w.pod("web-2").onlyOnDemand = true; w.pod("web-1").annotations = ours() },
			[]string{"web-2=1000"}},
		"pods with a cost keep it": {spread, func(w *world) { w.pod("web-1").annotations, w.pod("web-2").annotations = ours(), ours() }, nil},
		"one pod more than the floor": {spread, func(w *world) {
			w.pod("web-0").annotations, w.pod("web-1").annotations, w.pod("web-2").annotations = ours(), ours(), ours()
		}, []string{"web-2="}},
		"pod on spot loses the cost": {spread, func(w *world) { w.pod("web-4").annotations = ours() }, []string{"web-0=1000", "web-1=1000", "web-4="}},
		"fewer pods on on-demand than the floor": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 o o s s min=3"},
			func(*world) {}, []string{"web-0=1000", "web-1=1000"}},
		"scaled down to the floor: pods keep their cost": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 2 o o min=2"},
			func(w *world) { w.pod("web-0").annotations, w.pod("web-1").annotations = ours(), ours() }, nil},
		"restored protected pod keeps the cost while one pod is too many": {spread, func(w *world) {
			w.pod("web-0").annotations, w.pod("web-1").annotations, w.pod("web-4").annotations = ours(), ours(), ours()
			w.pod("web-4").annotations["karpenter.sh/do-not-disrupt"] = "true"
			w.workload("web").desired = 4
		}, nil},
		"restored pod that is not protected": {spread, func(w *world) {
			w.pod("web-0").annotations, w.pod("web-1").annotations, w.pod("web-4").annotations = ours(), ours(), ours()
			w.workload("web").desired = 4
		}, []string{"web-4="}},
		"restored protected pod, and no pod is too many": {spread, func(w *world) {
			w.pod("web-0").annotations, w.pod("web-1").annotations, w.pod("web-4").annotations = ours(), ours(), ours()
			w.pod("web-4").annotations["karpenter.sh/do-not-disrupt"] = "true"
		}, []string{"web-4="}},
		"no pods beyond the floor":             {[]string{"node o on-demand cpu=9", "deployment web 2 o o min=2"}, func(*world) {}, nil},
		"rollout: no change":                   {spread, func(w *world) { w.workload("web").rollingOut = true; w.pod("web-4").annotations = ours() }, nil},
		"StatefulSet: ordered by its ordinals": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset db 3 o s s min=1"}, func(*world) {}, nil},
		"unmanaged workload":                   {spread, func(w *world) { w.workload("web").unmanaged = true }, nil},
		"workload no longer managed":           {spread, func(w *world) { w.workload("web").unmanaged = true; w.pod("web-0").annotations = ours() }, []string{"web-0="}},
		"the user has set a cost":              {spread, func(w *world) { w.pod("web-4").annotations = map[string]string{v1.PodDeletionCost: "-5"} }, nil},
		"the user changed our cost: only our marker is removed": {spread, func(w *world) {
			w.pod("web-0").annotations = ours()
			w.pod("web-0").annotations[v1.PodDeletionCost] = "7"
		}, []string{"web-0="}},
		"another actor removed the cost, not our marker": {spread, func(w *world) {
			w.pod("web-0").annotations = map[string]string{spot.DeletionCostAnnotation: "1000"}
		}, []string{"web-0=1000", "web-1=1000"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(test.lines...)
			test.change(w)
			// The fake API server does not check preconditions; TestCostConflict does.
			var objects []runtime.Object
			for _, p := range w.snapshot().Pods {
				objects = append(objects, p.Pod)
			}
			client := fake.NewClientset(objects...)
			var got []string
			for _, c := range rebalance.DeletionCosts(w.snapshot(), true) {
				got = append(got, fmt.Sprintf("%s=%s", c.Pod.Name, c.Value))
				if err := workload.PatchPod(t.Context(), client, c.Pod.Pod, c.Patch()); err != nil {
					t.Fatal(err)
				}
			}
			clustertest.Equal(t, "costs", test.want, got)
			for _, work := range w.workloads {
				for _, p := range work.pods {
					written, err := client.CoreV1().Pods("shop").Get(t.Context(), p.name, metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if cost, ours := written.Annotations[v1.PodDeletionCost], slices.Contains(got, p.name+"=1000"); ours && cost != "1000" {
						t.Errorf("%s costs %q", p.name, cost)
					}
					p.annotations = written.Annotations
				}
			}
			if name == "the user changed our cost: only our marker is removed" {
				clustertest.Equal(t, "annotations", map[string]string{v1.PodDeletionCost: "7"}, w.pod("web-0").annotations)
			}
			if again := rebalance.DeletionCosts(w.snapshot(), true); len(again) > 0 {
				t.Errorf("planned again after they were written: %v", again)
			}
		})
	}
}

// A workload of ReplicaSets gets costs like a Deployment, also if its own object is not read. So do
// the pods of another controller that obeys them, and of no other.
func TestDeletionCostsOfOtherOwners(t *testing.T) {
	settled := "deployment web 5 od od od sp sp min=2"
	ownedBy := func(kind string) (pods []runtime.Object) {
		for _, object := range clustertest.Objects(settled) {
			if pod, ok := object.(*v1.Pod); ok {
				pod.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy(kind, "web")}
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, spot.MinOnDemandAnnotation, "2")
				pods = append(pods, pod)
			}
		}
		return pods
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		want    []string
	}{
		"Rollout":                   {clustertest.AsRollout(clustertest.Objects(settled)), []string{"web-0", "web-1"}},
		"CloneSet":                  {ownedBy("CloneSet"), []string{"web-0", "web-1"}},
		"CloneSet of another group": {ownedBy("example.com/v1/CloneSet"), nil},
		"Rollout during a rollout":  {clustertest.AsRollout(clustertest.Objects(settled + " old=1")), nil},
		"ReplicaSet of an unknown owner": {slices.DeleteFunc(clustertest.Objects(settled), func(object runtime.Object) bool {
			if rs, ok := object.(*appsv1.ReplicaSet); ok {
				rs.OwnerReferences[0] = clustertest.OwnedBy("example.com/v1/Web", "web")
			}
			_, deployment := object.(*appsv1.Deployment)
			return deployment
		}), []string{"web-0", "web-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("node od on-demand m/a\nnode sp spot m/a")
			for _, object := range test.objects {
				if rs, ok := object.(*appsv1.ReplicaSet); ok {
					metav1.SetMetaDataAnnotation(&rs.ObjectMeta, spot.MinOnDemandAnnotation, "2")
				}
				w.Put(object)
			}
			var got []string
			for _, c := range rebalance.DeletionCosts(w.Snapshot(), true) {
				got = append(got, c.Pod.Name)
			}
			clustertest.Equal(t, "pods with a cost", test.want, got)
		})
	}
}

// Without costs for floors, every cost of the controller is removed, except that of a protected pod
// in a workload with one pod too many.
func TestDeletionCostsDisabled(t *testing.T) {
	w := newWorld("node o on-demand cpu=9", "deployment web 2 o o o min=1", "deployment shop 1 o o min=1")
	w.workload("web").desired = 3
	w.workload("shop").desired = 1
	w.pod("web-0").annotations = ours()
	w.pod("shop-0").annotations, w.pod("shop-1").annotations = ours(), ours()
	w.pod("shop-0").annotations["karpenter.sh/do-not-disrupt"] = "true"
	var got []string
	for _, c := range rebalance.DeletionCosts(w.snapshot(), false) {
		got = append(got, fmt.Sprintf("%s=%s", c.Pod.Name, c.Value))
	}
	clustertest.Equal(t, "costs", []string{"web-0=", "shop-1="}, got)
}

// The API server rejects a cost that was planned for an older version of the pod.
func TestCostConflict(t *testing.T) {
	client := fake.NewClientset()
	var body string
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		body = string(action.(clienttesting.PatchAction).GetPatch())
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), "web-0", fmt.Errorf("changed"))
	})
	pod := &snapshot.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "u", ResourceVersion: "7"}}}
	err := workload.PatchPod(t.Context(), client, pod.Pod, rebalance.Cost{Pod: pod, Value: "1000"}.Patch())
	if !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	want := `{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"1000","spot-aware-scheduler.io/deletion-cost":"1000"},"resourceVersion":"7","uid":"u"}}`
	clustertest.Equal(t, "patch", want, body)
}
