package migration_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// replacing adds a Deployment of 2 replicas whose pod "old" was released 40 s ago, and the other
// pod "other". The replacement "new" was created 25 s ago.
func replacing(w *world) (created *v1.Pod) {
	w.deployment("web", 2)
	w.pod("other", w.replicaSets["web-1"], "remaining")
	w.releasedFor(w.pod("old", w.replicaSets["web-1"], "reclaimed"), migration.Interruption, 40*time.Second)
	w.now = w.now.Add(-25 * time.Second)
	created = w.pod("new", w.replicaSets["web-1"], "")
	w.now = w.now.Add(25 * time.Second)
	return created
}

// TestRecord checks the record of the first action of each case.
func TestRecord(t *testing.T) {
	for name, test := range map[string]struct {
		// given adds the pods, and returns the pods to move.
		given func(*world) []string
		left  time.Duration // to the deadline
		known migration.PodProgress
		want  migration.Record
	}{
		"replacement not created": {
			given: func(w *world) []string { replacing(w); delete(w.pods, "new"); return []string{"old"} }, left: time.Second,
			want: migration.Record{Ready: 2, Replacement: "not created", State: "not-created"},
		},
		"replacement not scheduled": {
			given: func(w *world) []string { replacing(w); return []string{"old"} }, left: time.Second,
			want: migration.Record{Ready: 2, Replacement: "new (not scheduled for 25s)", State: "not-scheduled"},
		},
		"replacement never ready": {
			given: func(w *world) []string { replacing(w).Spec.NodeName = "remaining"; return []string{"old"} }, left: time.Second,
			want: migration.Record{Ready: 2, Replacement: "new (not ready for 25s)", State: "not-ready"},
		},
		"replacement not ready any more": {
			given: func(w *world) []string {
				created := replacing(w)
				created.Spec.NodeName = "remaining"
				w.setReady(created, v1.ConditionFalse)
				return []string{"old"}
			}, left: time.Second,
			want: migration.Record{Ready: 2, Replacement: "new (not ready for 0s)", State: "not-ready"},
		},
		"replacement ready, of an evicted pod": {
			given: func(w *world) []string { w.run(replacing(w), "remaining"); return nil },
			want:  migration.Record{Ready: 3, Replacement: "new (ready for 0s)", State: "ready"},
		},
		"replacement ready, but the eviction was refused": {
			given: func(w *world) []string { w.run(replacing(w), "remaining"); return []string{"old"} }, left: time.Second,
			known: migration.PodProgress{Refused: true},
			want:  migration.Record{Ready: 3, Replacement: "new (ready for 0s): its eviction was refused", State: "ready"},
		},
		"no surge": {
			given: func(w *world) []string { w.pod("old", w.statefulSet("db", 1), "reclaimed"); return []string{"old"} }, left: time.Second,
			want: migration.Record{Ready: 1, Replacement: "not created: it does not belong to a ReplicaSet", State: "not-created"},
		},
		"a refused eviction, and a budget that allows nothing": {
			given: func(w *world) []string {
				w.pod("old", w.statefulSet("db", 1), "reclaimed")
				w.budget("db", 1)
				return []string{"old"}
			},
			left: time.Second, known: migration.PodProgress{Refused: true},
			want: migration.Record{Ready: 1, BrokenBudget: "db", Replacement: "not created: its eviction was refused", State: "not-created"},
		},
		"an unready pod breaks no budget": {
			given: func(w *world) []string {
				w.setReady(w.pod("old", w.statefulSet("db", 1), "reclaimed"), v1.ConditionFalse)
				w.budget("db", 1)
				return []string{"old"}
			}, left: time.Second,
			want: migration.Record{Replacement: "not created: it does not belong to a ReplicaSet", State: "not-created"},
		},
		"an eviction breaks no budget": {
			given: func(w *world) []string {
				w.pod("old", w.statefulSet("db", 1), "reclaimed")
				w.budget("db", 1)
				return []string{"old"}
			}, left: 10 * time.Minute,
			want: migration.Record{Ready: 1, Replacement: "not created", State: "not-created"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			names := test.given(w)
			w.sync()
			s, progress := w.snapshot(), migration.Progress{}
			for _, name := range names {
				progress[w.pods[name].UID] = test.known
			}
			planned := migration.Plan(s, &room{left: 9}, moves(s, migration.Interruption, start.Add(test.left), names...), settings, progress)
			if len(planned) == 0 || planned[0].Pod.Name != "old" {
				t.Fatalf("planned %v, want an action for the pod old", describe(planned))
			}
			clustertest.Equal(t, "record", test.want, planned[0].Record)
		})
	}
}

