package interruption_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// fleet is a snapshot of spot nodes with a pod each, under a breaker of 50 % and 10 nodes. Its
// methods act as an API server.
type fleet struct {
	w *world
	*snapshot.Snapshot
	settings interruption.Settings
	lease    leader.Memory // of the controller
}

func newFleet(t *testing.T, nodes int) *fleet {
	f := &fleet{w: newWorld(t), Snapshot: &snapshot.Snapshot{Now: start}, settings: settings}
	f.newLeader()
	f.settings.Interruption.Breaker = controller.Breaker{MaxPercent: 50, MinNodes: 10}
	for range nodes {
		f.add()
	}
	return f
}

func (f *fleet) newLeader() { f.settings.Memory = interruption.NewMemory(&f.lease) }

func (f *fleet) add() *snapshot.Node {
	return f.w.addNode(f.Snapshot, fmt.Sprintf("n-%03d", len(f.Nodes)), v1.ConditionTrue)
}

// signal sets a reclaim signal of AWS on the nodes from first to last, excluding last.
func (f *fleet) signal(first, last int, after time.Duration) {
	for _, n := range f.Nodes[first:last] {
		f.taint(n, awsReclaim, after)
	}
}

func (f *fleet) taint(n *snapshot.Node, key string, after time.Duration) {
	n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule, TimeAdded: at(after)})
}

func (f *fleet) untaint(n *snapshot.Node, key string) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == key })
}

// plan plans at a time after start, checks that the results agree, and applies the marks.
func (f *fleet) plan(t interface{ Errorf(string, ...any) }, after time.Duration) interruption.Breaker {
	f.Now = start.Add(after)
	marks, moves, breaker := interruption.Plan(f.Snapshot, f.settings)
	for _, m := range moves {
		if want := slices.Contains(breaker.Unconfirmed, m.Pod.Node); m.Unconfirmed != want {
			t.Errorf("the move off %s is unconfirmed: %t, want %t", m.Pod.Node.Name, m.Unconfirmed, want)
		}
	}
	if breaker.Open != (len(breaker.Unconfirmed) > 0) && f.settings.ForcedBreaker == nil {
		t.Errorf("open: %t, although %d nodes are unconfirmed", breaker.Open, len(breaker.Unconfirmed))
	}
	for _, m := range marks {
		m.Node.Node = write(m.Node.Node, m)
	}
	// A new leader reads the same from the Nodes and the Lease.
	next := f.settings
	next.Memory = interruption.NewMemory(&f.lease)
	if _, _, again := interruption.Plan(f.Snapshot, next); names(again) != names(breaker) {
		t.Errorf("after the marks: %q, before: %q", names(again), names(breaker))
	}
	return breaker
}

func names(b interruption.Breaker) string {
	var all []string
	for _, n := range b.Unconfirmed {
		all = append(all, n.Name)
	}
	return strings.Join(all, " ")
}

