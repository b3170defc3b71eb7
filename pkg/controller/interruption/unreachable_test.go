package interruption_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// If many nodes are unreachable, the controller does not delete all their pods.
func TestManyUnreachableNodesAreIgnored(t *testing.T) {
	for _, test := range []struct{ nodes, unreachable, want int }{
		{10, 1, 1}, {10, 2, 2}, {10, 5, 2}, {10, 6, 0}, {10, 10, 0}, {2, 2, 0}, {100, 9, 9}, {100, 54, 10}, {100, 55, 0},
	} {
		w := newWorld(t)
		s := &snapshot.Snapshot{Now: start.Add(time.Hour)}
		for i := range test.nodes {
			status := v1.ConditionTrue
			if i < test.unreachable {
				status = v1.ConditionUnknown
			}
			n := newSpotNode(fmt.Sprint("n-", i), status)
			p := w.pod(fmt.Sprint("p-", i), "Deployment")
			p.Node, n.Pods = n, []*snapshot.Pod{p}
			s.Nodes, s.Pods = append(s.Nodes, n), append(s.Pods, p)
		}
		// A node that has never reported does not affect the others.
		s.Nodes = append(s.Nodes, &snapshot.Node{Node: &v1.Node{}})
		if _, moves := interruption.Plan(s, settings); len(moves) != test.want {
			t.Errorf("%d of %d nodes are unreachable: %d moves, want %d", test.unreachable, test.nodes, len(moves), test.want)
		}
	}
}

// The same applies to Leases, also of nodes whose Leases are not overdue for long enough: they
// become unreachable together.
func TestManyOverdueLeases(t *testing.T) {
	for _, test := range []struct{ nodes, gone, late, want int }{
		{10, 1, 0, 1}, {10, 2, 3, 2}, {10, 2, 4, 0}, {100, 12, 0, 10}, {100, 12, 43, 0},
	} {
		w := newWorld(t)
		s := &snapshot.Snapshot{Now: start, Overdue: map[string]time.Time{}}
		for i := range test.nodes {
			n := newSpotNode(fmt.Sprint("n-", i), v1.ConditionTrue)
			switch {
			case i < test.gone:
				s.Overdue[n.Name] = start.Add(-41 * time.Second)
			case i < test.gone+test.late:
				s.Overdue[n.Name] = start.Add(-21 * time.Second)
			}
			p := w.pod(fmt.Sprint("p-", i), "Deployment")
			p.Node, n.Pods = n, []*snapshot.Pod{p}
			s.Nodes, s.Pods = append(s.Nodes, n), append(s.Pods, p)
		}
		if _, moves := interruption.Plan(s, settings); len(moves) != test.want {
			t.Errorf("of %d nodes %d are gone and %d late: %d moves, want %d", test.nodes, test.gone, test.late, len(moves), test.want)
		}
	}
}

// A node that counts as gone continues to do so if other nodes become unreachable. The signal of a
// node with another signal does not make its deadline earlier.
func TestCountedNodeStaysCounted(t *testing.T) {
	w := newWorld(t)
	s := &snapshot.Snapshot{Now: start.Add(time.Hour)}
	unreachable := func(name string) *snapshot.Node {
		n := newSpotNode(name, v1.ConditionUnknown)
		p := w.pod("p-"+name, "Deployment")
		p.Node, n.Pods = n, []*snapshot.Pod{p}
		s.Nodes, s.Pods = append(s.Nodes, n), append(s.Pods, p)
		return n
	}
	unreachable("a")
	unreachable("b").Spec.Taints = []v1.Taint{{Key: awsReclaim, Effect: v1.TaintEffectNoSchedule}}
	unreachable("c")
	unreachable("d").Annotations[spot.InterruptionStateAnnotation] = `{"class":"reclaim","taint":"not-ready","starts":{"` + node.UnreachableKubelet + `":"2026-03-01T12:30:00Z"}}`
	for i := range 6 {
		s.Nodes = append(s.Nodes, &snapshot.Node{Node: newNode(fmt.Sprint("ready-", i), v1.ConditionTrue)})
	}
	_, moves := interruption.Plan(s, settings)
	got := map[string]bool{} // by pod: whether time is left
	for _, m := range moves {
		got[m.Pod.Name] = m.Deadline.After(s.Now)
	}
	clustertest.Equal(t, "moves, and whether they have time", map[string]bool{"p-a": false, "p-b": true, "p-d": false}, got)
}

// A node with an overdue Lease counts as gone exactly when its Facts change, and not only in the
// next whole second: a round starts at that moment.
func TestUnreachableWithinASecond(t *testing.T) {
	w := newWorld(t)
	w.now, w.overdue = start.Add(700*time.Millisecond), node.NotReadyReclaimAfter
	if got := w.round(0); got == "" {
		t.Error("no moves, want moves of both pods")
	}
}
