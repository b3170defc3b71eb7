package migration_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// second passes a second in which every pod on the node "reclaimed" has to leave by the deadline.
// The cluster reacts in the same second. New pods run on the node that place returns.
func (b *bench) second(noticed, deadline time.Time, place func() string) {
	b.sync()
	s := b.snapshot()
	var requested []migration.Move
	for _, pod := range s.Pods {
		if !deadline.IsZero() && pod.Spec.NodeName == "reclaimed" && pod.DeletionTimestamp == nil {
			requested = append(requested, migration.Move{Pod: pod, Reason: migration.Interruption, Deadline: deadline, Noticed: noticed, Unconfirmed: b.unconfirmed})
		}
	}
	progress := b.executor.Observe(s)
	with := settings
	with.Departures = b.executor.Departures()
	b.executor.Do(quiet, migration.Plan(s, &room{left: 100}, requested, with, progress))
	b.executor.Wait()
	b.endPods()
	b.control()
	for _, name := range slices.Sorted(maps.Keys(b.pods)) {
		if pod := b.pods[name]; pod.Spec.NodeName == "" {
			b.run(pod, place())
		}
	}
	b.pass(time.Second)
}

// Successors of moved pods are placed on the node that their predecessors had to leave. Each pod is
// moved once, and successors run until their last moment. The node lives on after the deadline.
func TestReturningSuccessors(t *testing.T) {
	recreate := func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }
	for name, test := range map[string]struct {
		replicas int32
		given    func(*appsv1.Deployment)
		// restart: a new controller starts in this second.
		restart int
		// wantMoved are the moves before the last moments. At its last moment each pod is deleted.
		wantMoved int
		wantPods  int
	}{
		"surge":                              {replicas: 2, wantMoved: 2, wantPods: 6},
		"surge of one":                       {replicas: 1, wantMoved: 1, wantPods: 3},
		"surge, and another leader":          {replicas: 2, restart: 5, wantMoved: 2, wantPods: 6},
		"surge, and another leader at once":  {replicas: 2, restart: 1, wantMoved: 2, wantPods: 6},
		"eviction":                           {replicas: 2, given: recreate, wantMoved: 2, wantPods: 6},
		"eviction of one":                    {replicas: 1, given: recreate, wantMoved: 1, wantPods: 3},
		"eviction of one and another leader": {replicas: 1, given: recreate, restart: 20, wantMoved: 2, wantPods: 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			d := w.deployment("web", test.replicas)
			if test.given != nil {
				test.given(d)
			}
			created := map[string]bool{}
			for i := range test.replicas {
				pod := w.pod(fmt.Sprint("web-", i), w.replicaSets["web-1"], "reclaimed")
				created[pod.Name] = true
			}
			b := newBench(w, false)
			deadline := start.Add(2 * time.Minute)
			var moved, useless int
			for second := range 300 {
				if second > 0 && second == test.restart {
					useless += count(b.reported, "MoveUseless Pod")
					b = newBench(w, false)
				}
				b.second(start, deadline, func() string { return "reclaimed" })
				for name := range w.pods {
					created[name] = true
				}
				if second == 85 {
					moved = len(w.log)
				}
			}
			if moved != test.wantMoved || len(created) != test.wantPods {
				t.Errorf("%d moves before the last moments and %d pods, want %d and %d\n%v", moved, len(created), test.wantMoved, test.wantPods, w.log)
			}
			if useless += count(b.reported, "MoveUseless Pod"); useless < 1 || useless > 1 && test.restart == 0 {
				t.Errorf("%d events, want one: %v", useless, b.reported)
			}
		})
	}
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// A signal that appears and is cleared every minute moves pods off one node only so often.
func TestMovesOfANodeAreBounded(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.pod("web", w.replicaSets["web-1"], "reclaimed")
	b := newBench(w, false)
	for range 55 { // minutes
		noticed := b.now
		w.calm = false
		for range 3 {
			b.second(noticed, noticed.Add(2*time.Minute), func() string { return "remaining" })
		}
		w.calm = true
		b.sync()
		b.executor.Observe(b.snapshot())
		for _, pod := range w.pods { // the replacement moves to the node whose signal was cleared
			pod.Spec.NodeName = "reclaimed"
		}
		b.pass(57 * time.Second)
	}
	if releases := count(b.reported, "ReleasedToMove Pod"); releases != 10 {
		t.Errorf("%d moves within an hour, want 10", releases)
	}
	if useless := count(b.reported, "MoveUseless Pod"); useless < 1 {
		t.Error("no event for the moves that are not made")
	}
	b.pass(time.Hour)
	w.calm = false
	b.second(b.now, b.now.Add(2*time.Minute), func() string { return "remaining" })
	if releases := count(b.reported, "ReleasedToMove Pod"); releases != 11 {
		t.Errorf("%d moves, want another one an hour later", releases)
	}
	delete(w.nodes, "reclaimed")
	b.sync()
	b.executor.Observe(b.snapshot())
	if left := len(b.executor.Departures()); left != 0 {
		t.Errorf("%d entries for a node that is gone", left)
	}
}

