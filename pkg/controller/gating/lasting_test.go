package gating

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// single returns a gated pod that no controller recreates. A runner has an owner of a kind that is
// unknown.
func single(name, scheduler string, edit func(*v1.Pod)) *v1.Pod {
	pod := gated("EphemeralRunner", name, name)
	pod.Spec.SchedulerName = scheduler
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
	if edit != nil {
		edit(pod)
	}
	return pod
}

func bare(pod *v1.Pod) { pod.OwnerReferences = nil }

// Pods that no controller recreates get on-demand one after the other while it has room. The others
// keep their gate, and fall back to spot after fallbackAfter. A failsafe knows until when.
func TestLastingPodsFallBack(t *testing.T) {
	for name, edit := range map[string]func(*v1.Pod){"bare pods": bare, "runners": nil} {
		t.Run(name, func(t *testing.T) {
			const after = 2 * time.Second // recorded in whole seconds
			w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: after}, keptNamespace(),
				clustertest.NewNode("od-1", "on-demand", "m/a"), clustertest.NewNode("od-2", "on-demand", "m/a"), clustertest.NewNode("spot", "spot", "m/a"))
			want := map[string]string{}
			for _, pod := range []string{"first", "second"} { // one on each node
				w.create(single(pod, v1.DefaultSchedulerName, edit))
				want[pod] = "on-demand"
				if diff := cmp.Diff(want, w.assigned()); diff != "" {
					t.Fatalf("after the %s pod (-want +got):\n%s", pod, diff)
				}
			}
			w.create(single("third", v1.DefaultSchedulerName, edit))
			w.until("the third pod waits at the gate", func() bool {
				pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "third", metav1.GetOptions{})
				return err == nil && !workload.GateKeptUntil(pod).IsZero()
			})
			want["third"] = "any"
			if diff := cmp.Diff(want, w.assigned()); diff != "" {
				t.Errorf("all pods (-want +got):\n%s", diff)
			}
			pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "third", metav1.GetOptions{})
			if err != nil || workload.Granted(pod) != spot.GrantedFallback {
				t.Errorf("granted %q, %v, want a fallback", workload.Granted(pod), err)
			}
		})
	}
}

// With our scheduler, which keeps the floor itself, on-demand is only a preference of such a pod,
// unless it may never fall back.
func TestLastingPodsOfOurScheduler(t *testing.T) {
	for after, required := range map[time.Duration]bool{time.Minute: false, decision.Never: true} {
		w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: after},
			clustertest.NewNode("od", "on-demand", "m/a"), clustertest.NewNode("spot", "spot", "m/a"))
		w.create(single("runner", profile, bare))
		var pod *v1.Pod
		w.until("the gate is removed", func() (ungated bool) {
			pod, _ = w.client.CoreV1().Pods("shop").Get(t.Context(), "runner", metav1.GetOptions{})
			return pod != nil && !workload.Gated(pod)
		})
		if got := workload.OnlyOnDemand(pod, w.settings.Policy); got != required || workload.AssignedCapacityOf(pod) != decision.AssignedOnDemand {
			t.Errorf("fallbackAfter %s: requires on-demand: %v, annotations %v", after, got, pod.Annotations)
		}
	}
}

