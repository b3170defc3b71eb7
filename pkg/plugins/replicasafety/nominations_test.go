package replicasafety

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// nominate simulates that preemption nominated a node for these pods.
func (w *world) nominate(node string, pods ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		info, err := framework.NewPodInfo(pod)
		w.must(err)
		w.nominated.add(node, info)
		w.plugin.waiting.AddUnschedulable(pod, placement.Wait{Owners: []workload.OwnerKey{workload.RevisionOf(pod)}, MayPreempt: preempts()})
	}
}

// preempts returns the flag of a cycle in which preemption was simulated.
func preempts() *atomic.Bool {
	var b atomic.Bool
	b.Store(true)
	return &b
}

// bound returns the pod as bound to a node.
func bound(pod *v1.Pod, node string) *v1.Pod {
	return changed(pod, func(p *v1.Pod) { p.Spec.NodeName = node })
}

// Siblings that are nominated to other nodes use the budget, each once.
func TestNominatedPodsOnOtherNodesCount(t *testing.T) {
	created := func(name string, after time.Duration) *v1.Pod {
		pod := web(name)
		pod.CreationTimestamp = metav1.NewTime(now.Add(after))
		return pod
	}
	all, onlyOnDemand := []string{"on-demand", "spot-1", "spot-2"}, []string{"on-demand"}
	cases := map[string]struct {
		change func(*world)
		pod    *v1.Pod
		want   []string
	}{
		"none":                  {func(*world) {}, web("p"), all},
		"one on another node":   {func(w *world) { w.nominate("spot-2", web("a")) }, web("p"), all},
		"as many as the budget": {func(w *world) { w.nominate("spot-1", web("a")); w.nominate("spot-2", web("b")) }, web("p"), onlyOnDemand},
		"on on-demand":          {func(w *world) { w.nominate("on-demand", web("a"), web("b")) }, web("p"), all},
		"of another revision": {func(w *world) {
			w.nominate("spot-1", podOf("a", by("ReplicaSet", "web-2")), podOf("b", by("ReplicaSet", "web-2")))
		}, web("p"), all},
		"one terminates":            {func(w *world) { w.nominate("spot-1", web("a"), terminating(web("b"))) }, web("p"), all},
		"to a deleted node":         {func(w *world) { w.nominate("gone", web("a"), web("b")) }, web("p"), all},
		"one already assumed there": {func(w *world) { a := web("a"); w.nominate("spot-1", a); w.addPods("spot-1", a.DeepCopy()) }, web("p"), all},
		"the pod itself":            {func(w *world) { w.nominate("spot-1", web("p")); w.nominate("spot-2", web("z")) }, web("p"), all},
		"the pod itself, and older ones": {func(w *world) {
			w.nominate("spot-1", created("p", 0))
			w.nominate("spot-2", created("a", -time.Second), created("b", -time.Second))
		}, created("p", 0), onlyOnDemand},
		"the pod itself, and younger ones": {func(w *world) {
			w.nominate("spot-1", created("p", 0))
			w.nominate("spot-2", created("a", time.Second), created("b", time.Second))
			// The framework itself counts the nominated pods of the same node.
		}, created("p", 0), []string{"on-demand", "spot-1"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, deployment("web", 3, "1", "2")...)
			w.nodes(onDemand("on-demand"), spotNode("spot-1"), spotNode("spot-2"))
			test.change(w)
			if diff := cmp.Diff(test.want, w.try(test.pod).feasible); diff != "" {
				t.Errorf("feasible (-want +got):\n%s", diff)
			}
		})
	}
}

