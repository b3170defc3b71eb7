package gating

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// A pod that waits for an assigned capacity type is replaced if its successor would be assigned
// another one, and only then.
func TestReconsider(t *testing.T) {
	one, never := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: decision.Never}, decision.NeverOverflow
	with := func(change func(*decision.WorkloadSettings)) decision.WorkloadSettings {
		s := one
		change(&s)
		return s
	}
	web := func(name, assigned string, waited time.Duration) *v1.Pod {
		return unschedulable(gated("ReplicaSet", "web-r", name), waited, assigned)
	}
	bound := func(name, assigned string) *v1.Pod {
		node := map[bool]string{true: "o", false: "n"}[assigned == "on-demand"]
		return clustertest.Run(node, web(name, assigned, time.Hour))
	}
	released := clustertest.NewPod("web-released", clustertest.OwnedBy("ReplicaSet", "web-r"))
	released.Labels["pod-template-hash"] = "r"
	clustertest.ReleaseFor("return", time.Now(), released)
	granted := bound("web-1", "any")
	granted.Annotations[spot.GrantedAnnotation] = spot.GrantedFallback + " " + string(granted.UID)
	near := web("web-0", "on-demand", time.Minute)
	near.Spec.Affinity.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
		{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, TopologyKey: "pool"}}}
	own := web("web-0", "on-demand", time.Hour)
	own.Annotations = nil
	nodes := []runtime.Object{pooled("o", "on-demand", "a"), pooled("n", "spot", "a"), clustertest.Run("n", clustertest.NewPod("db-0", clustertest.OwnedBy("StatefulSet", "db")))}
	for name, test := range map[string]struct {
		settings  decision.WorkloadSettings
		pod       *v1.Pod
		others    []runtime.Object
		gone      bool
		successor string
	}{
		"spot, overflow Allow":                      {settings: one, pod: web("web-0", "spot", time.Minute), others: []runtime.Object{bound("web-1", "on-demand")}, gone: true, successor: "any"},
		"spot, overflow Never":                      {settings: with(func(s *decision.WorkloadSettings) { s.Overflow = never }), pod: web("web-0", "spot", time.Hour), others: []runtime.Object{bound("web-1", "on-demand")}},
		"spot, for a few seconds":                   {settings: one, pod: web("web-0", "spot", 20*time.Second), others: []runtime.Object{bound("web-1", "on-demand")}},
		"spot, its released predecessor serves":     {settings: one, pod: web("web-0", "spot", time.Minute), others: []runtime.Object{bound("web-1", "on-demand"), released}},
		"spot, a higher floor":                      {settings: with(func(s *decision.WorkloadSettings) { s.MinOnDemand, s.Overflow = decision.Count(2), never }), pod: web("web-0", "spot", time.Minute), others: []runtime.Object{bound("web-1", "on-demand")}, gone: true, successor: "on-demand"},
		"any, overflow Allow":                       {settings: one, pod: web("web-0", "any", time.Hour), others: []runtime.Object{bound("web-1", "on-demand")}},
		"any, overflow Never":                       {settings: with(func(s *decision.WorkloadSettings) { s.Overflow = never }), pod: web("web-0", "any", time.Minute), others: []runtime.Object{bound("web-1", "on-demand")}, gone: true, successor: "spot"},
		"on-demand, of the floor":                   {settings: one, pod: web("web-0", "on-demand", time.Hour)},
		"on-demand, no floor any more":              {settings: with(func(s *decision.WorkloadSettings) { s.MinOnDemand = decision.Count(0) }), pod: web("web-0", "on-demand", time.Minute), gone: true, successor: "any"},
		"on-demand, a lower floor":                  {settings: one, pod: web("web-0", "on-demand", time.Minute), others: []runtime.Object{bound("web-1", "on-demand")}, gone: true, successor: "any"},
		"on-demand, the floor is a preference":      {settings: with(func(s *decision.WorkloadSettings) { s.WhenUnsatisfiable = decision.ScheduleAnyway }), pod: web("web-0", "on-demand", time.Minute), gone: true, successor: "none"},
		"on-demand, near a pod on spot":             {settings: one, pod: near, gone: true, successor: "on-demand"},
		"on-demand, beside a pod that fell back":    {settings: one, pod: web("web-0", "on-demand", time.Hour), others: []runtime.Object{granted}},
		"not assigned, beside a pod that fell back": {settings: one, pod: web("web-0", "", time.Hour), others: []runtime.Object{granted}},
		"on-demand, own affinity":                   {settings: with(func(s *decision.WorkloadSettings) { s.MinOnDemand = decision.Count(0) }), pod: own},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(append(clustertest.NewDeployment("web", 3), nodes...), test.others...)
			w := start(t, test.settings, append(objects, test.pod)...)
			w.mu.Lock()
			w.gateRemovedAt["shop"] = time.Now()
			w.mu.Unlock()
			w.queue.Add(workload.RevisionOf(test.pod))
			if !test.gone {
				time.Sleep(200 * time.Millisecond)
				if w.gone("web-0") {
					t.Error("the pod was deleted")
				}
				if again, err := w.reconcile(t.Context(), workload.RevisionOf(test.pod)); err != nil || name == "any, overflow Allow" && again == 0 {
					t.Errorf("%s, %v: the pod is not reconsidered", again, err)
				}
				return
			}
			w.until("the pod is deleted", func() bool { return w.gone("web-0") })
			if name == "on-demand, near a pod on spot" {
				return // TestInfeasible creates such pods
			}
			w.create(gated("ReplicaSet", "web-r", "web-2"))
			if got := w.assigned(); got["web-2"] != test.successor {
				t.Errorf("assigned %v, want the successor %s", got, test.successor)
			}
		})
	}
}

