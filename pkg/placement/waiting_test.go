package placement

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// woken collects the woken pods.
type woken struct {
	mu    sync.Mutex
	names []string
}

func (w *woken) wake(pods map[string]*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, pod := range pods {
		if key != pod.Namespace+"/"+pod.Name {
			key = "wrong key " + key
		}
		w.names = append(w.names, key)
	}
	slices.Sort(w.names)
}

// take returns the pods that were woken since its last call.
func (w *woken) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.names
	w.names = nil
	return names
}

// empty has no node that may be reserved.
var empty = NewCounter(&node.Reader{Policy: &decision.Policy{}})

func newWaiting() (*WaitingPods, *clocktesting.FakeClock, *woken) {
	c, w := clocktesting.NewFakeClock(now), &woken{}
	return NewWaitingPods(c, w.wake), c, w
}

func (w *woken) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.take()); diff != "" {
		t.Errorf("%s: woken (-want +got):\n%s", when, diff)
	}
}

// eventually is like expect, for pods that another goroutine wakes.
func (w *woken) eventually(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(20 * time.Second); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		got = append(got, w.take()...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: woken (-want +got):\n%s", when, diff)
	}
}

// Since returns when the pod was first found unschedulable, however often it was found again.
func TestSinceIsTheFirstTime(t *testing.T) {
	w, c, _ := newWaiting()
	pod := podOf("p", "rs")
	if _, waits := w.Since(podOf("p", "rs")); waits {
		t.Error("waits before it was found")
	}
	for range 3 {
		w.AddUnschedulable(pod, Wait{})
		c.Step(time.Second)
	}
	if since, waits := w.Since(podOf("p", "rs")); !waits || !since.Equal(now) {
		t.Errorf("Since = %v, %t; want %v, true", since, waits, now)
	}
	w.Delete(clustertest.UID("p"))
	if _, waits := w.Since(podOf("p", "rs")); waits {
		t.Error("still waits after Delete")
	}
	w.AddUnschedulable(pod, Wait{})
	if since, _ := w.Since(podOf("p", "rs")); !since.Equal(now.Add(3 * time.Second)) {
		t.Errorf("Since after Delete = %v, want the time of the new AddUnschedulable", since)
	}
}

func TestAgain(t *testing.T) {
	w, c, woken := newWaiting()
	pod := podOf("p", "rs")
	w.AddUnschedulable(pod, Wait{RetryAt: now.Add(5 * time.Second)})
	c.Step(5*time.Second - 1)
	woken.expect(t, "before")
	c.Step(1)
	woken.expect(t, "in time", "shop/p")
	c.Step(time.Hour)
	woken.expect(t, "long after")

	w.AddUnschedulable(pod, Wait{RetryAt: c.Now().Add(5 * time.Second)})
	w.AddUnschedulable(pod, Wait{RetryAt: c.Now().Add(9 * time.Second)})
	c.Step(5 * time.Second)
	woken.expect(t, "at the replaced time")
	c.Step(4 * time.Second)
	woken.expect(t, "at the new time", "shop/p")

	w.AddUnschedulable(pod, Wait{RetryAt: c.Now().Add(5 * time.Second)})
	w.Delete(clustertest.UID("p"))
	c.Step(time.Hour)
	woken.expect(t, "after Delete")

	w.AddUnschedulable(pod, Wait{RetryAt: c.Now().Add(5 * time.Second)})
	w.AddUnschedulable(pod, Wait{})
	c.Step(time.Hour)
	woken.expect(t, "without a new time")
	if c.HasWaiters() {
		t.Error("a timer is left over")
	}
}

// all is an OwnerCheck that reports every pod.
func all() func(*v1.Pod, Wait) bool { return func(*v1.Pod, Wait) bool { return true } }

func TestWakeOwned(t *testing.T) {
	w, c, woken := newWaiting()
	w.AddUnschedulable(podOf("a", "rs-1"), Wait{Owners: []workload.OwnerKey{replicaSetKey("rs-1"), replicaSetKey("web")}})
	w.AddUnschedulable(podOf("b", "rs-2"), Wait{Owners: []workload.OwnerKey{replicaSetKey("rs-2"), replicaSetKey("web")}})
	w.AddUnschedulable(podOf("c", "rs-3"), Wait{Owners: []workload.OwnerKey{replicaSetKey("rs-3")}})
	w.AddUnschedulable(podOf("d", ""), Wait{})

	w.WakeOwned(replicaSetKey("rs-1"), all)
	woken.expect(t, "rs-1", "shop/a")
	w.WakeOwned(replicaSetKey("web"), all)
	woken.expect(t, "web", "shop/a", "shop/b")
	w.WakeOwned(replicaSetKey("unowned"), all)
	woken.expect(t, "an owner without waiting pods")
	w.endThrottles(t, c)
	w.AddUnschedulable(podOf("a", "rs-1"), Wait{Owners: []workload.OwnerKey{replicaSetKey("rs-9")}})
	w.Delete(clustertest.UID("b"))
	w.WakeOwned(replicaSetKey("web"), all)
	woken.expect(t, "web, two of its pods no longer wait for it")
	w.WakeOwned(replicaSetKey("rs-9"), all)
	woken.expect(t, "rs-9", "shop/a")
	w.Wake(podOf("d", ""))
	woken.expect(t, "one pod by name", "shop/d")
	w.Delete(clustertest.UID("a"))
	w.Delete(clustertest.UID("c"))
	w.endThrottles(t, c)
	if len(w.byOwner) != 0 {
		t.Errorf("owners without waiting pods are recorded: %v", w.byOwner)
	}
}

