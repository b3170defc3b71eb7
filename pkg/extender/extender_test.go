package extender

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node/nodetest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var (
	onDemand  = []string{"on-demand-0", "on-demand-1"}
	spotNodes = []string{"spot-0", "spot-1", "spot-2"}
)

// newCluster returns a world with two on-demand nodes and three spot nodes, each in its own pool.
func newCluster(t testing.TB, edits ...func(*decision.Policy)) *world {
	w := newWorld(t, edits...)
	w.nodes(2, "on-demand")
	w.nodes(3, "spot")
	return w
}

func (w *world) want(what string, got []string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Pods whose constraints admit only the nodes of one capacity type are judged by the nodes that
// exist, also by nodes that are no candidates.
func TestConstraintsAreJudgedByNodes(t *testing.T) {
	in := func(zone string, pod *v1.Pod) *v1.Pod {
		pod.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: zone}
		return pod
	}
	w := newWorld(t)
	w.build("node od on-demand m/a\nnode sp spot m/b\ndeployment one 1\ndeployment job 1 min=0")
	w.want("a floor", w.filter(podOf("one", 0), "sp"))
	w.want("a floor that only spot can run", w.filter(in("b", podOf("one", 0)), "sp"), "sp")
	w.want("a floor in a zone of on-demand", w.filter(in("a", podOf("one", 0)), "sp"))
	w.policy.Defaults.Overflow = decision.NeverOverflow
	w.want("overflow Never", w.filter(podOf("job", 0), "od"))
	w.want("overflow Never, only on-demand", w.filter(in("a", podOf("job", 0)), "od"), "od")
	w.build("node od-b on-demand m/b")
	w.want("a floor that on-demand can run now", w.filter(in("b", podOf("one", 1)), "sp"))
}

// The scheduler asks about the pods of one workload in quick succession, before the watch shows any
// binding. Each decision counts the pods before it.
func TestBackToBack(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 3")
	w.want("the floor", w.filter(podOf("web", 0)), onDemand...)
	w.want("the first on spot", w.filter(podOf("web", 1)), spotNodes...)
	w.want("the second on spot", w.filter(podOf("web", 2)), spotNodes...)
	w.want("beyond the budget", w.filter(podOf("web", 3)), onDemand...)
	kept, reasons := w.filterWithReasons(podOf("web", 4), spotNodes...)
	w.want("only spot has room", kept)
	const reason = "spot budget used up: 2 of at most 2 replicas of shop/web-r run on spot (waits for on-demand room)"
	w.want("the reasons", reasons, reason, reason, reason)

	// Another workload has a budget of its own.
	w.build("deployment api 2")
	w.want("floor of another workload", w.filter(podOf("api", 0)), onDemand...)
	w.want("spot pod of another workload", w.filter(podOf("api", 1)), spotNodes...)
}

// TestConcurrentFilter is TestBackToBack with concurrent requests.
func TestConcurrentFilter(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 30 min=10")
	var mu sync.Mutex
	onSpot := 0
	var asking sync.WaitGroup
	for i := range 60 {
		asking.Go(func() {
			kept := w.filter(podOf("web", i))
			mu.Lock()
			defer mu.Unlock()
			if slices.Contains(kept, "spot-0") {
				onSpot++
			}
		})
	}
	asking.Wait()
	if onSpot != 20 {
		t.Errorf("%d pods may use spot, want 20", onSpot)
	}
}

func TestApprovalsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(w *world, pod *v1.Pod)
		open bool // whether spot is open to a sibling afterwards
	}{
		"no event":           {func(*world, *v1.Pod) {}, false},
		"created late":       {func(w *world, pod *v1.Pod) { w.created(pod) }, false},
		"bound to spot":      {func(w *world, pod *v1.Pod) { w.bound(pod, "spot-0") }, false},
		"bound to on-demand": {func(w *world, pod *v1.Pod) { w.bound(pod, "on-demand-0") }, true},
		"bound, deleted":     {func(w *world, pod *v1.Pod) { w.deleted(w.bound(pod, "spot-0")) }, true},
		"deleted":            {func(w *world, pod *v1.Pod) { w.created(pod); w.deleted(pod) }, true},
		"its node is deleted": {func(w *world, pod *v1.Pod) {
			w.bound(pod, "spot-0")
			w.setNode(w.objects["spot-0"], nil)
		}, true},
		"its node becomes on-demand": {func(w *world, pod *v1.Pod) {
			w.bound(pod, "spot-0")
			node := w.objects["spot-0"].DeepCopy()
			node.Labels[spot.CapacityLabel] = "on-demand"
			w.setNode(w.objects["spot-0"], node)
		}, true},
		"terminates": {func(w *world, pod *v1.Pod) {
			before := w.bound(pod, "spot-0")
			after := before.DeepCopy()
			after.DeletionTimestamp = &pod.CreationTimestamp
			w.setPod(before, after)
		}, true},
		"refused later": {func(w *world, pod *v1.Pod) {
			// The scheduler may still bind the pod because of the first answer.
			w.filter(pod, "unlabeled-and-unknown", "on-demand-0")
		}, false},
		"bound to a node that is still unknown": {func(w *world, pod *v1.Pod) { w.bound(pod, "new") }, false},
		"bound to a node that remains unknown": {func(w *world, pod *v1.Pod) {
			w.bound(pod, "gone")
			w.clock.Step(unknownNodeTimeout)
		}, true},
		"pending for half an hour": {func(w *world, _ *v1.Pod) { w.clock.Step(maxApproval) }, true},
		"pending for minutes":      {func(w *world, _ *v1.Pod) { w.clock.Step(maxApproval - time.Second) }, false},
		"asked again meanwhile": {func(w *world, pod *v1.Pod) {
			w.clock.Step(maxApproval - time.Second)
			w.filter(pod)
			w.clock.Step(time.Second)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t)
			w.build("deployment web 2")
			w.bound(podOf("web", 0), "on-demand-1")
			pod := podOf("web", 1)
			w.want("the pod", w.filter(pod), spotNodes...)
			test.end(w, pod)
			if got := len(w.filter(podOf("web", 2), spotNodes...)) > 0; got != test.open {
				t.Errorf("spot is open to a sibling: %t, want %t", got, test.open)
			}
		})
	}
}

// When an approval has expired, earlier answers no longer count.
func TestAskedAfterExpiry(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 2")
	w.bound(podOf("web", 0), "on-demand-1")
	pod := podOf("web", 1)
	w.want("the pod", w.filter(pod, spotNodes...), spotNodes...)
	w.clock.Step(maxApproval)
	w.want("the pod, later", w.filter(pod, onDemand...), onDemand...)
	w.want("its sibling", w.filter(podOf("web", 2), spotNodes...), spotNodes...)
}

// A request may arrive after the deletion of its pod, which no later event reports.
func TestDeletedPod(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 2")
	pod := podOf("web", 0)
	w.created(pod)
	w.deleted(pod)
	if _, _, err := w.Extender.filter(t.Context(), pod, w.names); err == nil || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("error %v, want one about the deletion", err)
	}
	if w.Approved() != 0 {
		t.Error("a deleted pod was approved")
	}
	// A StatefulSet creates a pod with the same name.
	again := pod.DeepCopy()
	again.UID = "again"
	w.want("its replacement", w.filter(again), onDemand...)
}

// If the scheduler asks about a pod again and again, a later filter refuses the pod on the nodes
// that the extender returned.
func TestRepeatedFilter(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 3")
	pod := podOf("web", 0)
	w.want("first", w.filter(pod), onDemand...)
	w.want("second", w.filter(pod), onDemand...)
	w.want("third", w.filter(pod), slices.Concat(onDemand, spotNodes)...)
	// The pod may be bound to spot, and is probably bound to on-demand.
	w.want("its sibling", w.filter(podOf("web", 1)), spotNodes...)
	w.want("the next", w.filter(podOf("web", 2)), onDemand...)
	w.bound(pod, "on-demand-0")
	w.want("a third sibling", w.filter(podOf("web", 3)), spotNodes...)
}

// If pools are capped, the answer for a pod has nodes of one pool only, so that the next decision
// knows which pool is full.
func TestPoolCap(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 6 min=2 cap=1")
	w.want("floor", w.filter(podOf("web", 0)), onDemand...)
	w.want("floor", w.filter(podOf("web", 1)), onDemand...)
	var got []string
	for i := range 3 {
		kept := w.filter(podOf("web", 2+i))
		if len(kept) != 1 {
			t.Fatalf("pod %d: %v, want one node", i, kept)
		}
		got = append(got, kept...)
	}
	slices.Sort(got)
	w.want("the pools", got, spotNodes...)
	w.want("all pools full", w.filter(podOf("web", 5)), onDemand...)
	_, reasons := w.filterWithReasons(podOf("web", 6), "spot-0")
	w.want("why", reasons, "spot pool full: at most 1 replicas of shop/web-r may run in one pool (waits for room in another spot pool or on on-demand)")
}

