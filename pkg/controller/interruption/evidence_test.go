package interruption_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// A handler announces the reclaim of one node after the other, slower than the bound of the breaker
// notices. No node ends. The breaker opens when the third node has outlived its notice.
func TestSlowFalseAlarm(t *testing.T) {
	f := newFleet(t, 60)
	for i := range 60 {
		after := time.Duration(i) * 7 * time.Second
		f.signal(i, i+1, after)
		third := after >= 2*7*time.Second+150*time.Second
		if got := f.plan(t, after); got.Open != third || third && len(got.Unconfirmed) != i+1 {
			t.Fatalf("after %s: open %t for %d nodes, want %t", after, got.Open, len(got.Unconfirmed), third)
		}
	}
}

// What counts as evidence against a signal. In each case three of 20 spot nodes get a signal, and
// the last round is long after their notice.
func TestEvidence(t *testing.T) {
	const key = awsReclaim
	for name, test := range map[string]struct {
		signal func(*fleet, *snapshot.Node)
		change func(*fleet) // after two minutes
		want   int          // unconfirmed nodes
	}{
		"three outlive it":   {want: 4},
		"two outlive it":     {change: func(f *fleet) { f.untaint(f.Nodes[0], key) }},
		"the breaker is off": {change: func(f *fleet) { f.settings.Interruption.Breaker.MaxPercent = 100 }},
		"three of six outlive it": {change: func(f *fleet) {
			f.signal(4, 7, time.Minute)
			f.plan(nil, 2*time.Minute+time.Second)
			f.Nodes = append(f.Nodes[:4:4], f.Nodes[7:]...)
		}},
		"three of five outlive it": {change: func(f *fleet) {
			f.signal(4, 6, time.Minute)
			f.plan(nil, 2*time.Minute+time.Second)
			f.Nodes = append(f.Nodes[:4:4], f.Nodes[6:]...)
		}, want: 4},
		"an autoscaler removes the others": {change: func(f *fleet) {
			f.signal(4, 7, time.Minute)
			for _, n := range f.Nodes[4:7] {
				f.taint(n, "ToBeDeletedByClusterAutoscaler", 2*time.Minute)
			}
			f.plan(nil, 2*time.Minute+time.Second)
			f.Nodes = append(f.Nodes[:4:4], f.Nodes[7:]...)
		}, want: 4},
		"one is silent": {change: func(f *fleet) { f.Overdue = map[string]time.Time{"n-000": start.Add(2 * time.Minute)} }},
		"one is not ready": {change: func(f *fleet) {
			f.Nodes[0].Status.Conditions[0] = v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, LastTransitionTime: *at(2 * time.Minute)}
		}},
		"no renewal of the Leases was seen": {change: func(f *fleet) { f.Renewed = func(string, time.Time) bool { return false } }},
		"a new leader":                      {change: (*fleet).newLeader, want: 4},
		"the default notice":                {signal: func(f *fleet, n *snapshot.Node) { f.taint(n, maintenance, 0) }},
		"our own taint":                     {signal: func(f *fleet, n *snapshot.Node) { f.taint(n, own, 0) }},
		"our own taint with a deadline": {signal: func(f *fleet, n *snapshot.Node) {
			f.taint(n, own, 0)
			n.Annotations[spot.InterruptionDeadlineAnnotation] = deadline(time.Minute)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 20)
			for _, n := range f.Nodes[:3] {
				if test.signal == nil {
					f.taint(n, key, 0)
				} else {
					test.signal(f, n)
				}
			}
			f.plan(t, 0)
			f.plan(t, 2*time.Minute)
			if test.change != nil {
				test.change(f)
			}
			f.plan(t, 2*time.Minute+29*time.Second)
			if got := f.plan(t, 2*time.Minute+30*time.Second); got.Open != (test.want > 0) {
				t.Errorf("open: %t", got.Open)
			}
			f.signal(3, 4, 3*time.Minute)
			if got := f.plan(t, 3*time.Minute); len(got.Unconfirmed) != test.want {
				t.Errorf("unconfirmed: %s, want %d nodes", names(got), test.want)
			}
		})
	}
}

