package placement

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node/nodetest"
)

var poolA = decision.Pool{InstanceType: "m", Zone: "a"}

// riskOf returns the risk of the spot nodes of pool; 0 if none ever existed.
func (c *Counter) riskOf(pool decision.Pool) float64 {
	if p := c.poolOf[decision.SpreadPool{Capacity: decision.Spot, Pool: pool, Zone: pool.Zone}]; p != nil {
		return p.risk
	}
	return 0
}

// These informer events of a node arrive before the snapshot shows the node with its pods. See
// TestRemovals and package node for the order of events and snapshots.
func TestEventsBeforeTheSnapshot(t *testing.T) {
	withPod := []*v1.Pod{podOf("a", "rs")}
	cases := map[string]struct {
		pods     []*v1.Pod
		capacity string
		steps    func(c *Counter, n *nodeInfo, update func(after time.Duration, nodes ...*nodeInfo))
		want     int
	}{
		"pods added later": {want: 1, steps: func(c *Counter, n *nodeInfo, update func(time.Duration, ...*nodeInfo)) {
			noteInterruption(c, n.node)
			n.pods = []fwk.PodInfo{podInfo{pod: terminating(podOf("old", "rs"))}, podInfo{pod: podOf("a", "rs")}}
			deleted(n)
			update(time.Second, n)
		}},
		"on-demand": {pods: withPod, capacity: "on-demand", steps: func(c *Counter, n *nodeInfo, update func(time.Duration, ...*nodeInfo)) {
			noteInterruption(c, n.node)
			update(time.Second, n)
		}},
		"name reused": {pods: withPod, steps: func(c *Counter, n *nodeInfo, update func(time.Duration, ...*nodeInfo)) {
			other := n.node.DeepCopy()
			other.UID = "another"
			noteInterruption(c, other)
			update(time.Second, n)
		}},
		"unknown node": {pods: withPod, steps: func(c *Counter, n *nodeInfo, update func(time.Duration, ...*nodeInfo)) {
			noteInterruption(c, nodeOf("unknown", "spot", "a").node)
			update(time.Second, n)
		}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			capacity := test.capacity
			if capacity == "" {
				capacity = "spot"
			}
			n := nodeOf("n", capacity, "a", test.pods...)
			n.node.UID = "n"
			c, at := NewCounter(testReader()), now
			c.Update(snapshot(n), at)
			test.steps(c, n, func(after time.Duration, nodes ...*nodeInfo) {
				at = at.Add(after)
				n.generation++
				c.Update(snapshot(nodes...), at)
			})
			if got := len(ages(c, at)[poolA]); got != test.want || len(c.Events.Take()) > 0 {
				t.Errorf("%d losses, want %d, and no pending events", got, test.want)
			}
		})
	}
}

func deleted(n *nodeInfo) { n.node.DeletionTimestamp = &metav1.Time{Time: now} }

func noteInterruption(c *Counter, n *v1.Node) {
	c.Events.Add(node.Event{Name: n.Name, UID: n.UID, Disruption: node.DeletedFirst})
}

// An informer may see an interruption after the snapshot, and the node may then not change for a
// long time.
func TestNoteWithoutChange(t *testing.T) {
	n := nodeOf("n", "spot", "a", podOf("a", "rs"))
	deleted(n)
	c := NewCounter(testReader())
	c.Update(snapshot(n), now)
	noteInterruption(c, n.node)
	c.Update(snapshot(n), now)
	if got := len(ages(c, now)[poolA]); got != 1 {
		t.Errorf("%d losses, want 1", got)
	}
}

// These are removals of nodes as informers and scheduling cycles see them. The informers may be
// ahead.
func TestRemovals(t *testing.T) {
	for name, removal := range nodetest.Removals(now) {
		first := nodeOf("n", "spot", "a")
		first.node.UID = "n"
		states := removal.States(first.node, podOf("a", "rs"))
		for how, looks := range removal.Observations(states) {
			t.Run(name+", "+how, func(t *testing.T) {
				reader := testReader()
				c, at := NewCounter(reader), now
				generation := int64(0)
				for i, state := range states {
					at = now.Add(time.Duration(i) * time.Second)
					if i > 0 {
						event, ok := reader.DeletionEvent(states[i-1].Node, at)
						if state.Node != nil {
							event, ok = reader.UpdateEvent(states[i-1].Node, state.Node, at)
						}
						if ok {
							c.Events.Add(event)
						}
					}
					if !slices.Contains(looks, i) {
						continue
					}
					var infos []*nodeInfo
					if state.Node != nil {
						generation++
						info := nodeOf("n", "spot", "a", state.Pods...)
						info.node, info.generation = state.Node, generation
						infos = append(infos, info)
					}
					c.Update(snapshot(infos...), at)
				}
				want := 0
				if removal.WantLost || removal.Doubtful && how != "every state" {
					want = 1
				}
				if got := len(ages(c, at)[poolA]); got != want {
					t.Errorf("%d losses, want %d", got, want)
				}
			})
		}
	}
}