func TestWakeAllSiblingsSoon(t *testing.T) {
	w, c, woken := newWaiting()
	w.WakeAllSiblingsSoon()
	if c.HasWaiters() {
		t.Error("a timer without waiting pods")
	}
	w.AddUnschedulable(podOf("a", "rs"), Wait{DependsOnSiblings: true})
	w.AddUnschedulable(podOf("b", "rs"), Wait{})
	w.WakeAllSiblingsSoon()
	c.Step(500 * time.Millisecond)
	w.AddUnschedulable(podOf("c", "rs"), Wait{DependsOnSiblings: true})
	w.WakeAllSiblingsSoon()
	woken.expect(t, "within the second")
	c.Step(500 * time.Millisecond)
	woken.expect(t, "after it: all pods that depend on siblings, once", "shop/a", "shop/c")
	c.Step(time.Hour)
	woken.expect(t, "later")
	w.WakeAllSiblingsSoon()
	c.Step(time.Second)
	woken.expect(t, "the next time", "shop/a", "shop/c")
}

func TestForOnDemand(t *testing.T) {
	w, c, _ := newWaiting()
	expect := func(when string, wantPods int, wantLongest time.Duration) {
		t.Helper()
		if pods, longest := w.ForOnDemand(); pods != wantPods || longest != wantLongest {
			t.Errorf("%s: ForOnDemand = %d, %s; want %d, %s", when, pods, longest, wantPods, wantLongest)
		}
	}
	expect("without any", 0, 0)
	w.AddUnschedulable(podOf("a", "rs"), Wait{})
	c.Step(time.Second)
	w.AddUnschedulable(podOf("b", "rs"), Wait{ForOnDemand: true})
	c.Step(time.Second)
	w.AddUnschedulable(podOf("c", "rs"), Wait{ForOnDemand: true})
	expect("one waits for something else", 2, time.Second)
	w.AddUnschedulable(podOf("b", "rs"), Wait{})
	c.Step(time.Second)
	expect("another one, now", 1, time.Second)
	w.AddUnschedulable(podOf("c", "rs"), Wait{ForOnDemand: true})
	expect("found once more", 1, time.Second)
}