// The evidence counts for an hour, also after the signals are gone, and for a new leader.
func TestEvidenceLasts(t *testing.T) {
	f := newFleet(t, 20)
	f.signal(0, 3, 0)
	f.plan(t, 0)
	f.plan(t, 151*time.Second)
	for _, n := range f.Nodes[:3] {
		f.untaint(n, awsReclaim)
	}
	f.plan(t, 152*time.Second)
	for _, minutes := range []time.Duration{50, 63} {
		after, want := minutes*time.Minute, minutes == 50
		f.newLeader()
		f.signal(3, 4, after)
		if got := f.plan(t, after); got.Open != want {
			t.Errorf("after %s: open %t, want %t", after, got.Open, want)
		}
		f.untaint(f.Nodes[3], awsReclaim)
		f.plan(t, after+time.Second)
	}
}

// memoryWorld is a world whose rounds have a Memory. It has seen the node without a signal.
func memoryWorld(t *testing.T) *world {
	w := newWorld(t)
	w.settings.Memory = interruption.NewMemory(nil)
	w.round(0)
	return w
}

// The clock of another machine does not shorten a notice: it begins when the process has seen the
// node without the signal, or later.
func TestClocks(t *testing.T) {
	for name, test := range map[string]struct {
		signal func(*world)
		want   string
	}{
		"a taint, 100 s behind":       {func(w *world) { w.taint(awsReclaim, "x", at(-90*time.Second)) }, "+115"},
		"a taint, 60 s ahead":         {func(w *world) { w.taint(awsReclaim, "x", at(70*time.Second)) }, "+120"},
		"a taint, without a time":     {func(w *world) { w.taint(awsReclaim, "x", nil) }, "+120"},
		"a correct clock":             {func(w *world) { w.taint(awsReclaim, "x", at(7*time.Second)) }, "+117"},
		"a condition, 25 s behind":    {func(w *world) { w.event("Preempt Scheduled", -20*time.Second) }, "+25"},
		"a condition, an hour behind": {func(w *world) { w.event("Preempt Scheduled", -time.Hour) }, "+25"},
	} {
		t.Run(name, func(t *testing.T) {
			w := memoryWorld(t)
			w.round(5 * time.Second)
			test.signal(w)
			clustertest.Equal(t, "moves", "web-0 interruption "+test.want+", web-1 interruption "+test.want, w.round(5*time.Second))
			w.settings.Memory = interruption.NewMemory(nil) // a new leader keeps the recorded start
			w.round(0)
		})
	}
}

// A condition that first announces a freeze, and later a preemption, keeps its time.
func TestFreezeBecomesPreemption(t *testing.T) {
	w := memoryWorld(t)
	w.event("Freeze Scheduled", 0)
	w.round(0)
	w.round(22 * time.Second)
	w.node.Status.Conditions = w.node.Status.Conditions[:1]
	w.event("Preempt Scheduled", 0)
	clustertest.Equal(t, "moves", "web-0 interruption +29, web-1 interruption +29", w.round(time.Second))
}

// A deadline in the past of a Ready node means nothing after a pause, and for a new leader. The
// rest of a notice begins at the end of the pause.
func TestDeadlineAfterPause(t *testing.T) {
	for name, test := range map[string]struct {
		from, to time.Duration // the pause
		leader   bool          // a new leader instead
		silent   bool
		want     string // the moves at the end
		free     time.Duration
	}{
		"across the deadline":             {5 * time.Second, 125 * time.Second, false, false, "", 125 * time.Second},
		"within the notice":               {5 * time.Second, 100 * time.Second, false, false, " +20", 100 * time.Second},
		"a new leader after the deadline": {5 * time.Second, 125 * time.Second, true, false, "", 125 * time.Second},
		"a new leader within the notice":  {5 * time.Second, 100 * time.Second, true, false, " +20", 0},
		"none":                            {125 * time.Second, 125 * time.Second, false, false, " -5", 0},
		"none, and long after":            {150 * time.Second, 150 * time.Second, false, false, "", 0},
		"the kubelet is silent":           {5 * time.Second, 125 * time.Second, false, true, " -5", 125 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := memoryWorld(t)
			w.taint(awsReclaim, "x", at(0))
			w.round(0)
			paused := false
			w.settings.Paused = clustertest.Paused(func(safety.Cause) bool { return paused })
			w.round(test.from)
			if paused = test.from < test.to && !test.leader; paused {
				w.round(0)
			}
			if test.leader {
				w.settings.Memory = interruption.NewMemory(nil)
			}
			w.round(test.to - test.from - time.Nanosecond)
			if test.leader {
				w.settings.Memory = interruption.NewMemory(nil)
			}
			paused = false
			if test.silent {
				w.overdue = 25 * time.Second
			}
			clustertest.Equal(t, "moves", "web-0 interruption"+test.want+", web-1 interruption"+test.want, w.round(time.Nanosecond))
			_, moves, _ := interruption.Plan(w.snapshot(), w.settings)
			if got := moves[0].Free.Sub(start); got != test.free || !moves[0].Noticed.Equal(start) {
				t.Errorf("free after %s, noticed %s; want %s after the start", got, moves[0].Noticed, test.free)
			}
		})
	}
}