// A pool's risk decays with time. The Counter drops its record when the last loss is ten half-lives
// old. The prior risk remains.
func TestRisksAreForgotten(t *testing.T) {
	const halfLife, pools = time.Hour, 500
	prior := map[decision.Pool]float64{{InstanceType: "m", Zone: "0"}: 0.25}
	c := NewCounter(testReader())
	nodes := make([]*nodeInfo, pools)
	for i := range nodes {
		nodes[i] = nodeOf(fmt.Sprint("n", i), "spot", fmt.Sprint(i))
	}
	c.Update(snapshot(nodes...), now)
	for _, p := range c.pools {
		for range 32 {
			c.recordLoss(p, decision.Losses{Count: 1, Latest: now})
		}
	}
	first, last := decision.Pool{InstanceType: "m", Zone: "0"}, decision.Pool{InstanceType: "m", Zone: fmt.Sprint(pools - 1)}
	for _, step := range []struct {
		after       time.Duration
		losing      int
		prior, lost float64
	}{
		{0, pools, 1 - 0.75*math.Exp2(-32), 1 - math.Exp2(-32)},
		{5 * halfLife, pools, 1 - 0.75*math.Exp2(-1), 0.5},
		{10*halfLife - 1, pools, 1 - 0.75*math.Exp2(-1./32), 1 - math.Exp2(-1./32)},
		{10*halfLife + halfLife/256, 0, 0.25, 0},
	} {
		c.UpdateRisks(prior, halfLife, now.Add(step.after))
		if len(c.losses) != step.losing || len(c.newLosses) > 0 {
			t.Errorf("after %v: records of %d pools, and %d fresh ones; want %d and 0", step.after, len(c.losses), len(c.newLosses), step.losing)
		}
		close := func(got, want float64) bool { return math.Abs(got-want) < 1./1023 }
		if got := c.riskOf(first); !close(got, step.prior) {
			t.Errorf("after %v: risk of the pool with a prior risk %v, want %v", step.after, got, step.prior)
		}
		if got := c.riskOf(last); !close(got, step.lost) {
			t.Errorf("after %v: risk %v, want %v", step.after, got, step.lost)
		}
	}
}

// Between two recomputations of all risks, a loss changes only its own pool, and a new pool gets
// its prior risk.
func TestRisksInBetween(t *testing.T) {
	b := decision.Pool{InstanceType: "m", Zone: "b"}
	prior := map[decision.Pool]float64{b: 0.4}
	c := NewCounter(testReader())
	infoA, infoB := nodeOf("a", "spot", "a", podOf("a", "rs")), nodeOf("b", "spot", "b")
	want := func(when string, riskA, riskB float64) {
		t.Helper()
		if diff := cmp.Diff([]float64{riskA, riskB}, []float64{c.riskOf(poolA), c.riskOf(b)}); diff != "" {
			t.Errorf("%s: risks (-want +got):\n%s", when, diff)
		}
	}
	c.Update(snapshot(infoA), now)
	c.UpdateRisks(prior, time.Hour, now)
	want("at first", 0, 0)
	c.Update(snapshot(infoA, infoB), now.Add(time.Second))
	c.UpdateRisks(prior, time.Hour, now.Add(time.Second))
	want("a new pool", 0, 0.4)
	c.Update(snapshot(infoB), now.Add(2*time.Second))
	c.UpdateRisks(prior, time.Hour, now.Add(2*time.Second))
	want("a loss", 0.5, 0.4)
	c.UpdateRisks(prior, time.Hour, now.Add(3*time.Second))
	want("no change", 0.5, 0.4)
	if allocs := testing.AllocsPerRun(10, func() { c.UpdateRisks(prior, time.Hour, now.Add(3*time.Second)) }); allocs != 0 {
		t.Errorf("UpdateRisks without changes allocates %v times", allocs)
	}
}