func TestConcernedPods(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 1")
	other := podOf("web", 0)
	other.Spec.SchedulerName = v1.DefaultSchedulerName
	w.want("pod of another profile", w.filter(other), w.names...)
	daemon := podOf("web", 1)
	daemon.OwnerReferences[0].Kind = "DaemonSet"
	w.want("pod of a DaemonSet", w.filter(daemon), w.names...)
	w.want("pod of this profile", w.filter(podOf("web", 2)), onDemand...)
}

// Pods that forge a ReplicaSet's UID do not use its budget, whether they are bound or the scheduler
// asks about them.
func TestForgedOwners(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 2")
	w.bound(podOf("web", 0), onDemand[0])
	for i, pod := range nodetest.Forged(podOf("web", 9)) {
		w.bound(pod, spotNodes[0])
		again := pod.DeepCopy()
		again.Name, again.UID = fmt.Sprintf("asked-%d", i), types.UID(fmt.Sprintf("asked-%d", i))
		if _, _, err := w.Extender.filter(t.Context(), again, w.names); err != nil {
			if unknown := (*workload.UnknownOwner)(nil); !errors.As(err, &unknown) {
				t.Errorf("%s: %v, want an UnknownOwner", pod.Name, err)
			}
		}
	}
	w.want("a genuine pod", w.filter(podOf("web", 1)), spotNodes...)
}

// After an error the scheduler retries after its backoff. A refusal makes the pod wait for an event
// in the cluster.
func TestDecisionErrors(t *testing.T) {
	w := newCluster(t)
	pod := podOf("web", 0)
	_, _, err := w.Extender.filter(t.Context(), pod, w.names)
	if unknown := (*workload.UnknownOwner)(nil); !errors.As(err, &unknown) {
		t.Errorf("without an owner: %v, want an UnknownOwner", err)
	}
	w.build("deployment web 1")
	if _, _, err := w.Extender.filter(t.Context(), pod, []string{"spot-0", "new"}); err == nil || !strings.Contains(err.Error(), "1 of 2 nodes: "+unknownNodeReason) {
		t.Errorf("with an unknown node: %v", err)
	}
	w.want("with an unknown node and a known one", w.filter(pod, "new", "on-demand-0"), "on-demand-0")
}

// If the replica count is the number of live pods, it includes this pod, even if the watch has not
// shown the pod yet.
func TestUnsupportedController(t *testing.T) {
	w := newCluster(t)
	store := w.factory.Core().V1().Pods().Informer().GetStore()
	pods := make([]*v1.Pod, 2)
	for i := range pods {
		pods[i] = podOf("clones", i)
		pods[i].OwnerReferences[0].APIVersion, pods[i].OwnerReferences[0].Kind = "example.com/v1", "CloneSet"
	}
	if err := store.Add(pods[0]); err != nil {
		t.Fatal(err)
	}
	w.want("the first", w.filter(pods[0]), onDemand...)
	w.want("the second", w.filter(pods[1]), spotNodes...)
	if err := store.Add(pods[1]); err != nil {
		t.Fatal(err)
	}
	w.want("the second, which the cache has now", w.filter(pods[1]), spotNodes...)
}

// However many replicas ask at once, they preempt no more pods on spot than the budget permits. The
// answer to a preemption counts until the watch shows the nomination. The nomination counts until
// it ends.
func TestPreemptionsCount(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 3")
	w.bound(podOf("web", 0), "on-demand-0")
	w.bound(podOf("web", 1), "spot-0")
	all := []string{"on-demand-0", "spot-0", "spot-1", "spot-2"}
	open := func(n int) []string { return w.preemption(podOf("web", n), all...) }
	w.want("the first", open(2), "spot-0", "spot-1", "spot-2")
	w.want("the second, immediately", open(3))
	w.want("the first again", open(2), "spot-0", "spot-1", "spot-2")
	nominated := podOf("web", 2).DeepCopy()
	nominated.Status.NominatedNodeName = "spot-1"
	w.setPod(podOf("web", 2), nominated)
	w.clock.Step(time.Hour)
	w.want("the second, while the first is nominated", open(3))
	w.want("the first, whose own nomination does not count", open(2), "spot-0", "spot-1", "spot-2")
	w.setPod(nominated, podOf("web", 2))
	w.clock.Step(nominationTimeout)
	w.want("the second, after the nomination has ended", open(3), "spot-0", "spot-1", "spot-2")
	w.clock.Step(nominationTimeout)
	w.want("the first, after the claim of the second has expired", open(2), "spot-0", "spot-1", "spot-2")
}

