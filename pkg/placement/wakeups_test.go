package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// endPeriod advances the clock by wakePeriod and waits until each throttled owner has a new timer
// or is no longer throttled. It returns the number of throttled owners.
func (w *WaitingPods) endPeriod(t *testing.T, c *clocktesting.FakeClock) (throttled int) {
	t.Helper()
	c.Step(wakePeriod)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		throttled = len(w.throttled)
		w.mu.Unlock()
		if c.Waiters() == throttled {
			return throttled
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d throttled owners, but %d timers", throttled, c.Waiters())
		}
	}
}

// endThrottles advances the clock until no owner is throttled.
func (w *WaitingPods) endThrottles(t *testing.T, c *clocktesting.FakeClock) {
	t.Helper()
	for range 100 {
		if w.endPeriod(t, c) == 0 {
			return
		}
	}
	t.Fatal("owners stay throttled although nothing changes")
}

// foundFor records n pods that wait on owner, the first one for the longest time. It returns their
// keys.
func (w *WaitingPods) foundFor(c *clocktesting.FakeClock, owner workload.OwnerKey, n int) (keys []string) {
	for i := range n {
		pod := podOf(fmt.Sprintf("p-%04d", i), "rs")
		w.AddUnschedulable(pod, Wait{Owners: []workload.OwnerKey{owner}})
		keys = append(keys, "shop/"+pod.Name)
		c.Step(time.Nanosecond)
	}
	return keys
}

// The first change of an owner wakes its pods at once. Further changes within a second wake them
// once, at the end of the second.
func TestWakeOwnedIsLimitedPerOwner(t *testing.T) {
	w, c, woken := newWaiting()
	owner := replicaSetKey("rs")
	w.foundFor(c, owner, 1)
	w.AddUnschedulable(podOf("other", "other"), Wait{Owners: []workload.OwnerKey{replicaSetKey("other")}})
	w.WakeOwned(owner, all)
	woken.expect(t, "the first change", "shop/p-0000")
	for range 50 {
		w.WakeOwned(owner, all)
	}
	woken.expect(t, "changes within the second")
	w.WakeOwned(replicaSetKey("other"), all)
	woken.expect(t, "another owner's", "shop/other")
	w.endPeriod(t, c)
	woken.expect(t, "the end of the second", "shop/p-0000")
	w.endPeriod(t, c)
	woken.expect(t, "a second without a change")
	w.WakeOwned(owner, all)
	woken.expect(t, "the next change", "shop/p-0000")
	w.Delete(clustertest.UID("p-0000"))
	w.Delete(clustertest.UID("other"))
	w.endThrottles(t, c)
	if w.WakeOwned(owner, all); len(w.throttled) != 0 {
		t.Errorf("owners without waiting pods are recorded: %v", w.throttled)
	}
}

// Only pods that the check reports are woken. It is called at most once per second, because its
// cost grows with the number of pods.
func TestWakeOwnedChecks(t *testing.T) {
	w, c, woken := newWaiting()
	owner := replicaSetKey("rs")
	w.foundFor(c, owner, 3)
	checks := 0
	check := func() func(*v1.Pod, Wait) bool {
		checks++
		return func(pod *v1.Pod, _ Wait) bool { return pod.Name == "p-0001" }
	}
	w.WakeOwned(owner, check)
	woken.expect(t, "the first change", "shop/p-0001")
	none := func() func(*v1.Pod, Wait) bool {
		checks++
		return func(*v1.Pod, Wait) bool { return false }
	}
	for range 50 {
		w.WakeOwned(owner, none)
	}
	w.endPeriod(t, c)
	woken.expect(t, "changes that unblock no pod")
	if checks != 2 {
		t.Errorf("checks %d times, want 2", checks)
	}
}

// A pod is unblocked by a change of its owner or by time, until its next attempt.
func TestUnblocked(t *testing.T) {
	w, c, woken := newWaiting()
	owner, pod := replicaSetKey("rs"), podOf("p", "rs")
	refuse := func(retryAt time.Time) {
		w.AddUnschedulable(pod, Wait{Owners: []workload.OwnerKey{owner}, DependsOnSiblings: true, RetryAt: retryAt})
		woken.take()
	}
	expect := func(when string, want bool) {
		t.Helper()
		if got := w.View(pod, Gang{}, false, empty).Unblocked; got != want {
			t.Errorf("%s: Unblocked = %t, want %t", when, got, want)
		}
	}
	refuse(time.Time{})
	expect("refused", false)
	w.WakeSiblings(owner)
	expect("a sibling left", false)
	w.endThrottles(t, c)
	w.WakeOwned(owner, all)
	expect("the owner changed", true)
	refuse(c.Now().Add(time.Hour))
	expect("refused again", false)
	c.Step(time.Hour)
	expect("RetryAt", true)
}

