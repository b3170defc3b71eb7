package migration_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// While moves are paused, none starts or ends. Released pods return to their ReplicaSets, unless
// their replacements are ready.
func TestPause(t *testing.T) {
	everything := slices.Collect(func(yield func(safety.Cause) bool) {
		for cause := range safety.Rules {
			if !yield(cause) {
				return
			}
		}
	})
	released := func(w *world) *v1.Pod {
		return w.releasedFor(w.pod("old", w.replicaSets["web-1"], "reclaimed"), migration.Interruption, 10*time.Second)
	}
	replacement := func(w *world) *v1.Pod { return w.pod("new", w.replicaSets["web-1"], "remaining") }
	for name, test := range map[string]struct {
		paused      []safety.Cause
		given       func(*world)
		left        time.Duration // until the deadline
		unreachable bool
		want        []string
	}{
		"a reclaimed node": {everything, func(w *world) { w.pod("old", w.replicaSets["web-1"], "reclaimed") }, time.Minute, false, nil},
		"the last moment":  {everything, func(w *world) { w.pod("old", w.replicaSets["web-1"], "reclaimed") }, time.Second, false, nil},
		"released":         {everything, func(w *world) { released(w) }, time.Minute, false, []string{"restore old by surge"}},
		"released, its replacement is starting": {everything, func(w *world) {
			released(w)
			w.setReady(replacement(w), v1.ConditionFalse)
		}, time.Minute, false, []string{"restore old by surge"}},
		"released, its replacement is ready": {everything, func(w *world) { released(w); replacement(w) }, time.Minute, false, nil},
		"released, the last moment":          {everything, func(w *world) { released(w) }, time.Second, false, []string{"restore old by surge"}},
		"released, and unready for long": {everything, func(w *world) {
			w.now = start.Add(-time.Minute)
			w.setReady(released(w), v1.ConditionFalse)
			w.now = start
		}, time.Minute, false, []string{"restore old by surge"}},
		"released, its ReplicaSet is gone": {everything, func(w *world) {
			released(w)
			handOver(w)
			delete(w.replicaSets, "web-1")
		}, time.Second, false, nil},
		"released, its Deployment wants no pods": {everything, func(w *world) {
			released(w)
			w.deployments["web"].Spec.Replicas, w.replicaSets["web-1"].Spec.Replicas = new(int32), new(int32)
		}, time.Second, false, nil},
		"another cause": {[]safety.Cause{safety.Heal}, func(w *world) { w.pod("old", w.replicaSets["web-1"], "reclaimed") }, time.Minute, false,
			[]string{"release old by surge"}},
		"another cause, released": {[]safety.Cause{safety.Heal}, func(w *world) { released(w); replacement(w) }, time.Minute, false,
			[]string{"evict old by surge"}},
		"reclaims, not of unreachable nodes": {[]safety.Cause{safety.Reclaim}, func(w *world) { w.pod("old", w.replicaSets["web-1"], "reclaimed") },
			time.Minute, true, []string{"release old by surge"}},
		"unreachable nodes": {[]safety.Cause{safety.Unreachable}, func(w *world) { w.pod("old", w.replicaSets["web-1"], "reclaimed") },
			time.Second, true, nil},
		// A gentler request continues where a deletion may not be sent.
		"deletions, the last moment": {[]safety.Cause{safety.Deadline}, func(w *world) { w.pod("old", w.replicaSets["web-1"], "reclaimed") },
			time.Second, false, []string{"release old by surge"}},
		"deletions, released": {[]safety.Cause{safety.Deadline}, func(w *world) { released(w); replacement(w) }, time.Second, false,
			[]string{"evict old by surge"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			test.given(w)
			w.sync()
			s, settings := w.snapshot(), settings
			settings.Paused = clustertest.Paused((&safety.Pause{Only: test.paused}).Stops)
			requested := noticed(s, test.left, "old")
			requested[0].Unreachable = test.unreachable
			room := &room{left: 10}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, room, requested, settings, nil)))
			if len(test.want) == 0 && len(room.taken) > 0 {
				t.Errorf("paused moves take room: %q", room.taken)
			}
		})
	}
}