// kube-scheduler may nominate a pod that the extender approved. It counts once.
func TestApprovedAndNominated(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 3")
	w.bound(podOf("web", 0), "on-demand-0")
	w.want("the pod", w.filter(podOf("web", 1)), spotNodes...)
	nominated := podOf("web", 1)
	nominated.Status.NominatedNodeName = "spot-0"
	w.setPod(podOf("web", 1), nominated)
	w.want("its sibling", w.filter(podOf("web", 2), spotNodes...), spotNodes...)
}

// A placement in a full pool is an exception, as the counts at the time of the answer show.
func TestFullPoolIsReported(t *testing.T) {
	w := newCluster(t, func(p *decision.Policy) { p.Defaults.FallbackAfter = 5 * time.Minute })
	w.build("deployment web 6 min=0 cap=1")
	w.bound(podOf("web", 0), "spot-0")
	pod := podOf("web", 1)
	w.want("at once", w.filter(pod, "spot-0"))
	w.clock.Step(5 * time.Minute)
	w.want("after the timeout", w.filter(pod, "spot-0"), "spot-0")
	w.bound(pod, "spot-0")
	if len(w.events) != 1 {
		t.Errorf("%d events, want 1", len(w.events))
	}
}

// Two nominated pods with a budget for one do not block each other.
func TestNominatedPodsDoNotWaitForEachOther(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 2")
	w.bound(podOf("web", 0), "on-demand-0")
	var open int
	for n := 1; n <= 3; n++ {
		pod := podOf("web", n)
		pod.Status.NominatedNodeName = "spot-0"
		w.created(pod)
	}
	for n := 1; n <= 3; n++ {
		open += len(w.filter(podOf("web", n), spotNodes...))
	}
	if open != len(spotNodes) {
		t.Errorf("%d answers permit a spot node, want %d: for one of the pods", open, len(spotNodes))
	}
}

// After a wait, the pod gets the relief that its policy defines, by the extender's clock.
func TestWaiting(t *testing.T) {
	w := newCluster(t, func(p *decision.Policy) { p.Defaults.FallbackAfter = 5 * time.Minute })
	w.build("deployment web 1")
	pod := podOf("web", 0)
	w.want("at once", w.filter(pod, spotNodes...))
	w.clock.Step(5*time.Minute - time.Second)
	w.want("before the timeout", w.filter(pod, spotNodes...))
	w.clock.Step(time.Second)
	w.want("after the timeout", w.filter(pod, spotNodes...), spotNodes...)
	w.bound(pod, "spot-0")
	if waiting, _ := w.waiting.ForOnDemand(); waiting != 0 {
		t.Errorf("%d pods wait after the binding, want none", waiting)
	}
	if w.filter(pod); w.Approved() != 0 {
		t.Error("a pod that is bound already was approved")
	}
	select {
	case event := <-w.events:
		if !strings.Contains(event, "FellBackToSpot") || !strings.Contains(event, "node spot-0") {
			t.Errorf("event: %s", event)
		}
	default:
		t.Error("no event")
	}
}

// Another leader resumes the wait that the pod records.
func TestWaitOfAnEarlierLeader(t *testing.T) {
	w := newCluster(t, func(p *decision.Policy) { p.Defaults.FallbackAfter = 5 * time.Minute })
	w.build("deployment web 1")
	pod := podOf("web", 0)
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
		LastTransitionTime: metav1.NewTime(w.clock.Now().Add(-4 * time.Minute))}}
	w.want("at once", w.filter(pod, spotNodes...))
	pod = pod.DeepCopy()
	pod.Status.Conditions = nil // the extender itself knows it now
	w.clock.Step(time.Minute)
	w.want("before the timeout", w.filter(pod, spotNodes...))
	w.clock.Step(time.Second)
	w.want("after the timeout", w.filter(pod, spotNodes...), spotNodes...)
}

