package node

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// heartbeatsFixture is heartbeats with a fake clock and with Leases. The renewTime of all Leases is
// a day behind.
type heartbeatsFixture struct {
	*heartbeats
	clock  *clocktesting.FakePassiveClock
	leases map[string]*coordinationv1.Lease
}

func newHeartbeatsFixture() *heartbeatsFixture {
	clock := clocktesting.NewFakePassiveClock(now)
	return &heartbeatsFixture{&heartbeats{clock: clock, renewed: map[string]renewal{}}, clock, map[string]*coordinationv1.Lease{}}
}

// renew renews the Leases of nodes. It creates missing Leases.
func (h *heartbeatsFixture) renew(nodes ...string) {
	for _, name := range nodes {
		before := h.leases[name]
		after := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		after.Spec.RenewTime = &metav1.MicroTime{Time: h.clock.Now().Add(-24 * time.Hour)}
		h.leases[name] = after
		if before == nil {
			h.handler().OnAdd(after, true)
		} else {
			h.handler().OnUpdate(before, after)
		}
	}
}

// wait advances the clock by d. The Leases of nodes are renewed every 10 s meanwhile.
func (h *heartbeatsFixture) wait(d time.Duration, nodes ...string) {
	for end := h.clock.Now().Add(d); h.clock.Now().Before(end); {
		h.clock.SetTime(h.clock.Now().Add(min(10*time.Second, end.Sub(h.clock.Now()))))
		h.renew(nodes...)
	}
}

func TestHeartbeats(t *testing.T) {
	for name, test := range map[string]struct {
		play func(*heartbeatsFixture)
		want map[string]time.Duration // time since the last renewal of overdue Leases
	}{
		"nothing":     {func(*heartbeatsFixture) {}, nil},
		"all renewed": {func(h *heartbeatsFixture) { h.renew("a", "b"); h.wait(time.Hour, "a", "b") }, nil},
		"not renewed for 19 s": {func(h *heartbeatsFixture) {
			h.renew("a", "b")
			h.wait(10*time.Second, "a")
			h.wait(9*time.Second, "a")
		}, nil},
		"not renewed for 20 s": {func(h *heartbeatsFixture) { h.renew("a", "b"); h.wait(20*time.Second, "a") }, map[string]time.Duration{"b": 20 * time.Second}},
		"renewed again": {func(h *heartbeatsFixture) { h.renew("a", "b"); h.wait(time.Minute, "a"); h.renew("b") },
			nil},
		"an update without a renewal": {func(h *heartbeatsFixture) {
			h.renew("a", "b")
			h.wait(30*time.Second, "a")
			h.handler().OnUpdate(h.leases["b"], h.leases["b"].DeepCopy())
		}, map[string]time.Duration{"b": 30 * time.Second}},
		"deleted": {func(h *heartbeatsFixture) {
			h.renew("a", "b", "c")
			h.wait(30*time.Second, "a")
			h.handler().OnDelete(h.leases["b"])
			h.handler().OnDelete(cache.DeletedFinalStateUnknown{Obj: h.leases["c"]})
		}, nil},
		"no renewals at all": {func(h *heartbeatsFixture) { h.renew("a", "b", "c"); h.wait(time.Hour) }, nil},
		"all count as renewed after a pause": {func(h *heartbeatsFixture) {
			h.renew("a", "b", "c")
			h.wait(time.Hour)
			h.renew("a")
			h.wait(19*time.Second, "a")
		}, nil},
		"a read does not end a pause": {func(h *heartbeatsFixture) {
			h.renew("a", "b")
			for range 360 {
				h.wait(10 * time.Second)
				h.record(&coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: h.clock.Now()}},
				}, false)
			}
		}, nil},
		"a read counts as a renewal": {func(h *heartbeatsFixture) {
			h.renew("a", "b", "c")
			h.wait(time.Minute, "c")
			h.record(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, false)
			h.record(h.leases["b"], false)
		}, map[string]time.Duration{"b": time.Minute}},
		"overdue after a pause without renewals": {func(h *heartbeatsFixture) {
			h.renew("a", "b", "c")
			h.wait(time.Hour)
			h.renew("a")
			h.wait(10*time.Second, "a", "b")
			h.wait(30*time.Second, "a")
		}, map[string]time.Duration{"b": 30 * time.Second, "c": 40 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeartbeatsFixture()
			test.play(h)
			var got map[string]time.Duration
			for name, at := range h.Overdue(h.clock.Now()) {
				if got == nil {
					got = map[string]time.Duration{}
				}
				got[name] = h.clock.Now().Sub(at)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("overdue (-want +got):\n%s", diff)
			}
		})
	}
}

