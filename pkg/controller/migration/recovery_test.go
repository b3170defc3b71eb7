package migration_test

import (
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// brokenRoom panics for one pod.
type brokenRoom struct {
	room
	bad string
}

func (r *brokenRoom) Replace(p *snapshot.Pod, requires decision.AssignedCapacity) (*snapshot.Node, string) {
	if p.Name == r.bad {
		panic("no such domain")
	}
	return r.room.Replace(p, requires)
}

// A panic about one pod does not stop the planning of others.
func TestPlanAroundAPanic(t *testing.T) {
	for name, test := range map[string]struct {
		bad  func(w *world)             // makes the pod bad
		edit func(s *snapshot.Snapshot) // breaks the snapshot
		with map[string]migration.Kind  // actions in flight
	}{
		"a move":           {bad: func(w *world) { w.pod("bad", w.statefulSet("set", 1), "reclaimed") }},
		"a move in flight": {bad: func(w *world) { w.pod("bad", w.statefulSet("set", 1), "reclaimed") }, with: map[string]migration.Kind{"bad": migration.EvictPod}},
		"a released pod": {bad: func(w *world) {
			w.deployment("set", 0)
			w.released(w.pod("bad", w.replicaSets["set-1"], "reclaimed"), 0)
		}, edit: func(s *snapshot.Snapshot) {
			for _, p := range s.Pods {
				if p.Name == "bad" {
					p.ReleasedFrom.Workload = nil
				}
			}
		}},
		"a released pod that waits": {bad: func(w *world) {
			w.deployment("set", 1)
			w.released(w.pod("bad", w.replicaSets["set-1"], "reclaimed"), 0)
			w.pod("bad-new", w.replicaSets["set-1"], "remaining")
		}, edit: func(s *snapshot.Snapshot) {
			for _, p := range s.Pods {
				if p.Name == "bad" {
					p.ReleasedFrom.Pods = append(p.ReleasedFrom.Pods, nil)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			w.pod("web", w.replicaSets["web-1"], "reclaimed")
			w.deployment("api", 1)
			w.released(w.pod("old", w.replicaSets["api-1"], "reclaimed"), time.Second)
			w.pod("new", w.replicaSets["api-1"], "remaining")
			test.bad(w)
			w.sync()
			s := w.snapshot()
			if test.edit != nil {
				test.edit(s)
			}
			progress := migration.Progress{}
			for name, kind := range test.with {
				progress[w.pods[name].UID] = migration.PodProgress{InFlight: kind}
			}
			requested := moves(s, migration.Heal, time.Time{}, "bad", "web")
			got := describe(migration.Plan(s, &brokenRoom{room: room{left: 10}, bad: "bad"}, requested, settings, progress))
			clustertest.Equal(t, "actions", []string{"release web by surge", "evict old by surge"}, got)
		})
	}
}