// The replacement of a pod that was released for a heal waits for on-demand.
func TestNoFallbackOfAHeal(t *testing.T) {
	w := newCluster(t, func(p *decision.Policy) { p.Defaults.FallbackAfter = 5 * time.Minute })
	w.build("deployment web 1")
	pod, released := podOf("web", 0), clustertest.NewPod("released")
	revision := workload.RevisionOf(pod)
	released.Annotations = map[string]string{spot.ReleasedAnnotation: fmt.Sprintf(`{"replicaSet":"web-r","replicaSetUID":%q,"pod":%q,"hash":"r","reason":"heal","at":%q}`,
		revision.UID, released.UID, w.clock.Now().Format(time.RFC3339))}
	clustertest.Fill(w, w.factory, released)
	w.want("at once", w.filter(pod, spotNodes...))
	w.clock.Step(5 * time.Minute)
	w.want("after the timeout", w.filter(pod, spotNodes...))
}

// With overflow Never, an approval for on-demand counts for the floor before the pod is bound. A
// replica beyond the floor does not count as waiting for on-demand.
func TestOverflowNever(t *testing.T) {
	w := newCluster(t, func(p *decision.Policy) { p.Defaults.Overflow = decision.NeverOverflow })
	w.build("deployment web 3")
	first, second := podOf("web", 0), podOf("web", 1)
	w.want("the floor", w.filter(first, onDemand...), onDemand...)
	w.want("beyond the floor", w.filter(second, onDemand...))
	if waiting, _ := w.waiting.ForOnDemand(); waiting != 0 {
		t.Errorf("%d pods wait for on-demand, want none", waiting)
	}
	w.want("beyond the floor, on spot", w.filter(second), spotNodes...)
	w.deleted(w.bound(first, onDemand[0]))
	w.want("in place of the first", w.filter(podOf("web", 2), onDemand...), onDemand...)
}

func TestInvalidAnnotationIsReportedOnce(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 3 min=lots")
	for range 3 {
		w.filter(podOf("web", 0))
	}
	if got := len(w.events); got != 1 {
		t.Errorf("%d events, want 1", got)
	}
}

// A pod preempts others only on nodes that the policy admits.
func TestPreemption(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 1")
	w.want("admitted", w.preemption(podOf("web", 0), "spot-0", "on-demand-0", "unknown"), "on-demand-0")
	other := podOf("web", 1)
	other.Spec.SchedulerName = v1.DefaultSchedulerName
	w.want("of another profile", w.preemption(other, "spot-0", "unknown"), "spot-0", "unknown")
}

// preemption sends a preempt request for a pod and returns the permitted nodes in alphabetical
// order.
func (w *world) preemption(pod *v1.Pod, names ...string) []string {
	w.Helper()
	candidates := map[string]*extenderv1.MetaVictims{}
	for _, name := range names {
		candidates[name] = &extenderv1.MetaVictims{}
	}
	if err := w.admitPreemption(pod, candidates); err != nil {
		w.Fatal(err)
	}
	return slices.Sorted(maps.Keys(candidates))
}

func TestScores(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 10 min=1")
	w.bound(podOf("web", 0), "on-demand-0")
	w.bound(podOf("web", 1), "spot-1")
	scores, err := w.scores(podOf("web", 2), slices.Concat(w.names, []string{"unknown"}))
	if err != nil {
		t.Fatal(err)
	}
	// Spot nodes score highest, and among them the nodes without a sibling, in pools without a
	// sibling.
	var got []int64
	for _, score := range scores {
		got = append(got, score.Score)
	}
	if diff := cmp.Diff([]int64{4, 5, 9, 8, 9, 0}, got); diff != "" {
		t.Errorf("scores of %v (-want +got):\n%s", w.names, diff)
	}
}

