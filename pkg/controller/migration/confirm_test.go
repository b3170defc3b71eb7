package migration_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// A deletion at the last moment is sent only after the API server has confirmed the node, and is
// tried again until then. Only a missing right is reported to users.
func TestDeletionIsConfirmed(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "reclaimed", errors.New("no right"))
	for name, test := range map[string]struct {
		unchanged func(ctx context.Context) (bool, error)
		wantTries int // in 20 s
		wantLog   []string
		wantTold  []string
	}{
		"confirmed": {func(context.Context) (bool, error) { return true, nil }, 1,
			[]string{"delete db-0 1s"}, []string{"DeletedAtDeadline Pod", "DeletedAtDeadline StatefulSet"}},
		"changed":      {func(context.Context) (bool, error) { return false, nil }, 7, nil, nil},
		"not answered": {func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }, 7, nil, nil},
		"forbidden": {func(context.Context) (bool, error) { return false, forbidden }, 7, nil,
			[]string{"ChangeRefused Pod", "ChangeRefused StatefulSet"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("db-0", w.statefulSet("db", 1), "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(5))
			w.budget("db", 1)
			w.sync()
			b, tries := newBench(w, false), 0
			b.executor = execution.New(w.client(), b.recorder, b.clock, execution.Settings{
				Concurrency: 2, RequestTimeout: 40 * time.Millisecond, Unchanged: func(ctx context.Context, planned *v1.Node, _ bool) (bool, error) {
					tries++
					clustertest.Equal(t, "node", w.seen.nodes["reclaimed"].ResourceVersion, planned.ResourceVersion)
					return test.unchanged(ctx)
				},
			})
			for range 80 {
				b.round(time.Second, "db-0")
				b.pass(250 * time.Millisecond)
			}
			b.want(t, test.wantLog, test.wantTold)
			if tries != test.wantTries {
				t.Errorf("%d tries, want %d", tries, test.wantTries)
			}
		})
	}
}

// An eviction respects the PodDisruptionBudgets, so it needs the confirmation only if the silence
// of the kubelet is its cause.
func TestConfirmedEvictions(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w := newWorld(t)
		w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
		w.sync()
		b := newBench(w, false)
		var reads []bool
		b.executor = execution.New(w.client(), b.recorder, b.clock, execution.Settings{
			Concurrency: 2, RequestTimeout: time.Second, Unchanged: func(_ context.Context, _ *v1.Node, silence bool) (bool, error) {
				reads = append(reads, silence)
				return true, nil
			},
		})
		s := b.snapshot()
		evicted := moves(s, migration.Interruption, start.Add(10*time.Minute), "db-0")
		evicted[0].Unreachable = silent
		b.executor.Do(quiet, migration.Plan(s, &room{left: 10}, evicted, settings, b.executor.Observe(s)))
		b.executor.Wait()
		b.want(t, []string{"evict db-0"}, []string{"EvictedToMove Pod", "MovingPods StatefulSet"})
		if want := map[bool][]bool{true: {true}}[silent]; !slices.Equal(reads, want) {
			t.Errorf("silent: %t: reads %v, want %v", silent, reads, want)
		}
	}
}