// A restored pod, which its controller adopts, requires on-demand only if on-demand has room. It
// never keeps its gate.
func TestAdoptedPods(t *testing.T) {
	for name, test := range map[string]struct {
		scheduler, room string
		wantRequired    bool
		wantGrant       string
	}{
		"kept, room":    {scheduler: v1.DefaultSchedulerName, room: "4", wantRequired: true},
		"kept, no room": {scheduler: v1.DefaultSchedulerName, room: "2", wantGrant: spot.GrantedFallback},
		"ours, room":    {scheduler: profile, room: "4", wantRequired: true},
		"ours, no room": {scheduler: profile, room: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(clustertest.NewDeployment("web", 2), keptNamespace(),
				clustertest.NewNode("od", "on-demand", "m/a", "cpu="+test.room), clustertest.NewNode("spot", "spot", "m/a"))
			w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: time.Minute}, objects...)
			// The orphan is as old as its ReplicaSet. The other pod is older.
			objects[1].(*appsv1.ReplicaSet).CreationTimestamp = metav1.Now()
			restored := gated("ReplicaSet", "web-r", "restored")
			restored.Spec.SchedulerName, restored.Labels["pod-template-hash"] = test.scheduler, "r"
			restored.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
			owners := restored.OwnerReferences
			restored.OwnerReferences = nil
			w.create(restored)
			w.until("the orphan is observed", func() bool { return w.recorded(restored.UID).orphaned })
			restored.OwnerReferences = owners
			if _, err := w.client.CoreV1().Pods("shop").Update(t.Context(), restored, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			var pod *v1.Pod
			w.until("the gate is removed", func() (ungated bool) {
				pod, _ = w.client.CoreV1().Pods("shop").Get(t.Context(), "restored", metav1.GetOptions{})
				return pod != nil && !workload.Gated(pod)
			})
			if got := workload.OnlyOnDemand(pod, w.settings.Policy); got != test.wantRequired || workload.AssignedCapacityOf(pod) != decision.AssignedOnDemand ||
				workload.Granted(pod) != test.wantGrant {
				t.Errorf("requires on-demand: %v, want %v; annotations %v, want the grant %q", got, test.wantRequired, pod.Annotations, test.wantGrant)
			}
		})
	}
}

// An adopted pod that requires on-demand waits, also under a leader that has not seen it without an
// owner. Its user gets an event.
func TestAdoptedPodsAreNotReplaced(t *testing.T) {
	web, db := clustertest.NewDeployment("web", 1), clustertest.NewStatefulSet("db", 1)
	web[1].(*appsv1.ReplicaSet).CreationTimestamp, db.CreationTimestamp = metav1.Now(), metav1.Now()
	pods := []*v1.Pod{
		unschedulable(gated("ReplicaSet", "web-r", "web-0"), time.Hour, "on-demand"), unschedulable(gated("StatefulSet", "db", "db-0"), time.Hour, "on-demand")}
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: time.Minute}, append(web, db, pods[0], pods[1])...)
	for _, pod := range pods {
		w.until("an event", func() bool { return w.recorded(pod.UID).reported })
		if _, err := w.reconcile(t.Context(), workload.RevisionOf(pod)); err != nil || w.gone(pod.Name) {
			t.Errorf("%s: %v, deleted: %v", pod.Name, err, w.gone(pod.Name))
		}
	}
}

// A pod that was restored before its owner is not decided as a single replica.
func TestOrphansWaitForTheirAdoption(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never},
		append(clustertest.NewDeployment("web", 2), clustertest.NewNode("od", "on-demand", "m/a"), clustertest.NewNode("spot", "spot", "m/a"))...)
	for _, name := range []string{"web-0", "web-1"} {
		pod := gated("ReplicaSet", "web-r", name)
		pod.Labels["pod-template-hash"] = "r"
		owners := pod.OwnerReferences
		pod.OwnerReferences = nil
		w.create(pod)
		pod.OwnerReferences = owners
		if _, err := w.client.CoreV1().Pods("shop").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	old := gated("ReplicaSet", "web-r", "old")
	old.Labels["pod-template-hash"], old.OwnerReferences = "r", nil
	old.CreationTimestamp = metav1.NewTime(time.Now().Add(-decision.AdoptionDelay))
	w.create(old)
	floor := 0
	got := w.assigned()
	for _, name := range []string{"web-0", "web-1"} {
		if got[name] == "on-demand" {
			floor++
		}
	}
	if floor != 1 || got["old"] == "" {
		t.Errorf("assigned %v, want one of the two adopted pods on on-demand, and the old orphan decided", got)
	}
}