// A new leader counts nominations: the scheduler writes them before slow steps of a binding.
func TestNominationsOfAnEarlierLeader(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 2")
	w.bound(podOf("web", 0), "on-demand-0")
	pod := podOf("web", 1)
	if w.Counts(pod.UID) {
		t.Error("an unknown pod counts")
	}
	nominated := pod.DeepCopy()
	nominated.Status.NominatedNodeName = "spot-0"
	w.created(nominated)
	if !w.Counts(pod.UID) {
		t.Error("a nominated pod does not count")
	}
	w.want("a sibling", w.filter(podOf("web", 2), spotNodes...))
	w.want("itself", w.filter(nominated, spotNodes...), spotNodes...)
	w.setPod(nominated, pod)
	w.forget(pod.UID)
	if w.Counts(pod.UID) {
		t.Error("a pod counts whose nomination has ended")
	}
	w.bound(pod, "spot-0")
	if !w.Counts(pod.UID) {
		t.Error("a bound pod does not count")
	}
	w.want("a sibling of the bound pod", w.filter(podOf("web", 2), spotNodes...))
}

// TakeOver waits while the scheduler binds pods, of any profile because all share its client rate
// limit. The wait is limited.
func TestTakeOver(t *testing.T) {
	for name, test := range map[string]struct {
		bindings, nominations, want time.Duration
	}{
		"nothing is bound":    {0, 0, time.Second},
		"bindings for 2 s":    {2 * time.Second, 0, 3 * time.Second},
		"endless bindings":    {time.Hour, 0, time.Minute},
		"nominations for 2 s": {0, 2 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				w.Extender.clock = clock.RealClock{}
				began := time.Now()
				for at := 100 * time.Millisecond; at < min(test.bindings, 2*time.Minute); at += 500 * time.Millisecond {
					time.AfterFunc(at, func() {
						other := podOf("web", int(at/time.Millisecond))
						other.Spec.SchedulerName = v1.DefaultSchedulerName
						w.bound(other, "on-demand-0")
					})
				}
				for at := 100 * time.Millisecond; at < test.nominations; at += 500 * time.Millisecond {
					time.AfterFunc(at, func() {
						other := podOf("web", int(at/time.Millisecond))
						other.Status.NominatedNodeName = "spot-0"
						w.created(other)
					})
				}
				err := w.TakeOver(t.Context(), func(context.Context) (time.Duration, error) {
					time.Sleep(time.Second)
					return time.Second, nil
				}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("took over after %s, want %s", took, test.want)
				}
				time.Sleep(3 * time.Minute) // for the remaining bindings
			})
		})
	}
	w := newCluster(t)
	if err := w.TakeOver(t.Context(), func(context.Context) (time.Duration, error) { return 0, context.Canceled }, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("end of the term during the wait: %v", err)
	}
}

func TestUnlabeledNodesSettle(t *testing.T) {
	w := newWorld(t, func(p *decision.Policy) { p.LabelGrace = 30 * time.Second })
	w.build("node spot-0 spot a/z")
	w.build("node young - b/z born=0s")
	w.build("deployment web 1")
	_, reasons := w.filterWithReasons(podOf("web", 0), "young")
	w.want("while it is young", reasons, "node has no capacity label yet and is too young to count as on-demand")
	w.clock.Step(30 * time.Second)
	w.want("later, without an event", w.filter(podOf("web", 0), "young"), "young")
}

// Of many nodes, the answer has at most a hundred: all nodes of a small pool, and the others in
// turns. A later filter may refuse them all, so the third answer has all nodes.
func TestManyNodes(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		w.build(fmt.Sprintf("node large-%d spot large/z", i))
	}
	for i := range 20 {
		w.build(fmt.Sprintf("node small-%d spot small/z", i))
	}
	w.build("node od on-demand od/z")
	w.build("deployment web 1000")
	w.created(podOf("web", 0))
	w.bound(podOf("web", 0), "od")
	seen := map[string]bool{}
	for i := range 20 {
		kept := w.filter(podOf("web", 1+i))
		small := 0
		for _, name := range kept {
			seen[name] = true
			if strings.HasPrefix(name, "small-") {
				small++
			}
		}
		if len(kept) < 70 || len(kept) > 100 || small != 20 || slices.Contains(kept, "od") {
			t.Fatalf("%d nodes, %d from the small pool; want 70 to 100 spot nodes, 20 from the small pool", len(kept), small)
		}
	}
	if len(seen) != 1020 {
		t.Errorf("%d of 1,020 spot nodes were in any answer", len(seen))
	}
	w.filter(podOf("web", 1))
	if kept := w.filter(podOf("web", 1)); len(kept) != 1021 {
		t.Errorf("%d nodes in the third answer, want all 1,021", len(kept))
	}
}