func TestBreakerOpens(t *testing.T) {
	for name, test := range map[string]struct {
		nodes  int
		change func(*fleet)
		want   int // unconfirmed nodes
	}{
		"no signal":                    {60, func(*fleet) {}, 0},
		"all at once":                  {60, func(f *fleet) { f.signal(0, 60, 0) }, 60},
		"half of the nodes":            {60, func(f *fleet) { f.signal(0, 30, 0) }, 0},
		"more than half of the nodes":  {60, func(f *fleet) { f.signal(0, 31, 0) }, 31},
		"one pool of three":            {60, func(f *fleet) { f.signal(0, 20, 0) }, 0},
		"a small cluster":              {10, func(f *fleet) { f.signal(0, 10, 0) }, 0},
		"a cluster of eleven":          {11, func(f *fleet) { f.signal(0, 11, 0) }, 11},
		"within a minute":              {12, func(f *fleet) { f.signal(0, 6, -time.Minute); f.signal(6, 12, 0) }, 12},
		"one after the other":          {40, func(f *fleet) { f.signal(0, 10, -time.Minute); f.signal(10, 20, -30*time.Second); f.signal(20, 21, 0) }, 21},
		"it never opens with 100 %":    {60, func(f *fleet) { f.settings.Interruption.Breaker.MaxPercent = 100; f.signal(0, 60, 0) }, 0},
		"the zero Breaker never opens": {60, func(f *fleet) { f.settings.Interruption.Breaker = controller.Breaker{}; f.signal(0, 60, 0) }, 0},
		"interruption is disabled": {60, func(f *fleet) {
			f.settings.Interruption.Enabled, f.settings.Interruption.Advisory.Enabled = false, false
			f.signal(0, 60, 0)
		}, 0},
		"advisory signals and drains do not count": {60, func(f *fleet) {
			for i, n := range f.Nodes {
				f.taint(n, []string{awsAdvisory, "karpenter.sh/disrupted"}[i%2], 0)
			}
		}, 0},
		"on-demand nodes do not count": {60, func(f *fleet) {
			for _, n := range f.Nodes[20:] {
				n.Facts.Capacity.Type = decision.OnDemand
			}
			for _, n := range f.Nodes[15:] {
				f.taint(n, maintenance, 0)
			}
		}, 0},
		"unreachable kubelets alone do not count": {60, func(f *fleet) {
			for _, n := range f.Nodes[:40] {
				n.Status.Conditions[0].Status = v1.ConditionUnknown
			}
		}, 0},
		"confirmed nodes do not count": {60, func(f *fleet) {
			f.signal(0, 40, 0)
			for _, n := range f.Nodes[:10] {
				n.DeletionTimestamp = &metav1.Time{Time: start}
			}
		}, 0},
		"a user closes it": {60, func(f *fleet) { f.settings.ForcedBreaker = ptr.To(false); f.signal(0, 60, 0) }, 0},
		"a user opens it":  {60, func(f *fleet) { f.settings.ForcedBreaker = ptr.To(true); f.signal(0, 2, 0) }, 2},
		"a user opens it, confirmed nodes": {60, func(f *fleet) {
			f.settings.ForcedBreaker = ptr.To(true)
			f.signal(0, 2, 0)
			f.taint(f.Nodes[0], own, 0)
			f.Nodes[1].DeletionTimestamp = at(0)
		}, 2},
		"two tools on all nodes": {20, func(f *fleet) {
			f.signal(0, 20, 0)
			for _, n := range f.Nodes {
				f.taint(n, googleReclaim, 0)
			}
		}, 20},
		"the second tool on a few": {20, func(f *fleet) {
			f.signal(0, 20, 0)
			for _, n := range f.Nodes[:10] {
				f.taint(n, googleReclaim, 0)
			}
		}, 10},
		"a condition and a cordon on all nodes": {20, func(f *fleet) {
			for _, n := range f.Nodes {
				n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{
					Type: "VMEventScheduled", Status: v1.ConditionTrue, Message: "Preempt Scheduled", LastTransitionTime: *at(0)})
				f.taint(n, v1.TaintNodeUnschedulable, 0)
			}
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, test.nodes)
			test.change(f)
			if got := f.plan(t, 0); len(got.Unconfirmed) != test.want {
				t.Errorf("%d nodes are unconfirmed, want %d", len(got.Unconfirmed), test.want)
			}
		})
	}
}