// A replacement counts only if it is where the goal of the move requires it.
func TestGoals(t *testing.T) {
	for name, test := range map[string]struct {
		reason migration.Reason
		// replacement is the node of the ready replacement.
		replacement string
		want        []string
	}{
		"heal to on-demand":                         {migration.Heal, "on-demand", []string{"evict old by surge"}},
		"heal to spot":                              {migration.Heal, "spot", nil},
		"heal to on-demand that is drained":         {migration.Heal, "drained", nil},
		"return to spot":                            {migration.ReturnToSpot, "spot", []string{"evict old by surge"}},
		"return to on-demand":                       {migration.ReturnToSpot, "on-demand", nil},
		"make room, to on-demand":                   {migration.MakeRoom, "on-demand", nil},
		"assignment to spot":                        {migration.Assign, "spot", nil},
		"interruption, any node":                    {migration.Interruption, "spot", []string{"evict old by surge"}},
		"interruption, on the same node":            {migration.Interruption, "reclaimed", nil},
		"interruption, on a cordoned node":          {migration.Interruption, "cordoned", nil},
		"advisory, on a node that is drained":       {migration.Advisory, "drained", nil},
		"advisory, on another node with a signal":   {migration.Advisory, "advised", nil},
		"advisory, on a node without a signal":      {migration.Advisory, "spot", []string{"evict old by surge"}},
		"interruption, on a node with an advisory":  {migration.Interruption, "advised", []string{"evict old by surge"}},
		"eviction request, any node that remains":   {migration.Requested, "on-demand", []string{"evict old by surge"}},
		"unknown reason, on a node that is drained": {migration.Unknown, "drained", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 2)
			for _, node := range []string{"on-demand", "spot", "drained", "cordoned", "advised"} {
				w.node(node)
			}
			w.nodes["cordoned"].Spec.Unschedulable = true
			w.releasedFor(w.pod("old", w.replicaSets["web-1"], "reclaimed"), test.reason, time.Minute)
			w.pod("other", w.replicaSets["web-1"], "reclaimed")
			replacement := w.pod("new", w.replicaSets["web-1"], test.replacement)
			replacement.CreationTimestamp.Time = w.now.Add(-time.Minute).Truncate(time.Second)
			w.sync()
			s := w.snapshot()
			for _, node := range s.Nodes {
				setFacts(node)
			}
			requested := moves(s, test.reason, time.Time{}, "old")
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: 10}, requested, settings, nil)))
		})
	}
}

// advisedRoom is a Room with room only on a node with a signal of this class.
type advisedRoom struct{ signal decision.SignalClass }

func (r advisedRoom) Replace(*snapshot.Pod, decision.AssignedCapacity) (*snapshot.Node, string) {
	node := &snapshot.Node{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "to"}}}
	node.Facts.Signal = r.signal
	return node, ""
}

// A pod leaves a node with an advisory signal only for a node without one, and only if it was there
// when the signal began.
func TestAdvisoryMoves(t *testing.T) {
	for name, test := range map[string]struct {
		reason migration.Reason
		room   advisedRoom
		after  time.Duration // from the signal to the creation of the pod
		want   []string
	}{
		"room on a node without a signal":    {reason: migration.Advisory, want: []string{"release web by surge"}},
		"room on a node with a signal":       {reason: migration.Advisory, room: advisedRoom{decision.Advisory}, want: []string{"stay web"}},
		"another reason":                     {reason: migration.Requested, room: advisedRoom{decision.Advisory}, want: []string{"release web by surge"}},
		"created soon after the signal":      {reason: migration.Advisory, after: 9 * time.Second, want: []string{"release web by surge"}},
		"created after the signal":           {reason: migration.Advisory, after: 10 * time.Second, want: []string{"stay web"}},
		"created after it, for another move": {reason: migration.Requested, after: 10 * time.Second, want: []string{"release web by surge"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			w.node("advised")
			pod := w.pod("web", w.replicaSets["web-1"], "advised")
			w.sync()
			s := w.snapshot()
			for _, node := range s.Nodes {
				setFacts(node)
			}
			requested := moves(s, test.reason, time.Time{}, "web")
			requested[0].Noticed = pod.CreationTimestamp.Add(-test.after)
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, test.room, requested, settings, nil)))
		})
	}
}

func setFacts(node *snapshot.Node) {
	switch node.Name {
	case "spot", "reclaimed":
		node.Facts.Capacity.Type = decision.Spot
	case "drained":
		node.Facts.Signal = decision.Drain
	case "advised":
		node.Facts.Signal = decision.Advisory
	}
}