// The pods of a revision are replaced one after the other, each after the gate of its predecessor's
// successor was removed.
func TestReplacesOneAtATime(t *testing.T) {
	for name, test := range map[string]struct {
		settings            decision.WorkloadSettings
		assigned, successor string
	}{
		"after a change": {decision.WorkloadSettings{FallbackAfter: decision.Never}, "spot", "any"},
		"fallback": {decision.WorkloadSettings{
			MinOnDemand: decision.Percent(100), FallbackAfter: 10 * time.Second, RolloutRelief: decision.Never}, "on-demand", "any"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := clustertest.NewDeployment("web", 4)
			for i := range 4 {
				objects = append(objects, unschedulable(gated("ReplicaSet", "web-r", fmt.Sprint("web-", i)), time.Hour, test.assigned))
			}
			w := start(t, test.settings, objects...)
			w.mu.Lock()
			w.gateRemovedAt["shop"] = time.Now()
			w.mu.Unlock()
			left := func() (n int) {
				for i := range 4 {
					if !w.gone(fmt.Sprint("web-", i)) {
						n++
					}
				}
				return n
			}
			for i := range 4 {
				w.queue.Add(workload.RevisionOf(objects[2].(*v1.Pod)))
				w.until("one more pod is deleted", func() bool { return left() == 3-i })
				for range 3 {
					w.queue.Add(workload.RevisionOf(objects[2].(*v1.Pod)))
					time.Sleep(20 * time.Millisecond)
				}
				if got := left(); got != 3-i {
					t.Fatalf("%d pods are left, want %d", got, 3-i)
				}
				next := fmt.Sprint("next-", i)
				w.create(gated("ReplicaSet", "web-r", next))
				if got := w.assigned(); got[next] != test.successor {
					t.Errorf("assigned %v, want %s %s", got, next, test.successor)
				}
			}
		})
	}
}

// The answer to a deletion is lost: the successor gets the grant, once.
func TestGrantOfALostDeletion(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: 5 * time.Minute, RolloutRelief: decision.Never}, clustertest.NewDeployment("web", 3)...)
	w.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if _, _, err := clienttesting.ObjectReaction(w.client.Tracker())(action); err != nil {
			t.Error(err)
		}
		return true, nil, errors.New("connection reset by peer")
	})
	pod := unschedulable(gated("ReplicaSet", "web-r", "web-0"), 9*time.Minute, "on-demand")
	w.create(pod)
	w.until("the pod is deleted", func() bool { return w.gone("web-0") })
	w.create(gated("ReplicaSet", "web-r", "web-1"))
	w.assigned()
	w.create(gated("ReplicaSet", "web-r", "web-2"))
	if got := w.assigned(); got["web-1"] != "any" || got["web-2"] != "on-demand" {
		t.Errorf("assigned %v, want one grant", got)
	}
}

// While deletions of pending pods are paused, gates are still removed. The deletion follows.
func TestPause(t *testing.T) {
	settings := decision.WorkloadSettings{MinOnDemand: decision.Percent(100), FallbackAfter: 10 * time.Second, RolloutRelief: decision.Never}
	w := start(t, settings, append(clustertest.NewDeployment("web", 3), pooled("o", "on-demand", "a"), pooled("n", "spot", "a"))...)
	var resumed atomic.Bool
	w.settings.Paused = clustertest.Paused(func(c safety.Cause) bool { return c == safety.Pending && !resumed.Load() })
	w.create(unschedulable(gated("ReplicaSet", "web-r", "web-0"), time.Minute, "on-demand"))
	w.create(gated("ReplicaSet", "web-r", "web-1"))
	w.until("the gate is removed", func() bool { return w.assigned()["web-1"] != "" })
	pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("the pod was deleted: %v", err)
	}
	if again, err := w.reconcile(t.Context(), workload.RevisionOf(pod)); err != nil || again == 0 || again > time.Second || w.gone("web-0") {
		t.Errorf("reconciled again after %s, %v; deleted: %v", again, err, w.gone("web-0"))
	}
	resumed.Store(true)
	w.until("the pod is deleted", func() bool { return w.gone("web-0") })
}