// One change wakes as many pods per second as the limit allows, the longest waiting first, and each
// pod once.
func TestWakeOwnedInBatches(t *testing.T) {
	w, c, woken := newWaiting()
	owner := replicaSetKey("rs")
	keys := w.foundFor(c, owner, 2*wakeBatch+1)
	w.WakeOwned(owner, all)
	for batch := range slices.Chunk(keys, wakeBatch) {
		woken.expect(t, "a batch", batch...)
		w.endPeriod(t, c)
	}
	woken.expect(t, "after the last batch")
}

// An owner that changes continuously wakes all of its pods in turn.
func TestWakeOwnedInTurns(t *testing.T) {
	w, c, woken := newWaiting()
	owner := replicaSetKey("rs")
	keys := w.foundFor(c, owner, 3*wakeBatch)
	for round := range 2 {
		var got []string
		for range 3 {
			w.WakeOwned(owner, all)
			if w.throttled[owner].check != nil {
				w.endPeriod(t, c)
			}
			batch := woken.take()
			for _, key := range batch { // each attempt fails
				pod := podOf(key[len("shop/"):], "rs")
				w.AddUnschedulable(pod, Wait{Owners: []workload.OwnerKey{owner}})
			}
			got = append(got, batch...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(keys, got); diff != "" {
			t.Errorf("round %d: woken (-want +got):\n%s", round+1, diff)
		}
	}
}

// A change of an owner and the end of a nomination within one second both take effect, in either
// order.
func TestChangesOfOneSecondAddUp(t *testing.T) {
	owner := replicaSetKey("rs")
	none := func() func(*v1.Pod, Wait) bool { return func(*v1.Pod, Wait) bool { return false } }
	for name, test := range map[string]struct {
		wait    Wait
		changes []func(*WaitingPods)
	}{
		"an owner's status after the end of a nomination": {Wait{DependsOnSiblings: true}, []func(*WaitingPods){
			func(w *WaitingPods) { w.WakeSiblings(owner) }, func(w *WaitingPods) { w.WakeOwned(owner, none) },
		}},
		"the end of a nomination after a change of the owner": {Wait{}, []func(*WaitingPods){
			func(w *WaitingPods) { w.WakeOwned(owner, all) }, func(w *WaitingPods) { w.WakeSiblings(owner) },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, c, woken := newWaiting()
			pod := podOf("p", "rs")
			test.wait.Owners = []workload.OwnerKey{owner}
			w.AddUnschedulable(pod, test.wait)
			w.WakeOwned(owner, none)
			woken.expect(t, "at once")
			for _, happens := range test.changes {
				happens(w)
			}
			w.endThrottles(t, c)
			woken.expect(t, "when it has closed", "shop/p")
		})
	}
}

// However often floor pods stop waiting, the wake-ups of pods that may not use reserved nodes
// respect the limits.
func TestHeldPodsAreWokenInBatches(t *testing.T) {
	const reserved, seconds = 5 * wakeBatch, 10
	w, c, woken := newWaiting()
	for i := range reserved {
		w.AddUnschedulable(podOf(fmt.Sprintf("reserved-%d", i), ""), Wait{NodeReserved: true})
	}
	activations := 0
	for range seconds {
		w.AddUnschedulable(podOf("floor", ""), Wait{ForOnDemand: true})
		w.Delete(clustertest.UID("floor"))
		c.Step(time.Second)
		for range 20 { // until the goroutines have run
			activations += len(woken.take())
			time.Sleep(time.Millisecond)
		}
	}
	if activations == 0 || activations > (seconds+1)*wakeBatch {
		t.Errorf("%d activations in %d s, want some and at most %d a second", activations, seconds, wakeBatch)
	}
}

// The number of comparisons per node is bounded, whatever pods tenants create, and equal pods count
// as one.
func TestFloorsAreComparedByShape(t *testing.T) {
	w, _, _ := newWaiting()
	single := func(name, cpu string) *v1.Pod {
		pod := podOf(name, "")
		pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
		return pod
	}
	for i := range 1000 {
		w.AddUnschedulable(single(fmt.Sprintf("alike-%d", i), "1"), Wait{ForOnDemand: true})
	}
	if n := len(w.onDemandFits("")); n != 1 {
		t.Errorf("%d shapes of 1,000 equal pods, want 1", n)
	}
	for i := range 2 * maxShapes {
		w.AddUnschedulable(single(fmt.Sprintf("other-%d", i), fmt.Sprintf("%dm", i+1)), Wait{ForOnDemand: true})
	}
	if n := len(w.onDemandFits("")); n != maxShapes {
		t.Errorf("%d shapes are compared, want %d", n, maxShapes)
	}
	for uid := range w.pods {
		w.Delete(uid)
	}
	if len(w.onDemandShapes) > 0 {
		t.Errorf("%d shapes are recorded without pods", len(w.onDemandShapes))
	}
}