// Of more pools than that, every pool is in some answer.
func TestManyPools(t *testing.T) {
	w := newWorld(t)
	w.nodes(150, "spot")
	w.build("deployment web 300 min=0")
	seen := map[string]bool{}
	for i := range 150 {
		kept, reasons := w.filterWithReasons(podOf("web", i))
		if len(kept) != 100 {
			t.Fatalf("%d nodes, want 100: %v", len(kept), reasons)
		}
		for _, name := range kept {
			seen[name] = true
		}
	}
	if len(seen) != 150 {
		t.Errorf("%d of 150 pools were in any answer", len(seen))
	}
}

// A panic in a decision leaves no lock held: net/http continues to serve, and all other decisions
// would block.
func TestPanic(t *testing.T) {
	w := newWorld(t)
	w.build("node spot-0 spot a/z")
	w.build("deployment web 2")
	cluster := w.cluster
	w.cluster = nil
	func() {
		defer func() { _ = recover() }()
		kept := w.filter(podOf("web", 0), "spot-0")
		t.Errorf("expected a panic, got %v", kept)
	}()
	if !w.mu.TryLock() {
		t.Fatal("the lock is held")
	}
	w.mu.Unlock()
	w.cluster = cluster
	w.want("afterwards", w.filter(podOf("web", 1), "spot-0"), "spot-0")
}

// Of nodes that are otherwise equal, one in a zone without siblings is better.
func TestScoreByZone(t *testing.T) {
	w := newWorld(t)
	w.build("node od on-demand c/a")
	w.build("node spot-a1 spot a/a")
	w.build("node spot-a2 spot b/a")
	w.build("node spot-b spot b/b")
	w.build("deployment web 4")
	w.bound(podOf("web", 0), "od")
	w.bound(podOf("web", 1), "spot-a1")
	scores, err := w.scores(podOf("web", 2), []string{"spot-a2", "spot-b"})
	if err != nil || scores[0].Score >= scores[1].Score {
		t.Errorf("scores %v, %v, want more for the zone without siblings", scores, err)
	}
}

// The claim of a pod on an unknown node ends when the node is known, and when it has expired.
func TestUnknownNode(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 3")
	w.bound(podOf("web", 0), "on-demand-0")
	w.bound(podOf("web", 1), "later")
	w.build("node later on-demand")
	w.want("one on spot", w.filter(podOf("web", 2), spotNodes...), spotNodes...)
	w.want("two on spot", w.filter(podOf("web", 3), spotNodes...), spotNodes...)
	w.bound(podOf("web", 2), "gone")
	w.clock.Step(unknownNodeTimeout - 1)
	w.want("before the claim has expired", w.filter(podOf("web", 4), spotNodes...))
	w.clock.Step(1)
	w.want("after the claim has expired", w.filter(podOf("web", 4), spotNodes...), spotNodes...)
}

// The informers feed the extender. Invalid capacity labels of a node are reported.
func TestWatch(t *testing.T) {
	node := clustertest.NewNode("n", "", "a/z")
	node.Labels["karpenter.sh/capacity-type"], node.Labels["eks.amazonaws.com/capacityType"] = "spot", "ON_DEMAND"
	w := newWorld(t, func(*decision.Policy) {})
	w.factory = informers.NewSharedInformerFactory(fake.NewClientset(node), 0)
	var err error
	if w.Extender, err = New(clustertest.Profile, w.policy, nil, w.factory, w.recorder, w.clock); err != nil {
		t.Fatal(err)
	}
	synced, err := w.Watch(w.factory)
	if err != nil || synced() {
		t.Fatalf("in sync before the start: %t, %v", synced(), err)
	}
	w.factory.Start(t.Context().Done())
	cache.WaitForCacheSync(t.Context().Done(), synced)
	w.cluster.Refresh(w.clock.Now())
	if facts, _, known := w.cluster.Node("n"); !known || facts.Capacity.Source != decision.FromContradiction {
		t.Errorf("node: %+v, known: %t", facts, known)
	}
	select {
	case event := <-w.events:
		if !strings.Contains(event, spot.ReasonContradictoryLabels) {
			t.Errorf("event %q", event)
		}
	case <-time.After(10 * time.Second):
		t.Error("no event")
	}
}