// While the breaker is open for silent nodes, pods whose controller accepts a second pod are moved
// from them after the deadline, without the bound for unreachable nodes.
func TestSilentAfterDeadline(t *testing.T) {
	f := newFleet(t, 20)
	f.signal(0, 20, 0)
	f.plan(t, 0)
	f.Overdue = map[string]time.Time{}
	for i, n := range f.Nodes[:15] {
		f.Overdue[n.Name] = start.Add(100 * time.Second)
		switch i % 3 {
		case 0:
			n.Pods[0].Revision.ReplicaSet = &appsv1.ReplicaSet{}
		case 1:
			n.Pods[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Controller: ptr.To(true)}}
		}
	}
	f.Nodes[0].Pods[0].Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	for after, want := range map[time.Duration]int{119 * time.Second: 0, 120 * time.Second: 9} {
		f.Now = start.Add(after)
		_, moves, _ := interruption.Plan(f.Snapshot, f.settings)
		got := 0
		for _, m := range moves {
			if m.Unconfirmed == m.Unreachable {
				t.Errorf("%s: unconfirmed and unreachable: %t", m.Pod.Name, m.Unconfirmed)
			}
			if m.Unreachable {
				got++
			}
		}
		if got != want {
			t.Errorf("after %s: %d pods are moved off silent nodes, want %d", after, got, want)
		}
	}
}

// Pods get a fair end only while the breaker has opened by itself.
func TestFairEnd(t *testing.T) {
	for name, test := range map[string]struct {
		key    string
		forced *bool
		after  time.Duration
		want   string // the fair end after the start; empty if there is none
	}{
		"two minutes":         {key: awsReclaim, want: "0s"},
		"half a minute":       {key: googleReclaim, want: "0s"},
		"five minutes":        {key: "InstanceExpired", want: "2m30s"},
		"a user opens it":     {key: awsReclaim, forced: ptr.To(true)},
		"a user closes it":    {key: awsReclaim, forced: ptr.To(false)},
		"after the deadline":  {key: awsReclaim, after: 120 * time.Second},
		"before the deadline": {key: awsReclaim, after: 119 * time.Second, want: "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 20)
			for _, n := range f.Nodes {
				if f.taint(n, test.key, 0); test.key == "InstanceExpired" {
					n.Spec.Taints = nil
					n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{
						Type: "InstanceExpired", Status: v1.ConditionTrue, LastTransitionTime: *at(0)})
				}
			}
			f.settings.ForcedBreaker = test.forced
			f.plan(t, 0)
			f.Now = start.Add(test.after)
			_, moves, _ := interruption.Plan(f.Snapshot, f.settings)
			got := ""
			if end := moves[0].FairEnd; !end.IsZero() {
				got = end.Sub(start).String()
			}
			clustertest.Equal(t, "fair end", test.want, got)
		})
	}
}

// The kubelet announces that it ends the pods of its node.
func TestKubeletShutdown(t *testing.T) {
	both := "web-0 interruption +30, web-1 interruption +30"
	for name, test := range map[string]struct {
		change func(*world)
		want   string
		marks  string
	}{
		"spot":      {func(*world) {}, both, "node-shutdown:NoSchedule +30 state"},
		"on-demand": {func(w *world) { w.onDemand = true }, "", ""},
		"cordoned before": {func(w *world) {
			w.node.Spec.Unschedulable = true
			w.taint(v1.TaintNodeUnschedulable, "", at(-time.Second))
		}, "", ""},
		"cordoned later": {func(w *world) {
			w.node.Spec.Unschedulable = true
			w.taint(v1.TaintNodeUnschedulable, "", at(time.Second))
		}, both, "node-shutdown:NoSchedule +30 state"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ready(v1.ConditionFalse)
			w.node.Status.Conditions[0].Message = "node is shutting down"
			test.change(w)
			clustertest.Equal(t, "moves", test.want, w.round(0))
			clustertest.Equal(t, "marks", test.marks, w.marks())
		})
	}
}