// A nomination by an earlier leader counts although this leader has not tried the pod.
func TestNominatedPodsOfAnEarlierLeaderCount(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 2, "1")...)
	w.nodes(onDemand("on-demand"), spotNode("spot-1"), spotNode("spot-2"))
	sibling := web("sibling")
	sibling.Status.NominatedNodeName = "spot-1"
	info, err := framework.NewPodInfo(sibling)
	w.must(err)
	w.nominated.add("spot-1", info)
	_, err = w.client.CoreV1().Pods("shop").Create(w.ctx, sibling, metav1.CreateOptions{})
	w.must(err)
	w.eventually("the nomination is known", func() bool { return w.plugin.nominations.Has(workload.RevisionOf(sibling)) })
	if diff := cmp.Diff([]string{"on-demand"}, w.try(web("p")).feasible); diff != "" {
		t.Errorf("feasible (-want +got):\n%s", diff)
	}
}

// The end of a nomination wakes the siblings when the place in the budget is free, and not before.
func TestEndOfANominationWakes(t *testing.T) {
	nominated := web("a")
	nominated.Status.NominatedNodeName = "spot-1"
	cases := map[string]struct {
		after *v1.Pod
		want  []string
	}{
		"cleared":                   {web("a"), []string{"shop/p"}},
		"deleted":                   {nil, []string{"shop/p"}},
		"bound elsewhere":           {bound(nominated, "on-demand"), []string{"shop/p"}},
		"bound to that node":        {bound(nominated, "spot-1"), nil},
		"still nominated":           {annotate(nominated.DeepCopy(), "a", "b"), nil},
		"nominated to another node": {changed(nominated, func(p *v1.Pod) { p.Status.NominatedNodeName = "spot-2" }), []string{"shop/p"}},
		"terminating":               {terminating(nominated.DeepCopy()), []string{"shop/p"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldNotSynced(t, nil)
			handler := w.plugin.podHandler()
			handler.Add(nominated)
			w.plugin.waiting.AddUnschedulable(web("p"), placement.Wait{Owners: []workload.OwnerKey{workload.RevisionOf(nominated)}, DependsOnSiblings: true})
			if test.after == nil {
				handler.Delete(nominated)
			} else {
				handler.Update(nominated, test.after)
			}
			if diff := cmp.Diff(test.want, w.woken.take(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// The attempts of a gang nominate its pods and clear their nominations. These changes wake no pod
// of the gang until one of its pods is bound.
func TestEndOfANominationInAGang(t *testing.T) {
	for name, test := range map[string]struct {
		bound bool
		want  []string
	}{
		"no pod was bound": {false, nil},
		"a pod was bound":  {true, []string{"shop/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldNotSynced(t, nil)
			w.plugin.schedulesGangs = func() bool { return true }
			handler := w.plugin.podHandler()
			pod, nominated := inGang(web("p")), inGang(web("a"))
			nominated.Status.NominatedNodeName = "spot-1"
			handler.Add(nominated)
			w.plugin.waiting.AddUnschedulable(pod, placement.Wait{
				Owners: []workload.OwnerKey{workload.RevisionOf(pod)}, DependsOnSiblings: true, Gang: w.plugin.gangOf(pod),
			})
			if test.bound {
				handler.Add(bound(inGang(web("b")), "spot-2"))
			}
			handler.Update(nominated, inGang(web("a")))
			if diff := cmp.Diff(test.want, w.woken.take(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// The scheduler may clear a nomination before it has written it to the API server. No event reports
// this.
func TestUnwrittenNominationClearedWakes(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 3, "1")...)
	w.nodes(spotNode("spot-1"))
	w.addPods("spot-1", web("b"), web("c")) // the budget is used up
	pod := web("a")
	w.nominate("spot-1", pod)
	w.try(pod)
	w.try(web("p"))
	w.woken.take()
	reads := w.nominated.readCount()
	w.clock.Step(time.Second)
	w.eventually("the nomination is read again", func() bool { return w.nominated.readCount() > reads })
	if woken := w.woken.take(); len(woken) > 0 {
		t.Errorf("woken while the pod is nominated: %v", woken)
	}
	w.try(pod)
	w.nominated.clear("spot-1")
	w.clock.Step(time.Second)
	w.eventually("the sibling is woken", func() bool {
		for _, name := range w.woken.take() {
			if name == "shop/p" {
				return true
			}
		}
		return false
	})
}

// A replica beyond the floor preempts nothing on on-demand, with or without spot nodes in the
// cluster. A replica of the floor does.
func TestOverflowDoesNotPreemptOnOnDemand(t *testing.T) {
	for _, hasSpot := range []bool{false, true} {
		for name, test := range map[string]struct {
			existing []*v1.Pod
			pod      *v1.Pod
			evicts   bool
		}{
			"of the floor":                {nil, web("p"), true},
			"beyond the floor":            {[]*v1.Pod{web("a")}, web("p"), false},
			"beyond the floor, nominated": {nil, web("p"), false},
			"a single pod":                {nil, podOf("p"), true},
			"ordinal of the floor":        {nil, podOf("db-0", by("StatefulSet", "db")), true},
			"ordinal beyond it":           {nil, podOf("db-1", by("StatefulSet", "db")), false},
		} {
			t.Run(fmt.Sprintf("%s, spot=%t", name, hasSpot), func(t *testing.T) {
				w := newWorld(t, nil, append(deployment("web", 3, "1"), statefulSet("db", 3))...)
				w.nodes(onDemand("od-1"), onDemand("od-2"))
				if hasSpot {
					w.nodes(spotNode("spot"))
				}
				w.addPods("od-2", test.existing...)
				if name == "beyond the floor, nominated" {
					w.nominate("od-2", web("a"))
				}
				victim := podOf("victim")
				victim.Spec.Priority = ptr.To[int32](-10)
				w.addPods("od-1", victim)
				o := w.try(test.pod)
				info, err := w.snapshot.Get("od-1")
				w.must(err)
				victimInfo, err := framework.NewPodInfo(victim)
				w.must(err)
				dryRun := o.state.Clone()
				w.must(w.framework.RunPreFilterExtensionRemovePod(w.ctx, dryRun, test.pod, victimInfo, info).AsError())
				status := w.framework.RunFilterPlugins(w.ctx, dryRun, test.pod, info)
				if status.IsSuccess() != test.evicts {
					t.Errorf("without the victim: %v, want feasible %t", status, test.evicts)
				}
				if !status.IsSuccess() && status.Code() != fwk.UnschedulableAndUnresolvable {
					t.Errorf("status %v, want one that preemption cannot resolve", status)
				}
				if status := w.framework.RunFilterPlugins(w.ctx, o.state, test.pod, info); !status.IsSuccess() {
					t.Errorf("without an eviction: %v, want feasible", status)
				}
			})
		}
	}
}

// A pod is deleted between its nomination and the write of the nomination. No event of the
// framework retries its siblings.
func TestUnseenNominatedPodDeletedWakes(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 3, "1")...)
	w.nodes(spotNode("spot-1"))
	w.addPods("spot-1", web("b"))
	pod := web("a")
	w.try(pod)
	w.nominate("spot-1", pod)
	if o := w.try(web("p")); len(o.feasible) > 0 {
		t.Fatalf("feasible: %v, want the budget used up by the nominated pod", o.feasible)
	}
	w.woken.take()
	w.nominated.clear("spot-1")
	w.plugin.podHandler().Delete(pod)
	w.eventually("the sibling is woken", func() bool { return slices.Contains(w.woken.take(), "shop/p") })
}

// A terminating pod without a node is not retried. It must neither withhold nodes nor count as
// waiting.
func TestTerminatingPodStopsWaiting(t *testing.T) {
	w := newWorld(t, nil)
	w.nodes(spotNode("spot-1"))
	pod := podOf("single")
	w.try(pod)
	if n, _ := w.plugin.waiting.ForOnDemand(); n != 1 {
		t.Fatalf("%d pods wait for on-demand, want 1", n)
	}
	w.plugin.podHandler().Update(pod, terminating(pod.DeepCopy()))
	if n, _ := w.plugin.waiting.ForOnDemand(); n != 0 {
		t.Errorf("%d pods wait for on-demand, want none", n)
	}
}
