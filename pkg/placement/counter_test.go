package placement

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node/nodetest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The Counter counts these pods.
func TestCounterCounts(t *testing.T) {
	done, failed := podOf("done", "rs"), podOf("failed", "rs")
	done.Status.Phase, failed.Status.Phase = v1.PodSucceeded, v1.PodFailed
	daemon := podOf("daemon", "")
	daemon.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("DaemonSet", "rs")}
	driver, executor := podOf("rs", ""), podOf("exec", "")
	executor.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("v1/Pod", "rs")}
	if c := NewCounter(testReader()); true {
		c.Update(snapshot(nodeOf("s", "spot", "a", driver, executor)), now)
		if own, others := c.Placed(workload.RevisionOf(driver)), c.Placed(workload.RevisionOf(executor)); own.Spot != 0 || others.Spot != 1 {
			t.Errorf("%d pods of the key of a pod without a controller, %d of the pods that it controls; want 0, 1", own.Spot, others.Spot)
		}
	}
	head, worker := podOf("head", ""), podOf("worker", "")
	head.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("ray.io/v1/RayCluster", "train")}
	worker.OwnerReferences, worker.Labels = head.OwnerReferences, map[string]string{"ray.io/node-type": "worker"}
	if c := NewCounter(testReader()); true {
		c.Update(snapshot(nodeOf("s", "spot", "a", head, worker)), now)
		if heads, workers := c.Placed(workload.RevisionOf(head)), c.Placed(workload.RevisionOf(worker)); heads.Spot != 1 || workers.Spot != 1 {
			t.Errorf("%d heads, %d workers; want 1 of each role", heads.Spot, workers.Spot)
		}
	}
	cases := map[string]struct {
		pods []*v1.Pod
		want int
	}{
		"forged owners":      {append(nodetest.Forged(podOf("a", "rs")), podOf("a", "rs")), 1},
		"live pods":          {[]*v1.Pod{podOf("a", "rs"), podOf("b", "rs")}, 2},
		"other revisions":    {[]*v1.Pod{podOf("a", "rs"), podOf("b", "other")}, 1},
		"terminating":        {[]*v1.Pod{podOf("a", "rs"), terminating(podOf("b", "rs"))}, 1},
		"succeeded, failed":  {[]*v1.Pod{podOf("a", "rs"), done, failed}, 1},
		"without controller": {[]*v1.Pod{podOf("rs", "")}, 0},
		"DaemonSet pod":      {[]*v1.Pod{daemon}, 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := NewCounter(testReader())
			c.Update(snapshot(nodeOf("s", "spot", "a", test.pods...), nodeOf("o", "on-demand", "a", test.pods...)), now)
			if diff := cmp.Diff(decision.PlacedPods{Spot: test.want, OnDemand: test.want}, c.Placed(replicaSetKey("rs"))); diff != "" {
				t.Errorf("Placed (-want +got):\n%s", diff)
			}
		})
	}
}

// Unchanged nodes are not read again, which makes a cycle cheap.
func TestCounterTrustsGenerations(t *testing.T) {
	info := nodeOf("n", "spot", "a", podOf("a", "rs"))
	nodes := snapshot(info, nodeOf("m", "spot", "a"))
	c := NewCounter(testReader())
	c.Update(nodes, now)

	info.pods = nil
	c.Update(nodes, now)
	if got := c.Placed(replicaSetKey("rs")).Spot; got != 1 {
		t.Errorf("same generation: %d pods, want the 1 of the earlier count", got)
	}
	info.generation = 0 // a restored snapshot has an older generation
	c.Update(nodes, now)
	if got := c.Placed(replicaSetKey("rs")).Spot; got != 0 {
		t.Errorf("an older generation: %d pods, want 0", got)
	}
	if allocs := testing.AllocsPerRun(10, func() { c.Update(nodes, now) }); allocs != 0 {
		t.Errorf("an Update without changes allocates %v times", allocs)
	}
}

// ages returns the ages of the losses that UpdateRisks has not processed, by pool; nil if there are
// none.
func ages(c *Counter, now time.Time) map[decision.Pool][]time.Duration {
	var ages map[decision.Pool][]time.Duration
	for p, losses := range c.newLosses {
		for _, of := range losses {
			if ages == nil {
				ages = map[decision.Pool][]time.Duration{}
			}
			if all, age := ages[p.key.Pool], now.Sub(of.Latest); of.Count < 0 {
				ages[p.key.Pool] = slices.DeleteFunc(all, func(other time.Duration) bool { return other == age })
			} else {
				ages[p.key.Pool] = append(all, age)
			}
		}
	}
	return ages
}

