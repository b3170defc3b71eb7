package migration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
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

// A move without a deadline does not remove the last serving replica of a workload. The other
// replica is evicted in the same plan, because of an interruption.
func TestLastServingReplica(t *testing.T) {
	for name, test := range map[string]struct {
		replicas int32
		unready  bool // web-1 is not ready
		reason   migration.Reason
		want     []string
	}{
		"of two":                   {replicas: 2, reason: migration.Heal, want: []string{"evict web-0 by evict"}},
		"of three":                 {replicas: 3, reason: migration.Heal, want: []string{"evict web-0 by evict", "evict web-1 by evict"}},
		"it does not serve itself": {replicas: 2, unready: true, reason: migration.Heal, want: []string{"evict web-0 by evict", "evict web-1 by evict"}},
		"requested":                {replicas: 2, reason: migration.Requested, want: []string{"evict web-0 by evict", "evict web-1 by evict"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.deployment("web", test.replicas).Annotations = map[string]string{spot.SurgeAnnotation: "false"}
			w.grace["web"] = 30
			for i := range test.replicas {
				w.pod(fmt.Sprintf("web-%d", i), w.replicaSets["web-1"], []string{"reclaimed", "remaining", "remaining"}[i])
			}
			if test.unready {
				w.setReady(w.pods["web-1"], v1.ConditionFalse)
			}
			w.sync()
			s := w.snapshot()
			all := slices.Concat(moves(s, migration.Interruption, w.now.Add(2*time.Minute), "web-0"), moves(s, test.reason, time.Time{}, "web-1"))
			if diff := cmp.Diff(test.want, describe(migration.Plan(s, &room{left: 10}, all, settings, nil))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}