// A node that outlived its deadline gets the whole notice of its kubelet's shutdown.
func TestKubeletShutdownAfterTheDeadline(t *testing.T) {
	w := memoryWorld(t)
	w.round(0)
	w.taint(awsReclaim, "x", at(time.Second))
	w.round(time.Second)
	w.round(200 * time.Second)
	w.ready(v1.ConditionFalse)
	w.node.Status.Conditions[0].Message, w.node.Status.Conditions[0].LastTransitionTime = "node is shutting down", *at(210 * time.Second)
	clustertest.Equal(t, "moves", "web-0 interruption +30, web-1 interruption +30", w.round(9*time.Second))
	clustertest.Equal(t, "marks", "spot-itn:NoSchedule +240 state", w.marks())
}

// The time of a notice counts from its start also if the round is later.
func TestFreeSinceTheStart(t *testing.T) {
	w := memoryWorld(t)
	w.round(0)
	w.taint(awsReclaim, "x", at(time.Second))
	w.round(4 * time.Second)
	if _, moves, _ := interruption.Plan(w.snapshot(), w.settings); !moves[0].Free.Equal(start.Add(time.Second)) {
		t.Errorf("free after %s, want 1s", moves[0].Free.Sub(start))
	}
}

// A pause of the deletions alone is a pause, too. A deadline that means nothing does not return
// when the kubelet is not ready for a moment.
func TestDeadlineStaysInThePast(t *testing.T) {
	for name, paused := range map[string]func(safety.Cause) bool{
		"everything": func(safety.Cause) bool { return true },
		"deadline":   func(c safety.Cause) bool { return c == safety.Deadline },
	} {
		t.Run(name, func(t *testing.T) {
			w := memoryWorld(t)
			w.taint(awsReclaim, "x", at(0))
			w.settings.Paused = clustertest.Paused(paused)
			w.round(0)
			w.round(125 * time.Second)
			w.settings.Paused = nil
			for _, ready := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse} {
				w.ready(ready)
				clustertest.Equal(t, "moves, ready: "+string(ready), "web-0 interruption, web-1 interruption", w.round(time.Second))
			}
		})
	}
}

// A node that outlived its deadline, and is silent an hour later, has the bound for unreachable
// nodes, as other nodes have.
func TestSilentLongAfterDeadline(t *testing.T) {
	f := newFleet(t, 20)
	f.signal(0, 20, 0)
	f.plan(t, 0)
	f.plan(t, 200*time.Second)
	f.Now = start.Add(time.Hour)
	f.Overdue, f.Unconfirmed = map[string]time.Time{}, map[string]bool{}
	for _, n := range f.Nodes {
		n.Pods[0].Revision.ReplicaSet = &appsv1.ReplicaSet{}
		f.Overdue[n.Name], f.Unconfirmed[n.Name] = f.Now.Add(-20*time.Second), true
	}
	_, moves, _ := interruption.Plan(f.Snapshot, f.settings)
	for _, m := range moves {
		if m.Unreachable || !m.Unconfirmed {
			t.Errorf("%s is moved as if its node was lost", m.Pod.Name)
		}
	}
}

// Two tools announce the reclaim of all nodes, and one sets its signals again node by node.
func TestToolRestarts(t *testing.T) {
	f := newFleet(t, 20)
	f.signal(0, 20, 0)
	tool := func(first, last int, after time.Duration) {
		for _, n := range f.Nodes[first:last] {
			f.taint(n, googleReclaim, after)
		}
	}
	tool(0, 20, 0)
	f.plan(t, 0)
	for _, n := range f.Nodes {
		f.untaint(n, googleReclaim)
	}
	f.plan(t, 5*time.Second)
	for i := range 12 {
		tool(i, i+1, 10*time.Second)
		if got := f.plan(t, 10*time.Second); len(got.Unconfirmed) != 20 {
			t.Fatalf("after %d signals: %d nodes are unconfirmed", i+1, len(got.Unconfirmed))
		}
	}
}