// The Counter detects these losses of spot nodes. TestRemovals has more.
func TestLosses(t *testing.T) {
	pool := decision.Pool{InstanceType: "m", Zone: "a"}
	taint := func(key string) func(*nodeInfo) {
		return func(n *nodeInfo) { n.node.Spec.Taints = []v1.Taint{{Key: key}} }
	}
	reclaimed, drained := taint("spot-aware-scheduler.io/interruption"), taint("karpenter.sh/disrupted")
	gone := func(*nodeInfo) {}
	silent := func(n *nodeInfo) {
		n.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	}
	emptied := func(n *nodeInfo) { n.pods = nil }
	both := func(all ...func(*nodeInfo)) func(*nodeInfo) {
		return func(n *nodeInfo) {
			for _, change := range all {
				change(n)
			}
		}
	}
	replaced := func(n *nodeInfo) {
		n.node = n.node.DeepCopy()
		n.node.UID = "another"
	}
	cases := map[string]struct {
		node  *nodeInfo
		steps []func(*nodeInfo) // one second apart; nil: the node is not in the snapshot
		want  map[decision.Pool][]time.Duration
	}{
		"a signal counts once":             {nodeOf("n", "spot", "a", podOf("a", "rs")), []func(*nodeInfo){reclaimed, gone, gone}, map[decision.Pool][]time.Duration{pool: {2 * time.Second}}},
		"reclaimed on-demand node":         {nodeOf("n", "on-demand", "a", podOf("a", "rs")), []func(*nodeInfo){reclaimed}, nil},
		"on-demand node deleted with pods": {nodeOf("n", "on-demand", "a", podOf("a", "rs")), []func(*nodeInfo){nil}, nil},
		"no pool":                          {nodeOf("n", "spot", "", podOf("a", "rs")), []func(*nodeInfo){reclaimed, nil}, nil},
		"signal cleared and set again": {nodeOf("n", "spot", "a", podOf("a", "rs")), []func(*nodeInfo){reclaimed, taint("other"), reclaimed},
			map[decision.Pool][]time.Duration{pool: {2 * time.Second}}},
		"emptied, then not reporting": {nodeOf("n", "spot", "a", podOf("a", "rs")), []func(*nodeInfo){emptied, silent}, map[decision.Pool][]time.Duration{pool: {0}}},
		"drained, then not reporting": {nodeOf("n", "spot", "a", podOf("a", "rs")), []func(*nodeInfo){drained, both(emptied, silent), nil}, nil},
		"deleted, name reused":        {nodeOf("n", "spot", "a", podOf("a", "rs")), []func(*nodeInfo){replaced}, map[decision.Pool][]time.Duration{pool: {0}}},
		"drained, name reused":        {nodeOf("n", "spot", "a", podOf("a", "rs")), []func(*nodeInfo){drained, both(replaced, gone)}, nil},
		"interrupted, name reused by another interrupted node": {nodeOf("n", "spot", "a", podOf("a", "rs")), []func(*nodeInfo){reclaimed, replaced},
			map[decision.Pool][]time.Duration{pool: {time.Second, 0}}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := NewCounter(testReader())
			at := now
			c.Update(snapshot(test.node), at)
			for _, step := range test.steps {
				at = at.Add(time.Second)
				if step == nil {
					c.Update(nil, at)
					continue
				}
				step(test.node)
				test.node.generation++
				c.Update(snapshot(test.node), at)
			}
			if diff := cmp.Diff(test.want, ages(c, at)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
		})
	}
}

// The Counter detects that a spot node stopped reporting, although its NodeInfo does not change.
func TestSilentNodeIsNoticedInTime(t *testing.T) {
	info := nodeOf("n", "spot", "a")
	info.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now)}}
	c := NewCounter(testReader())
	for _, step := range []struct {
		after time.Duration
		want  decision.SignalClass
	}{{0, decision.NoSignal}, {40*time.Second - 1, decision.NoSignal}, {40 * time.Second, decision.Reclaim}} {
		c.Update(snapshot(info), now.Add(step.after))
		if got := c.nodes["n"].facts; got.Signal != step.want {
			t.Errorf("after %v: signal %s, want %s", step.after, got.Signal, step.want)
		}
	}
}

// NextSettled returns the earliest end of a label grace.
func TestNextSettled(t *testing.T) {
	young := func(name string, age time.Duration) *nodeInfo {
		info := nodeOf(name, "", "a")
		info.node.CreationTimestamp = metav1.NewTime(now.Add(-age))
		return info
	}
	labelled := nodeOf("l", "on-demand", "a")
	cases := map[string]struct {
		nodes []*nodeInfo
		want  time.Time
	}{
		"no new node":         {[]*nodeInfo{labelled, nodeOf("n", "", "a")}, time.Time{}},
		"two new nodes":       {[]*nodeInfo{labelled, young("n", 5*time.Second), young("m", 10*time.Second)}, now.Add(20 * time.Second)},
		"no node is labelled": {[]*nodeInfo{young("n", 5*time.Second)}, now.Add(25 * time.Second)},
		"grace ends now":      {[]*nodeInfo{labelled, young("n", 30*time.Second)}, time.Time{}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := NewCounter(testReader())
			c.Update(snapshot(test.nodes...), now)
			if got := c.NextSettled(); !got.Equal(test.want) {
				t.Errorf("NextSettled = %v, want %v", got, test.want)
			}
		})
	}
}
