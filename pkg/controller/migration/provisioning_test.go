package migration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// roomOn is a Room with room on one capacity type only.
type roomOn struct{ capacity decision.CapacityType }

func (r roomOn) Replace(_ *snapshot.Pod, requires decision.AssignedCapacity) (*snapshot.Node, string) {
	if !requires.Admits(r.capacity) {
		return nil, "all full"
	}
	node := &snapshot.Node{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.capacity.String()}}}
	node.Facts.Capacity.Type = r.capacity
	return node, ""
}

// A surge needs no existing room if its replacement requires a capacity type. Every other move
// does.
func TestProvisioning(t *testing.T) {
	onSpot, onDemand := roomOn{decision.Spot}, roomOn{decision.OnDemand}
	for name, test := range map[string]struct {
		reason   migration.Reason
		requires decision.AssignedCapacity
		room     migration.Room
		deadline time.Duration // 0: none
		unready  bool
		want     []string
		wantWhy  string
		toSpot   bool
	}{
		"heal, on-demand has room": {reason: migration.Heal, requires: decision.AssignedOnDemand, room: onDemand,
			want: []string{"release web by surge", "evict zk-0 by evict"}, wantWhy: "by requests, node on-demand has room for a replacement"},
		"heal, on-demand is full": {reason: migration.Heal, requires: decision.AssignedOnDemand, room: onSpot,
			want:    []string{"release web by surge", "stay zk-0"},
			wantWhy: "nothing has room for a replacement: all full; it requires on-demand, so that an autoscaler adds a node"},
		"heal, on-demand is full, without the mode": {reason: migration.Heal, room: onSpot},
		"heal, no time was left to look for room":   {reason: migration.Heal, requires: decision.AssignedOnDemand, room: exhaustedRoom{}},
		"heal, on-demand is full, no surge": {reason: migration.Heal, requires: decision.AssignedOnDemand, room: onSpot, unready: true,
			want: []string{"stay web", "stay zk-0"}, wantWhy: "nothing has room for a replacement: all full"},
		"assign, on-demand is full": {reason: migration.Assign, requires: decision.AssignedOnDemand, room: onSpot,
			want:    []string{"release web by surge", "stay zk-0"},
			wantWhy: "nothing has room for a replacement: all full; it requires on-demand, so that an autoscaler adds a node"},
		"return, spot has room": {reason: migration.ReturnToSpot, requires: decision.AssignedSpot, room: onSpot, toSpot: true,
			want: []string{"release web by surge", "evict zk-0 by evict"}, wantWhy: "by requests, node spot has room for a replacement"},
		"return, spot is full: no eviction": {reason: migration.ReturnToSpot, requires: decision.AssignedSpot, room: onDemand, toSpot: true,
			want:    []string{"release web by surge"},
			wantWhy: "nothing has room for a replacement: all full; it requires spot, so that an autoscaler adds a node"},
		"return, spot has room, without the mode": {reason: migration.ReturnToSpot, room: onSpot,
			want: []string{"release web by surge", "evict zk-0 by evict"}, wantWhy: "by requests, node spot has room for a replacement"},
		"an interruption requires nothing": {reason: migration.Interruption, room: onDemand, deadline: 2 * time.Minute,
			want: []string{"release web by surge", "evict zk-0 by evict"}, wantWhy: "by requests, node on-demand has room for a replacement"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			web := w.pod("web", w.replicaSets["web-1"], "remaining")
			w.pod("zk-0", w.statefulSet("zk", 1), "remaining")
			if test.unready {
				w.setReady(web, v1.ConditionFalse)
			}
			w.sync()
			s := w.snapshot()
			var deadline time.Time
			if test.deadline > 0 {
				deadline = w.now.Add(test.deadline)
			}
			requested := moves(s, test.reason, deadline, "web", "zk-0")
			for i := range requested {
				requested[i].Requires = test.requires
			}
			actions := migration.Plan(s, test.room, requested, settings, nil)
			if diff := cmp.Diff(test.want, describe(actions)); diff != "" {
				t.Fatalf("actions (-want +got):\n%s", diff)
			}
			if len(actions) > 0 && actions[0].Why != test.wantWhy {
				t.Errorf("why %q, want %q", actions[0].Why, test.wantWhy)
			}
			for _, a := range actions {
				if want := test.toSpot && a.Kind == migration.Release; a.ToSpot != want {
					t.Errorf("%s of %s: ToSpot %t, want %t", a.Kind, a.Pod.Name, a.ToSpot, want)
				}
			}
		})
	}
}

