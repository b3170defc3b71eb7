package migration_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// roomFor is a Room that has room for replacements of the named pods only.
type roomFor map[string]bool

func (r roomFor) Replace(p *snapshot.Pod, _ decision.AssignedCapacity) (*snapshot.Node, string) {
	if r[p.Name] {
		return &snapshot.Node{Node: &v1.Node{}}, ""
	}
	return nil, "no room"
}

// Pods without room for their replacements let pods with room start first, for a limited time.
func TestUnplacedMovesWait(t *testing.T) {
	for name, test := range map[string]struct {
		room    roomFor
		given   func(*world)
		noticed time.Duration // ago
		refused string        // a pod
		want    []string
	}{
		"none has room": {want: []string{"release a by surge", "release b by surge"}},
		"one has room":  {room: roomFor{"b": true}, want: []string{"release b by surge"}},
		"its replacement does not exist yet": {
			room: roomFor{"b": true}, given: func(w *world) { w.released(w.pods["b"], 0) },
		},
		"its replacement is not bound yet": {
			room: roomFor{"new": true}, given: func(w *world) {
				w.released(w.pods["b"], 0)
				w.pod("new", w.replicaSets["b-1"], "")
			},
		},
		"its replacement has scheduling gates": {
			room: roomFor{"new": true}, given: func(w *world) {
				w.released(w.pods["b"], 0)
				w.pod("new", w.replicaSets["b-1"], "").Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "quota"}}
			},
			want: []string{"release a by surge"},
		},
		"its replacement is bound": {
			given: func(w *world) {
				w.released(w.pods["b"], 0)
				w.setReady(w.pod("new", w.replicaSets["b-1"], "remaining"), v1.ConditionFalse)
				w.pods["new"].CreationTimestamp = metav1.NewTime(w.now)
			},
			want: []string{"release a by surge"},
		},
		"its replacement does not exist for too long": {
			room: roomFor{"b": true}, given: func(w *world) { w.released(w.pods["b"], 15*time.Second) },
			want: []string{"release a by surge"},
		},
		"its replacement is not bound for too long": {
			room: roomFor{"new": true}, given: func(w *world) {
				w.released(w.pods["b"], 16*time.Second)
				w.pod("new", w.replicaSets["b-1"], "").CreationTimestamp = metav1.NewTime(w.now.Add(-15 * time.Second))
			},
			want: []string{"release a by surge"},
		},
		"its pod terminates": {
			room: roomFor{"b": true}, given: func(w *world) { terminate(w.pods["b"], w.now.Add(-14*time.Second)) },
		},
		"its pod terminates, and its replacement does not exist for too long": {
			room: roomFor{"b": true}, given: func(w *world) { terminate(w.pods["b"], w.now.Add(-15*time.Second)) },
			want: []string{"release a by surge"},
		},
		"nine seconds after the notice": {
			room: roomFor{"b": true}, noticed: 9 * time.Second, want: []string{"release b by surge"},
		},
		"ten seconds after the notice": {
			room: roomFor{"b": true}, noticed: 10 * time.Second, want: []string{"release b by surge", "release a by surge"},
		},
		"the API server refuses to evict the other": {
			room: roomFor{"db-0": true}, given: func(w *world) {
				delete(w.pods, "b")
				w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
			},
			refused: "db-0", want: []string{"evict db-0 by evict", "release a by surge"},
		},
		"a PodDisruptionBudget allows no eviction of the other": {
			room: roomFor{"db-0": true}, given: func(w *world) {
				delete(w.pods, "b")
				w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
				w.budget("db", 1)
			},
			want: []string{"release a by surge", "evict db-0 by evict"},
		},
		"the other waits for its own sibling": {
			room: roomFor{"db-0": true}, given: func(w *world) {
				delete(w.pods, "b")
				set := w.statefulSet("db", 2)
				w.setReady(w.pod("db-1", set, "remaining"), v1.ConditionFalse)
				w.pod("db-0", set, "reclaimed")
			},
			want: []string{"release a by surge"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, app := range []string{"a", "b"} {
				w.deployment(app, 1)
				w.pod(app, w.replicaSets[app+"-1"], "reclaimed")
			}
			if test.given != nil {
				test.given(w)
			}
			w.sync()
			s := w.snapshot()
			requested := moves(s, migration.Interruption, w.now.Add(2*time.Minute), "a", "b", "db-0")
			for i := range requested {
				requested[i].Noticed = w.now.Add(-test.noticed)
			}
			progress := migration.Progress{}
			if test.refused != "" {
				progress[w.pods[test.refused].UID] = migration.PodProgress{Refused: true}
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, test.room, requested, settings, progress)))
		})
	}
}

// terminate marks a pod as terminating since a time, with a grace period of 30 seconds.
func terminate(pod *v1.Pod, since time.Time) {
	pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
	pod.DeletionTimestamp = ptr.To(metav1.NewTime(since.Add(30 * time.Second)))
}

// exhaustedRoom is a Room without any search time left.
type exhaustedRoom struct{}

func (exhaustedRoom) Replace(*snapshot.Pod, decision.AssignedCapacity) (*snapshot.Node, string) {
	return nil, simulation.NotExamined
}

// The search for room may take too long, but replacements of pods on an interrupted node start in
// time.
func TestNoTimeToSearch(t *testing.T) {
	plan := func(deadline time.Time, reason migration.Reason) []string {
		w := newWorld(t)
		w.deployment("web", 1)
		w.pod("web", w.replicaSets["web-1"], "reclaimed")
		w.pod("db-0", w.statefulSet("db", 2), "reclaimed")
		w.pod("db-1", w.sets["db"], "remaining")
		w.budget("db", 1)
		w.pod("cache-0", w.statefulSet("cache", 1), "reclaimed")
		w.sync()
		s := w.snapshot()
		return describe(migration.Plan(s, exhaustedRoom{}, moves(s, reason, deadline, "web", "db-0", "cache-0"), settings, nil))
	}
	// Without a PodDisruptionBudget, an eviction before room exists gains nothing.
	want := []string{"release web by surge", "evict db-0 by evict"}
	clustertest.Equal(t, "an interrupted node: actions", want, plan(start.Add(2*time.Minute), migration.Interruption))
	if got := plan(time.Time{}, migration.Heal); got != nil {
		t.Errorf("other nodes: actions %q, want none", got)
	}
}