// A new leader knows the losses of earlier ones, also of pools without nodes. A node that both have
// counted counts once.
func TestLossesOfEarlierLeaders(t *testing.T) {
	memory := &leader.Memory{}
	b := decision.Pool{InstanceType: "m", Zone: "b"}
	first := NewCounter(testReader())
	first.Memory = memory
	infoA, infoB := nodeOf("a", "spot", "a", podOf("a", "rs")), nodeOf("b", "spot", "b", podOf("b", "rs"))
	first.Update(snapshot(infoA, infoB), now)
	first.UpdateRisks(nil, time.Hour, now)
	infoB.node = infoB.node.DeepCopy()
	infoB.node.Spec.Taints = []v1.Taint{{Key: spot.InterruptionTaint, Effect: v1.TaintEffectNoSchedule}}
	infoB.generation++
	first.Update(snapshot(infoB), now)
	first.UpdateRisks(nil, time.Hour, now)
	if diff := cmp.Diff([]float64{0.5, 0.5}, []float64{first.riskOf(poolA), first.riskOf(b)}); diff != "" {
		t.Fatalf("risks of the first leader (-want +got):\n%s", diff)
	}

	next := NewCounter(testReader())
	next.Memory = memory
	next.Update(snapshot(infoB), now)
	for _, test := range []struct {
		after time.Duration
		want  float64 // of pool a, which no node shows any more
	}{{0, 0.5}, {time.Second, 0.5}, {time.Hour, 1 - math.Sqrt(0.5)}} {
		next.UpdateRisks(nil, time.Hour, now.Add(test.after))
		if risk := next.riskOf(poolA); math.Abs(risk-test.want) > 0.001 {
			t.Errorf("risk of the lost pool after %s is %f, want %f", test.after, risk, test.want)
		}
		if risk := next.riskOf(b); risk > 0.5 {
			t.Errorf("risk of a node that both leaders counted is %f", risk)
		}
	}
}

// After a reboot the pool has the risk that it would have without it, also for later leaders.
func TestNoRiskAfterReboot(t *testing.T) {
	c, at := NewCounter(testReader()), now
	rebooting, other := nodeOf("n", "spot", "a", podOf("a", "rs")), nodeOf("other", "spot", "a", podOf("b", "rs"))
	observe := func(kubelet v1.ConditionStatus, infos ...*nodeInfo) float64 {
		rebooting.node = rebooting.node.DeepCopy()
		rebooting.node.Spec.Unschedulable = true
		rebooting.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: kubelet, LastTransitionTime: metav1.NewTime(at)}}
		rebooting.generation++
		at = at.Add(time.Minute)
		c.Update(snapshot(infos...), at)
		c.UpdateRisks(nil, time.Hour, at)
		return c.riskOf(poolA)
	}
	got := []float64{observe(v1.ConditionTrue, rebooting, other), observe(v1.ConditionUnknown, rebooting, other),
		observe(v1.ConditionUnknown, rebooting), observe(v1.ConditionTrue, rebooting)}
	oneLoss := 1 - math.Exp2(-math.Exp2(-1./60)) // of the other node, a minute later
	twoLosses := 1 - math.Exp2(-1-math.Exp2(-1./60))
	for i, want := range []float64{0, 0.5, twoLosses, oneLoss} {
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("after %d minutes: risk %v, want %v", i+1, got[i], want)
		}
	}
	next := NewCounter(testReader())
	next.Memory = c.Memory
	next.Update(snapshot(rebooting), at)
	if next.UpdateRisks(nil, time.Hour, at); math.Abs(next.riskOf(poolA)-oneLoss) > 1e-9 {
		t.Errorf("risk of the next leader %v, want %v", next.riskOf(poolA), oneLoss)
	}
}

// A profile without SpotPreference never calls UpdateRisks. The number of pending losses is
// bounded, and the latest losses are preserved.
func TestFreshLossesAreBounded(t *testing.T) {
	c := NewCounter(testReader())
	c.Update(snapshot(nodeOf("n", "spot", "a")), now)
	for i := range 2 * decision.MaxLosses {
		c.recordLoss(c.pools[0], decision.Losses{Count: 1, Latest: now.Add(time.Duration(i) * time.Second)})
	}
	got := ages(c, now.Add((2*decision.MaxLosses-1)*time.Second))[poolA]
	if len(got) != decision.MaxLosses || got[len(got)-1] != 0 {
		t.Errorf("%d pending losses, the latest %v old; want %d and 0", len(got), got[len(got)-1], decision.MaxLosses)
	}
}