// Moves with a deadline precede moves without one for which an autoscaler adds nodes.
func TestProvisioningWaitsForDeadlines(t *testing.T) {
	w := newWorld(t)
	for _, app := range []string{"a", "b"} {
		w.deployment(app, 1)
		w.pod(app, w.replicaSets[app+"-1"], "reclaimed")
	}
	w.sync()
	s := w.snapshot()
	requested := append(moves(s, migration.Heal, time.Time{}, "a"), moves(s, migration.Interruption, w.now.Add(2*time.Minute), "b")...)
	requested[0].Requires = decision.AssignedOnDemand
	got := describe(migration.Plan(s, &room{}, requested, settings, nil))
	clustertest.Equal(t, "actions", []string{"release b by surge", "release a by surge"}, got)
}

// A pod whose replacement may need a new node waits for the longer of both times.
func TestNodeStartup(t *testing.T) {
	for name, test := range map[string]struct {
		startup      time.Duration
		provisioning []migration.Reason
		want         time.Duration
	}{
		"a node takes longer":           {3 * time.Minute, []migration.Reason{migration.Heal}, 3 * time.Minute},
		"a node takes less":             {time.Minute, []migration.Reason{migration.Heal}, 2 * time.Minute},
		"no autoscaler mode":            {3 * time.Minute, nil, 2 * time.Minute},
		"not for the reason of the pod": {3 * time.Minute, []migration.Reason{migration.ReturnToSpot}, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			with := settings
			with.NodeStartup, with.ProvisionFor = test.startup, test.provisioning
			for ago, want := range map[time.Duration][]string{test.want - time.Second: nil, test.want: {"restore web by surge"}} {
				w := newWorld(t)
				w.deployment("web", 1)
				w.released(w.pod("web", w.replicaSets["web-1"], "remaining"), ago)
				w.sync()
				clustertest.Equal(t, fmt.Sprintf("%s after its release: actions", ago), want, describe(migration.Plan(w.snapshot(), &room{}, nil, with, nil)))
			}
		})
	}
}

// The release records whether the replacement must require spot.
func TestReleaseToSpot(t *testing.T) {
	for name, test := range map[string]struct {
		reason   migration.Reason
		requires decision.AssignedCapacity
		want     bool
	}{
		"return":                     {migration.ReturnToSpot, decision.AssignedSpot, true},
		"return to room that exists": {migration.ReturnToSpot, decision.Unassigned, false},
		"heal":                       {migration.Heal, decision.AssignedOnDemand, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.calm = true
			w.deployment("web", 1)
			w.pod("web", w.replicaSets["web-1"], "remaining")
			w.sync()
			executor := execution.New(w.client(), &recorder{}, clocktesting.NewFakePassiveClock(w.now), execution.Settings{
				Concurrency: 1, RequestTimeout: time.Second,
			})
			s := w.snapshot()
			planned := moves(s, test.reason, time.Time{}, "web")
			planned[0].Requires = test.requires
			capacity := decision.Spot
			if test.reason == migration.Heal {
				capacity = decision.OnDemand
			}
			executor.Do(quiet, migration.Plan(s, roomOn{capacity}, planned, settings, executor.Observe(s)))
			executor.Wait()
			w.sync()
			for _, pod := range w.snapshot().Pods {
				if pod.Release == nil || pod.Release.ToSpot != test.want {
					t.Errorf("release %+v, want one with ToSpot %v", pod.Release, test.want)
				}
			}
		})
	}
}