// A second fact confirms the end of a node.
func TestConfirmed(t *testing.T) {
	ready := func(status v1.ConditionStatus, message string, since time.Duration) func(*snapshot.Node) {
		return func(n *snapshot.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, Message: message, LastTransitionTime: *at(since)}}
		}
	}
	taint := func(key string, since time.Duration) func(*snapshot.Node) {
		return func(n *snapshot.Node) { (*fleet)(nil).taint(n, key, since) }
	}
	condition := func(kind v1.NodeConditionType, message string) func(*snapshot.Node) {
		return func(n *snapshot.Node) {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: kind, Status: v1.ConditionTrue, Message: message, LastTransitionTime: *at(0)})
		}
	}
	preempt, cordon := condition("VMEventScheduled", "Preempt Scheduled"), func(since time.Duration) func(*snapshot.Node) {
		return taint(v1.TaintNodeUnschedulable, since)
	}
	aws := taint(awsReclaim, 0)
	for name, test := range map[string]struct {
		facts []func(*snapshot.Node)
		want  bool
	}{
		"no signal but a silent kubelet": {[]func(*snapshot.Node){ready(v1.ConditionUnknown, "", -time.Minute)}, true},
		"only a signal":                  {[]func(*snapshot.Node){aws}, false},
		"two signals of one source":      {[]func(*snapshot.Node){aws, taint(maintenance, 0)}, false},
		"two signals of Azure":           {[]func(*snapshot.Node){preempt, condition("PreemptionScheduled", "")}, false},
		"an advisory signal":             {[]func(*snapshot.Node){aws, taint("DeletionCandidateOfClusterAutoscaler", 0)}, false},
		"a signal of another source":     {[]func(*snapshot.Node){aws, taint("cloud.google.com/impending-node-termination", 0)}, true},
		"a drain by another actor":       {[]func(*snapshot.Node){aws, taint("karpenter.sh/disrupted", time.Minute)}, true},
		"a drain later, by a reaction":   {[]func(*snapshot.Node){aws, taint("karpenter.sh/disrupted", 61*time.Second)}, false},
		"a drain at an unknown time": {[]func(*snapshot.Node){aws, func(n *snapshot.Node) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "ToBeDeletedByClusterAutoscaler"})
		}}, false},
		"the Node is deleted later": {[]func(*snapshot.Node){aws, func(n *snapshot.Node) {
			n.DeletionTimestamp = at(2 * time.Minute)
		}}, true},
		"the NodeClaim is being deleted": {[]func(*snapshot.Node){aws, func(n *snapshot.Node) {
			n.OwnerReferences = []metav1.OwnerReference{{Kind: "NodeClaim"}}
		}}, true},
		"the project's own taint and a tool": {[]func(*snapshot.Node){aws, taint(own, 0)}, true},
		"the Node is being deleted": {[]func(*snapshot.Node){aws, func(n *snapshot.Node) {
			n.DeletionTimestamp = &metav1.Time{Time: start}
		}}, true},
		"an unreachable kubelet":                   {[]func(*snapshot.Node){aws, ready(v1.ConditionUnknown, "", -time.Minute)}, true},
		"a kubelet that has been silent for 30 s":  {[]func(*snapshot.Node){aws, ready(v1.ConditionUnknown, "", -30*time.Second)}, false},
		"a kubelet that has not been ready long":   {[]func(*snapshot.Node){aws, ready(v1.ConditionFalse, "runtime is down", -39*time.Second)}, false},
		"a kubelet that is not ready":              {[]func(*snapshot.Node){aws, ready(v1.ConditionFalse, "runtime is down", -40*time.Second)}, true},
		"a kubelet that shuts down":                {[]func(*snapshot.Node){aws, ready(v1.ConditionFalse, "node is shutting down", 0)}, true},
		"a cordon, by the tool that taints too":    {[]func(*snapshot.Node){aws, cordon(0)}, false},
		"a cordon by another actor":                {[]func(*snapshot.Node){preempt, cordon(30 * time.Second)}, true},
		"a cordon shortly before the signal":       {[]func(*snapshot.Node){preempt, cordon(-30 * time.Second)}, true},
		"a cordon long before the signal":          {[]func(*snapshot.Node){preempt, cordon(-2 * time.Minute)}, false},
		"a cordon after the signal, by a reaction": {[]func(*snapshot.Node){preempt, cordon(2 * time.Minute)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 20)
			f.settings.Owner = func(n *v1.Node) metav1.Object {
				if len(n.OwnerReferences) == 0 {
					return nil
				}
				return &metav1.ObjectMeta{DeletionTimestamp: at(0)}
			}
			for _, fact := range test.facts {
				fact(f.Nodes[0])
			}
			f.signal(1, 20, 0)
			breaker := f.plan(t, 0)
			if got := !slices.Contains(breaker.Unconfirmed, f.Nodes[0]); got != test.want {
				t.Errorf("confirmed: %t, want %t", got, test.want)
			}
		})
	}
}

// While nodes vanish, lose their signals or are added, the others stay unconfirmed, also for a new
// leader after the deadline. A confirmed node leaves the breaker.
func TestBreakerCloses(t *testing.T) {
	f := newFleet(t, 20)
	f.signal(0, 20, 0)
	want := func(after time.Duration, n int) {
		t.Helper()
		if got := f.plan(t, after); len(got.Unconfirmed) != n {
			t.Fatalf("%d nodes are unconfirmed at %s, want %d", len(got.Unconfirmed), after, n)
		}
	}
	want(0, 20)
	for _, n := range f.Nodes[:5] { // cleared
		f.untaint(n, awsReclaim)
	}
	want(10*time.Second, 15)
	for _, n := range f.Nodes[:5] {
		if text, ok := n.Annotations[spot.InterruptionStateAnnotation]; ok || len(n.Spec.Taints) > 0 {
			t.Errorf("%s has the taints %v and the state %s", n.Name, n.Spec.Taints, text)
		}
	}
	for range 40 { // added
		f.add()
	}
	want(20*time.Second, 15)
	f.Nodes = f.Nodes[10:] // vanished
	want(time.Minute, 10)
	f.signal(10, 11, time.Minute) // a single signal later is believed
	want(time.Minute, 10)
	f.taint(f.Nodes[0], own, 90*time.Second)
	want(90*time.Second, 9)
	want(3*time.Minute, 11) // all outlive their notice, also the node with two signals
	f.newLeader()
	want(4*time.Minute, 11)
	f.Nodes = f.Nodes[9:]
	want(6*time.Minute, 2)
	f.untaint(f.Nodes[0], awsReclaim)
	want(7*time.Minute, 1)
	f.signal(0, 1, 8*time.Minute)
	want(8*time.Minute, 2)
	want(65*time.Minute, 2) // the evidence is forgotten, and these nodes have not changed
	f.signal(2, 3, 65*time.Minute)
	want(65*time.Minute, 2)
}