// The scheduler, informer handlers, timers and metrics call all methods concurrently. The race
// detector checks the locks. In the end the registry must be empty.
func TestWaitingConcurrently(t *testing.T) {
	woken := &woken{}
	w := NewWaitingPods(clock.RealClock{}, woken.wake)
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			for i := range 200 {
				pod := podOf(fmt.Sprintf("p-%d", (worker+i)%8), "rs")
				gang := Gang{replicaSetKey("rs"), "shop/train"}
				w.AddUnschedulable(pod, Wait{Owners: []workload.OwnerKey{replicaSetKey("rs")}, RetryAt: time.Now(), DependsOnSiblings: true, Gang: gang})
				w.View(pod, gang, true, empty)
				w.Since(pod)
				w.WakeOwned(replicaSetKey("rs"), all)
				w.WakeAllSiblingsSoon()
				w.ForOnDemand()
				w.MarkBound(pod.UID, gang)
				w.Delete(pod.UID)
			}
		})
	}
	workers.Wait()
	for i := range 8 {
		w.Delete(clustertest.UID(fmt.Sprintf("p-%d", i)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pods)+len(w.byOwner)+len(w.gangs)+len(w.gangOf) != 0 {
		t.Errorf("not removed: %v, %v, %v, %v", w.pods, w.byOwner, w.gangs, w.gangOf)
	}
	if len(woken.take()) == 0 {
		t.Error("nothing was woken")
	}
}

// A new leader resumes the wait that the pod records.
func TestSinceAnEarlierLeader(t *testing.T) {
	w, c, _ := newWaiting()
	pod := podOf("p", "rs")
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
		LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	want := now.Add(-time.Hour + time.Second)
	for range 2 {
		view := w.View(pod, Gang{replicaSetKey("rs"), "shop/train"}, false, empty)
		if !view.Since.Equal(want) || !view.GangSince.Equal(want) {
			t.Errorf("since %s, in a gang since %s; want %s", view.Since, view.GangSince, want)
		}
		w.AddUnschedulable(pod, Wait{Gang: Gang{replicaSetKey("rs"), "shop/train"}, ForOnDemand: true})
		c.Step(time.Second)
	}
	if since := w.View(podOf("q", "rs"), Gang{replicaSetKey("rs"), "shop/train"}, false, empty).GangSince; !since.Equal(want) {
		t.Errorf("another pod of the gang waits since %s, want %s", since, want)
	}
	if _, longest := w.ForOnDemand(); longest != time.Hour+time.Second {
		t.Errorf("longest wait %s", longest)
	}
}

// The pods of a gang share the time since its first waiting pod was found unschedulable, until a
// pod of the gang is bound.
func TestGangWaitsTogether(t *testing.T) {
	w, c, _ := newWaiting()
	train := Gang{replicaSetKey("rs"), "shop/train"}
	gangs := map[string]Gang{
		"first": train, "second": train, "never": train,
		"other gang": {replicaSetKey("rs"), "shop/other"}, "other workload": {replicaSetKey("foreign"), "shop/train"}, "alone": {},
	}
	found := func(names ...string) {
		for _, name := range names {
			w.AddUnschedulable(podOf(name, "rs"), Wait{Gang: gangs[name]})
		}
	}
	expect := func(when string, want map[string]time.Duration) {
		t.Helper()
		for name, gang := range gangs {
			var wantSince time.Time
			if after, waits := want[name]; waits {
				wantSince = now.Add(after)
			}
			if since := w.View(podOf(name, "rs"), gang, false, empty).GangSince; !since.Equal(wantSince) {
				t.Errorf("%s: %s waits since %s, want since %s", when, name, since, wantSince)
			}
		}
	}
	expect("at first", nil)
	found("first")
	c.Step(time.Second)
	found("second", "alone")
	expect("both found", map[string]time.Duration{"first": 0, "second": 0, "never": 0, "alone": time.Second})
	w.Delete(clustertest.UID("first"))
	expect("first deleted", map[string]time.Duration{"second": time.Second, "first": time.Second, "never": time.Second, "alone": time.Second})
	c.Step(time.Second)
	found("never")
	w.MarkBound(clustertest.UID("alone"), Gang{})
	w.MarkBound(clustertest.UID("first"), train)
	w.MarkBound(clustertest.UID("first"), train) // reported twice
	expect("first bound", map[string]time.Duration{"second": time.Second, "never": 2 * time.Second})
	w.Delete(clustertest.UID("first"))
	expect("first bound and deleted, while others wait", map[string]time.Duration{"second": time.Second, "never": 2 * time.Second})
	w.MarkBound(clustertest.UID("second"), train)
	w.Delete(clustertest.UID("never"))
	w.Delete(clustertest.UID("second"))
	if len(w.gangs)+len(w.gangOf) != 0 {
		t.Errorf("gangs without pods are recorded: %v, %v", w.gangs, w.gangOf)
	}
	found("first")
	c.Step(time.Second)
	expect("a new gang of the same name", map[string]time.Duration{"first": 2 * time.Second, "second": 2 * time.Second, "never": 2 * time.Second})
}

// Pods that may not use a reserved node are retried when a pod that it may be reserved for stops
// waiting for on-demand. Several such pods at once cause one retry.
func TestWakesPodsWithReservedNodes(t *testing.T) {
	for name, end := range map[string]func(w *WaitingPods){
		"placed or deleted":             func(w *WaitingPods) { w.Delete(clustertest.UID("floor")) },
		"no longer waits for on-demand": func(w *WaitingPods) { w.AddUnschedulable(podOf("floor", ""), Wait{}) },
		"two pods at once":              func(w *WaitingPods) { w.Delete(clustertest.UID("floor")); w.Delete(clustertest.UID("other")) },
		"no change":                     nil,
	} {
		t.Run(name, func(t *testing.T) {
			w, c, woken := newWaiting()
			w.AddUnschedulable(podOf("floor", ""), Wait{ForOnDemand: true})
			w.AddUnschedulable(podOf("other", ""), Wait{ForOnDemand: true})
			w.AddUnschedulable(podOf("refused", ""), Wait{NodeReserved: true})
			w.AddUnschedulable(podOf("open", ""), Wait{})
			if end != nil {
				end(w)
			} else {
				w.AddUnschedulable(podOf("floor", ""), Wait{ForOnDemand: true})
				w.Delete(clustertest.UID("open"))
			}
			woken.expect(t, "at once")
			c.Step(time.Second)
			if end != nil {
				woken.eventually(t, "after a second", "shop/refused")
			}
			c.Step(time.Minute)
			woken.expect(t, "later")
		})
	}
}