// A cluster of 5,000 nodes has 500 renewals per second.
func TestRenewalAllocatesNothing(t *testing.T) {
	h := newHeartbeatsFixture()
	h.renew("a")
	before, after := h.leases["a"], h.leases["a"].DeepCopy()
	after.Spec.RenewTime.Time = now
	handler := h.handler()
	if n := testing.AllocsPerRun(100, func() { handler.OnUpdate(before, after) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// A LiveReader watches only the Leases of kubelets, through the shared factory.
func TestWatchHeartbeats(t *testing.T) {
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	client := fake.NewClientset(lease(v1.NamespaceNodeLease, "a"), lease(v1.NamespaceNodeLease, "b"), lease(metav1.NamespaceSystem, "c"))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform.Trim))
	clock := clocktesting.NewFakePassiveClock(now)
	live, err := NewLiveReader(client, factory, clock)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	for of, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("no cache of %v", of)
		}
	}
	h := live.heartbeats
	noted := func() []string {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Sorted(maps.Keys(h.renewed))
	}
	for len(noted()) < 2 { // handlers run after the cache is full
		time.Sleep(time.Millisecond)
	}
	if diff := cmp.Diff([]string{"a", "b"}, noted()); diff != "" {
		t.Errorf("Leases (-want +got):\n%s", diff)
	}
}

// A node counts as lost because of its condition or its Lease. A kubelet that reports NotReady is
// alive.
func TestUnheard(t *testing.T) {
	for _, test := range []struct {
		status  v1.ConditionStatus // "" means no condition
		since   time.Duration
		overdue time.Duration // 0 means not overdue
		want    time.Duration // time since the last sign of life; 0 means not unreachable
	}{
		{v1.ConditionTrue, time.Hour, 0, 0},
		{v1.ConditionFalse, time.Hour, 0, 0},
		{v1.ConditionUnknown, time.Minute, 0, time.Minute},
		{v1.ConditionTrue, time.Hour, 30 * time.Second, 30 * time.Second},
		{v1.ConditionFalse, time.Hour, 30 * time.Second, 30 * time.Second},
		{v1.ConditionUnknown, time.Minute, 30 * time.Second, time.Minute},
		{v1.ConditionUnknown, time.Second, 30 * time.Second, 30 * time.Second},
		{"", 0, 30 * time.Second, 0},
		{"", 0, 0, 0},
	} {
		t.Run(fmt.Sprintf("%s for %s, overdue %s", test.status, test.since, test.overdue), func(t *testing.T) {
			node := nodeWith(spotNodeLabels)
			if test.status != "" {
				withCondition(v1.NodeReady, test.status, now.Add(-test.since))(node)
			}
			reader := Reader{Policy: builtin, NotReadyAfter: 30 * time.Second}
			if test.overdue > 0 {
				reader.Overdue = map[string]time.Time{node.Name: now.Add(-test.overdue)}
			}
			since, unreachable := reader.KubeletUnreachable(node)
			if unreachable != (test.want > 0) || unreachable && now.Sub(since) != test.want {
				t.Errorf("Unheard = %v, %v; want since %s", since, unreachable, test.want)
			}
			lost := test.want >= 30*time.Second
			if facts, _ := reader.Read(node, now); (facts.Signal == decision.Reclaim) != lost {
				t.Errorf("Signal = %s, lost: %v", facts.Signal, lost)
			}
		})
	}
}

// A node without a Lease counts as renewed. A Lease that was observed only once does not.
func TestRenewed(t *testing.T) {
	f := newLiveFixture("n")
	want := func(node string, want bool) {
		t.Helper()
		if got := f.Renewed(node, now.Add(10*time.Second)); got != want {
			t.Errorf("the Lease of %s is renewed: %t, want %t", node, got, want)
		}
	}
	want("without-a-lease", true)
	want("n", false)
	f.wait(9*time.Second, "n")
	want("n", false)
	f.wait(time.Second, "n")
	want("n", true)
	f.wait(time.Hour)
	want("n", true)
}
