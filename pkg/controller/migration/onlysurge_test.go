package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// A move with OnlySurge is not started in another way.
func TestOnlySurge(t *testing.T) {
	for onlySurge, want := range map[bool][]string{false: {"evict db-0 by evict", "release web by surge"}, true: {"release web by surge"}} {
		w := newWorld()
		w.deployment("web", 1)
		w.pod("web", w.replicaSets["web-1"], "reclaimed")
		w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
		w.sync()
		s := w.snapshot()
		requested := moves(s, migration.Advice, time.Time{}, "db-0", "web")
		for i := range requested {
			requested[i].OnlySurge = onlySurge
		}
		if diff := cmp.Diff(want, describe(migration.Plan(s, &room{left: 10}, requested, settings, nil))); diff != "" {
			t.Errorf("OnlySurge %t: actions (-want +got):\n%s", onlySurge, diff)
		}
	}
}
