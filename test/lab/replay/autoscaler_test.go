package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAutoscaler(t *testing.T) {
	p := newPlan(t, nil) // a node has 4000 milli-CPUs and 16000 MiB
	pod := func(uid string) PendingPod { return PendingPod{UID: uid, CPUMilli: 1500, MemoryMiB: 6000} }
	pending := []PendingPod{pod("1"), pod("2"), pod("3")}
	a := NewAutoscaler(p)
	step := func(at time.Duration, pending []PendingPod, pods map[string]int, want Actions) {
		t.Helper()
		if diff := cmp.Diff(want, a.Step(at, pending, pods, time.Minute, false)); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", at, diff)
		}
	}
	step(0, pending, nil, Actions{Next: time.Minute})
	// A later pod uses the room of a starting node.
	pending = append(pending, pod("4"))
	step(30*time.Second, pending, nil, Actions{Next: time.Minute})
	start := []OnDemandNode{{"on-demand-1", "a"}, {"on-demand-2", "b"}}
	step(time.Minute, pending, nil, Actions{Start: start, Next: time.Minute + bindWithin})
	pods := map[string]int{"on-demand-1": 2, "on-demand-2": 2}
	step(61*time.Second, nil, pods, Actions{Next: never})
	// The first node is empty from 100 s on.
	pods["on-demand-1"] = 0
	step(100*time.Second, nil, pods, Actions{Next: 700 * time.Second})
	pods["on-demand-1"] = 1
	step(200*time.Second, nil, pods, Actions{Next: never})
	pods["on-demand-1"] = 0
	step(300*time.Second, nil, pods, Actions{Next: 900 * time.Second})
	step(900*time.Second, nil, pods, Actions{Remove: []string{"on-demand-1"}, Next: never})
}

// TestPodNotBound covers a pod that was not bound to the node that was added for it, because other
// pods use the room. The autoscaler acts again after bindWithin, or at once after Retry.
func TestPodNotBound(t *testing.T) {
	p := newPlan(t, nil)
	pending := []PendingPod{{UID: "1", CPUMilli: 3000, MemoryMiB: 1}}
	pods := map[string]int{"on-demand-1": 3}
	for name, retry := range map[string]bool{"time passes": false, "retry": true} {
		t.Run(name, func(t *testing.T) {
			a := NewAutoscaler(p)
			if got := a.Step(0, pending, nil, 0, false); len(got.Start) != 1 {
				t.Fatalf("%+v, want a node", got)
			}
			got := a.Step(0, pending, pods, 0, false)
			if len(got.Start) != 0 || got.Next != bindWithin {
				t.Fatalf("%+v, want no node and the next step after %s", got, bindWithin)
			}
			at := bindWithin
			if retry {
				at = 0
				a.Retry()
			}
			if got := a.Step(at, pending, pods, 0, false); len(got.Start) != 1 {
				t.Errorf("%+v, want another node", got)
			}
		})
	}
}

// TestPodsOfANode covers small pods: a node has room for a limited number of pods.
func TestPodsOfANode(t *testing.T) {
	p := newPlan(t, nil) // at most 58 pods
	var pending []PendingPod
	for i := range 59 {
		pending = append(pending, PendingPod{UID: fmt.Sprint(i), CPUMilli: 1, MemoryMiB: 1})
	}
	if got := NewAutoscaler(p).Step(0, pending, nil, 0, false); len(got.Start) != 2 {
		t.Errorf("%+v, want 2 nodes", got)
	}
}

// TestNoRemovalDuringPlacement: while pods move, a scheduler may bind one to an empty node.
func TestNoRemovalDuringPlacement(t *testing.T) {
	p := newPlan(t, nil)
	a := NewAutoscaler(p)
	a.Step(0, []PendingPod{{UID: "1", CPUMilli: 1, MemoryMiB: 1}}, nil, 0, true)
	if got := a.Step(time.Hour, nil, nil, 0, true); len(got.Remove) != 0 {
		t.Errorf("removed %v while pods move", got.Remove)
	}
	if got := a.Step(time.Hour, nil, nil, 0, false); len(got.Remove) != 1 {
		t.Errorf("removed %v, want the empty node", got.Remove)
	}
}

// TestUselessNode covers a pod that a node did not help: the autoscaler adds no further node while
// the first one is empty.
func TestUselessNode(t *testing.T) {
	p := newPlan(t, nil)
	a := NewAutoscaler(p)
	pending := []PendingPod{{UID: "1", CPUMilli: 1, MemoryMiB: 1}}
	started := 0
	for at := time.Duration(0); at < time.Hour; at += 10 * time.Second {
		actions := a.Step(at, pending, nil, time.Minute, false)
		started += len(actions.Start)
		if at < 11*time.Minute && started > 1 {
			t.Fatalf("at %s: %d nodes for one pod", at, started)
		}
	}
	if started == 0 || started > 6 {
		t.Errorf("%d nodes were started in an hour", started)
	}
}

// TestAssignmentsLastWhileNodesStart covers pods whose nodes become Ready one after the other: a
// pod that waits for the second node stays assigned to it while the first one starts.
func TestAssignmentsLastWhileNodesStart(t *testing.T) {
	p := newPlan(t, nil)
	a := NewAutoscaler(p)
	pod := func(uid string, fresh bool) PendingPod {
		return PendingPod{UID: uid, CPUMilli: 4000, MemoryMiB: 1, Fresh: fresh}
	}
	a.Step(0, []PendingPod{pod("1", false)}, nil, time.Minute, false)
	a.Step(10*time.Second, []PendingPod{pod("1", false), pod("2", false)}, nil, time.Minute, false)
	// The first node exists, but is not Ready. So no pod may get a node now.
	got := a.Step(time.Minute, []PendingPod{pod("1", true), pod("2", true), pod("3", true)}, nil, time.Minute, true)
	if len(got.Start) != 1 || len(a.nodes) != 2 {
		t.Errorf("%d nodes started of %d, want 1 of 2", len(got.Start), len(a.nodes))
	}
	got = a.Step(70*time.Second, []PendingPod{pod("2", false)}, map[string]int{"on-demand-1": 1}, time.Minute, false)
	if len(got.Start) != 1 || len(a.nodes) != 2 {
		t.Errorf("%d nodes started of %d, want 1 of 2", len(got.Start), len(a.nodes))
	}
}