// A user closes the breaker. When the signals decide again, it is as before.
func TestForcedBreaker(t *testing.T) {
	f := newFleet(t, 20)
	f.signal(0, 20, 0)
	for i, test := range []struct {
		forced *bool
		want   int
	}{{nil, 20}, {ptr.To(false), 0}, {nil, 20}, {ptr.To(true), 20}} {
		f.settings.ForcedBreaker = test.forced
		if got := f.plan(t, time.Duration(i)*time.Minute); len(got.Unconfirmed) != test.want {
			t.Errorf("%d: %d nodes are unconfirmed, want %d", i, len(got.Unconfirmed), test.want)
		}
	}
	f.settings.ForcedBreaker, f.settings.Interruption.Breaker.MaxPercent = nil, 100
	if got := f.plan(t, 5*time.Minute); got.Open {
		t.Errorf("open with 100%%: %s", names(got))
	}
}

// TestAnyHistoryOfAFleet checks random histories. A node that is unconfirmed stays so until the
// node itself changes, independent of the time and of other nodes. A new leader reads the same.
func TestAnyHistoryOfAFleet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFleet(t, rapid.IntRange(5, 40).Draw(rt, "nodes"))
		now, unconfirmed := time.Duration(0), map[string]bool{}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {
				next := map[string]bool{}
				for _, n := range f.plan(rt, now).Unconfirmed {
					next[n.Name] = true
				}
				for _, n := range f.Nodes {
					if unconfirmed[n.Name] && !next[n.Name] {
						rt.Fatalf("%s is confirmed, although it did not change", n.Name)
					}
				}
				unconfirmed = next
			},
			"signals": func(rt *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(rt, "signals") {
					n := rapid.SampledFrom(f.Nodes).Draw(rt, "node")
					key := rapid.SampledFrom([]string{awsReclaim, awsReclaim, awsReclaim, maintenance, awsAdvisory}).Draw(rt, "key")
					f.untaint(n, key)
					f.taint(n, key, now)
					delete(unconfirmed, n.Name)
				}
			},
			"later": func(rt *rapid.T) { now += time.Duration(rapid.IntRange(1, 200).Draw(rt, "seconds")) * time.Second },
			"added": func(rt *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(rt, "more") {
					f.w.addNode(f.Snapshot, fmt.Sprintf("n-%d-%d", now, len(f.Pods)), v1.ConditionTrue)
				}
				slices.SortFunc(f.Nodes, func(a, b *snapshot.Node) int { return strings.Compare(a.Name, b.Name) })
			},
			"vanishes": func(rt *rapid.T) {
				if i := rapid.IntRange(0, len(f.Nodes)-1).Draw(rt, "node"); len(f.Nodes) > 1 {
					f.Nodes = slices.Delete(f.Nodes, i, i+1)
				}
			},
			"changes": func(rt *rapid.T) {
				n := rapid.SampledFrom(f.Nodes).Draw(rt, "node")
				delete(unconfirmed, n.Name)
				switch rapid.IntRange(0, 2).Draw(rt, "how") {
				case 0:
					f.untaint(n, awsReclaim)
				case 1:
					f.taint(n, "karpenter.sh/disrupted", now)
				case 2:
					n.DeletionTimestamp = at(now)
				}
			},
		})
	})
}

// The name of the field of the state must not change.
func TestBurstOnTheNode(t *testing.T) {
	f := newFleet(t, 20)
	f.signal(0, 20, 0)
	f.plan(t, 0)
	clustertest.Equal(t, "state", `{"class":"reclaim","taint":"spot-itn","deadline":"`+deadline(2*time.Minute)+`","starts":{"taint `+awsReclaim+
		`":"`+deadline(0)+`"},"burst":true}`, f.Nodes[0].Annotations[spot.InterruptionStateAnnotation])
}