// TestSharedReplacements: of the replacements of two released pods, the ready one replaces the pod
// that is evicted, and the other one is late for a pod that is deleted.
func TestSharedReplacements(t *testing.T) {
	for name, test := range map[string]struct {
		second bool // the second replacement exists
		left   time.Duration
		want   string
	}{
		"evicted":                             {second: true, want: "evict old: new-1 (ready for 0s)"},
		"deleted":                             {second: true, left: time.Second, want: "delete old: new-2 (not scheduled for 0s)"},
		"evicted, and one was not created":    {want: "evict old: new-1 (ready for 0s)"},
		"deleted, and it was not created yet": {left: time.Second, want: "delete old: not created"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 2)
			for _, name := range []string{"old", "old-2"} {
				w.releasedFor(w.pod(name, w.replicaSets["web-1"], "reclaimed"), migration.Interruption, time.Second)
			}
			w.run(w.pod("new-1", w.replicaSets["web-1"], ""), "remaining")
			if test.second {
				w.pod("new-2", w.replicaSets["web-1"], "")
			}
			w.sync()
			s := w.snapshot()
			var requested []migration.Move
			if test.left > 0 {
				requested = moves(s, migration.Interruption, start.Add(test.left), "old")
			}
			got := ""
			if all := migration.Plan(s, &room{}, requested, settings, nil); len(all) > 0 {
				got = fmt.Sprintf("%s %s: %s", all[0].Kind, all[0].Pod.Name, all[0].Record.Replacement)
			}
			clustertest.Equal(t, "first action", test.want, got)
		})
	}
}

// TestRecordsOfOnePlan: of three pods with a budget of one disruption, the second and the third
// deletion break it, also if the first is in flight.
func TestRecordsOfOnePlan(t *testing.T) {
	w := newWorld(t)
	set := w.statefulSet("db", 3)
	names := []string{"db-0", "db-1", "db-2"}
	for _, name := range names {
		w.pod(name, set, "reclaimed")
	}
	w.budget("db", 2)
	w.sync()
	s := w.snapshot()
	for name, test := range map[string]struct {
		inFlight types.UID
		want     []string
	}{
		"all are planned":        {"", []string{"db-0 3 ready, breaks ", "db-1 2 ready, breaks db", "db-2 1 ready, breaks db"}},
		"the first is in flight": {w.pods["db-0"].UID, []string{"db-1 2 ready, breaks db", "db-2 1 ready, breaks db"}},
	} {
		t.Run(name, func(t *testing.T) {
			progress := migration.Progress{test.inFlight: {InFlight: migration.DeletePod}}
			var got []string
			for _, a := range migration.Plan(s, &room{}, moves(s, migration.Interruption, start.Add(time.Second), names...), settings, progress) {
				got = append(got, fmt.Sprintf("%s %d ready, breaks %s", a.Pod.Name, a.Record.Ready, a.Record.BrokenBudget))
			}
			clustertest.Equal(t, "deletions", test.want, got)
		})
	}
}

// TestDeletionIsRecorded: the log, the events and a metric describe a deletion at a deadline.
func TestDeletionIsRecorded(t *testing.T) {
	w, before := newWorld(t), counted(t)
	replacing(w)
	w.budget("web", 2)
	w.sync()
	b, s := newBench(w, false), w.snapshot()
	var out bytes.Buffer
	ctx := klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	b.executor.Do(ctx, migration.Plan(s, &room{}, moves(s, migration.Interruption, start.Add(time.Second), "old"), settings, b.executor.Observe(s)))
	b.executor.Wait()
	for _, want := range []string{`"Deleted pod"`, `cause="deadline"`, "desired=2", "ready=2", `brokenBudget="web"`, `replacement="new (not scheduled for 25s)"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, out.String())
		}
	}
	clustertest.Equal(t, "notes", []string{
		"Deleted (deadline): its node is about to be reclaimed, and no time is left for an eviction; " +
			"breaks PodDisruptionBudget web; ready pods before: 2; replacement: new (not scheduled for 25s)",
		"Deleted pods (deadline): its node is about to be reclaimed, and no time is left for an eviction",
	}, b.notes)
	clustertest.Equal(t, "counts", map[string]float64{"deletions_total deadline true not-scheduled": 1}, since(t, before))
}

// TestLongNamesInRecords: a tenant chooses names, and cannot make an event too long.
func TestLongNamesInRecords(t *testing.T) {
	r := migration.Record{BrokenBudget: strings.Repeat("b", 253), Replacement: strings.Repeat("r", 253)}
	if n := len(r.String()); n > 410 {
		t.Errorf("a record has %d bytes, want 410 at most", n)
	}
}

// TestLostPodsAreExplained: the event on a node that vanished counts its pods, and explains for
// each workload why they were not moved.
func TestLostPodsAreExplained(t *testing.T) {
	w := newWorld(t)
	replacing(w)
	db := w.statefulSet("db", 2)
	for _, name := range []string{"db-0", "db-1"} {
		w.pod(name, db, "reclaimed")
	}
	w.pod("tool", nil, "reclaimed")
	w.sync()
	b, s := newBench(w, false), w.snapshot()
	s.Overdue = map[string]time.Time{"reclaimed": start}
	stay := moves(s, migration.Interruption, start.Add(2*time.Minute), "db-0", "db-1")
	b.executor.Do(quiet, migration.Plan(s, &room{}, stay, settings, b.executor.Observe(s)))
	b.executor.Wait()
	delete(w.nodes, "reclaimed")
	w.sync()
	b.notes = nil
	b.executor.Observe(b.snapshot())
	clustertest.Equal(t, "notes", []string{"Vanished with 4 pods on it (kubelet silent: true): " +
		"shop/Deployment/web, replacement new (not scheduled for 25s); shop/Pod/tool, replacement not created; " +
		"shop/StatefulSet/db, replacement not created: nothing has room for a replacement: all full; it runs until 2026-03-01T12:01:30Z"}, b.notes)
}
