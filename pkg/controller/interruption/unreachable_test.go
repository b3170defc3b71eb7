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

// addNode adds a spot node with a pod to s.
func (w *world) addNode(s *snapshot.Snapshot, name string, ready v1.ConditionStatus) *snapshot.Node {
	n, p := newSpotNode(name, ready), w.pod("p-"+name, "Deployment")
	p.Node, n.Pods = n, []*snapshot.Pod{p}
	s.Nodes, s.Pods = append(s.Nodes, n), append(s.Pods, p)
	return n
}

// If many nodes are unreachable, the controller does not delete all their pods. The Leases of nodes
// count too, also if they are not overdue for long enough: such nodes become unreachable together.
func TestManyUnreachableNodes(t *testing.T) {
	for _, test := range []struct {
		nodes, unknown int
		gone, late     int // by their Leases
		want           int
	}{
		{10, 1, 0, 0, 1}, {10, 2, 0, 0, 2}, {10, 5, 0, 0, 2}, {10, 6, 0, 0, 0}, {10, 10, 0, 0, 0}, {2, 2, 0, 0, 0},
		{100, 9, 0, 0, 9}, {100, 54, 0, 0, 10}, {100, 55, 0, 0, 0},
		{10, 0, 1, 0, 1}, {10, 0, 2, 3, 2}, {10, 0, 2, 4, 0}, {100, 0, 12, 0, 10}, {100, 0, 12, 43, 0},
	} {
		w := newWorld(t)
		s := &snapshot.Snapshot{Now: start.Add(time.Hour), Overdue: map[string]time.Time{}}
		for i := range test.nodes {
			ready := v1.ConditionTrue
			if i < test.unknown {
				ready = v1.ConditionUnknown
			}
			n := w.addNode(s, fmt.Sprint("n-", i), ready)
			switch {
			case i < test.gone:
				s.Overdue[n.Name] = s.Now.Add(-41 * time.Second)
			case i < test.gone+test.late:
				s.Overdue[n.Name] = s.Now.Add(-21 * time.Second)
			}
		}
		// A node that has never reported does not affect the others.
		s.Nodes = append(s.Nodes, &snapshot.Node{Node: &v1.Node{}})
		if _, moves, _ := interruption.Plan(s, settings); len(moves) != test.want {
			t.Errorf("%+v: %d moves", test, len(moves))
		}
	}
}

// A node that counts as gone continues to do so if other nodes become unreachable. The signal of a
// node with another signal does not make its deadline earlier.
func TestCountedNodeStaysCounted(t *testing.T) {
	w := newWorld(t)
	s := &snapshot.Snapshot{Now: start.Add(time.Hour)}
	unreachable := func(name string) *snapshot.Node { return w.addNode(s, name, v1.ConditionUnknown) }
	unreachable("a")
	unreachable("b").Spec.Taints = []v1.Taint{{Key: awsReclaim, Effect: v1.TaintEffectNoSchedule}}
	unreachable("c")
	unreachable("d").Annotations[spot.InterruptionStateAnnotation] = `{"class":"reclaim","taint":"not-ready","starts":{"` + node.UnreachableKubelet + `":"2026-03-01T12:30:00Z"}}`
	for i := range 6 {
		s.Nodes = append(s.Nodes, &snapshot.Node{Node: newNode(fmt.Sprint("ready-", i), v1.ConditionTrue)})
	}
	_, moves, _ := interruption.Plan(s, settings)
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

// A silent node without a confirmation gets no mark and no moves. The moves of a confirmed node
// record that its kubelet is unreachable.
func TestSilenceMustBeConfirmed(t *testing.T) {
	w := newWorld(t)
	s := &snapshot.Snapshot{Now: start.Add(time.Hour), Unconfirmed: map[string]bool{"a": true}}
	w.addNode(s, "a", v1.ConditionUnknown)
	w.addNode(s, "b", v1.ConditionUnknown)
	w.addNode(s, "c", v1.ConditionTrue).Spec.Taints = []v1.Taint{{Key: awsReclaim, Effect: v1.TaintEffectNoSchedule}}
	s.Nodes = append(s.Nodes, &snapshot.Node{Node: newNode("ready", v1.ConditionTrue)})
	marks, moves, _ := interruption.Plan(s, settings)
	got := map[string]bool{} // by pod: whether the kubelet is unreachable
	for _, m := range moves {
		got[m.Pod.Name] = m.Unreachable
	}
	clustertest.Equal(t, "moves", map[string]bool{"p-b": true, "p-c": false}, got)
	clustertest.Equal(t, "marked nodes", 2, len(marks))
}
