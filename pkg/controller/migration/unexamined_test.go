package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// exhaustedRoom is a Room without any search time left.
type exhaustedRoom struct{}

func (exhaustedRoom) Replace(*snapshot.Pod, decision.AssignedCapacity) (*snapshot.Node, string) {
	return nil, simulation.NotExamined
}

// The search for room may take too long, but replacements of pods on an interrupted node start in
// time.
func TestNoTimeToSearch(t *testing.T) {
	plan := func(deadline time.Time, reason migration.Reason) []string {
		w := newWorld()
		w.deployment("web", 1)
		w.pod("web", w.replicaSets["web-1"], "reclaimed")
		w.pod("db", w.statefulSet("db", 2), "reclaimed")
		w.pod("db-1", w.sets["db"], "remaining")
		w.budget("db", 1)
		w.pod("cache", w.statefulSet("cache", 1), "reclaimed")
		w.sync()
		s := w.snapshot()
		return describe(migration.Plan(s, exhaustedRoom{}, moves(s, reason, deadline, "web", "db", "cache"), settings, nil))
	}
	// Without a PodDisruptionBudget, an eviction before room exists gains nothing.
	want := []string{"release web by surge", "evict db by evict"}
	if diff := cmp.Diff(want, plan(start.Add(2*time.Minute), migration.Interruption)); diff != "" {
		t.Errorf("an interrupted node: actions (-want +got):\n%s", diff)
	}
	if got := plan(time.Time{}, migration.Heal); got != nil {
		t.Errorf("other nodes: actions %q, want none", got)
	}
}
