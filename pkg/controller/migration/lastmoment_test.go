package migration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// noticed returns the moves of the named pods. The interruption of their node was noticed at start.
func noticed(s *snapshot.Snapshot, notice time.Duration, names ...string) []migration.Move {
	all := moves(s, migration.Interruption, start.Add(notice), names...)
	for i := range all {
		all[i].Noticed = start
	}
	return all
}

// draining adds n replicas of a workload with this grace period to the interrupted node. owner
// returns a function that adds one.
func draining(w *world, owner func(n int32) func() *v1.Pod, n int, grace time.Duration) (names []string) {
	add := owner(int32(n))
	for range n {
		pod := add()
		pod.Spec.TerminationGracePeriodSeconds = new(int64(grace.Seconds()))
		names = append(names, pod.Name)
	}
	return names
}

// TestSpread follows workloads whose pods all have a grace period of about the notice of their
// node. Evictions start at once, as PodDisruptionBudgets and serving replicas allow. Deletions are
// spread over the second half of the notice, and the last replica is deleted at the deadline.
func TestSpread(t *testing.T) {
	const notice = 2 * time.Minute
	deployment := func(w *world) func(int32) func() *v1.Pod {
		return func(n int32) func() *v1.Pod {
			w.deployment("web", n)
			i := 0
			return func() *v1.Pod { i++; return w.pod(fmt.Sprintf("web-%d", i), w.replicaSets["web-1"], "reclaimed") }
		}
	}
	set := func(w *world) func(int32) func() *v1.Pod {
		return func(n int32) func() *v1.Pod {
			set, i := w.statefulSet("db", n), 0
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			return func() *v1.Pod { i++; return w.pod(fmt.Sprintf("db-%d", i), set, "reclaimed") }
		}
	}
	operator := func(w *world) func(int32) func() *v1.Pod {
		return func(int32) func() *v1.Pod {
			i := 0
			return func() *v1.Pod {
				i++
				pod := w.pod(fmt.Sprintf("kafka-%d", i), nil, "reclaimed")
				pod.Labels, pod.OwnerReferences = map[string]string{"app": "kafka"}, ofStrimzi
				return pod
			}
		}
	}
	for name, test := range map[string]struct {
		of     func(*world) func(int32) func() *v1.Pod
		n      int
		grace  time.Duration
		budget int32
		noRoom bool
		// want are the requests, each with the second after the notice at which it is sent.
		want []string
	}{
		"surges, and no replacement starts": {
			of: deployment, n: 3, grace: 5 * time.Minute, budget: 2,
			want: []string{"0 patch web-1", "0 patch web-2", "0 patch web-3", "80 delete web-1 40s", "100 delete web-2 20s", "119 delete web-3 1s"},
		},
		"a grace period of just the notice": {
			of: deployment, n: 2, grace: notice,
			want: []string{"0 patch web-1", "0 patch web-2", "90 delete web-1 30s", "119 delete web-2 1s"},
		},
		"a single replica": {
			of: deployment, n: 1, grace: notice, want: []string{"0 patch web-1", "90 delete web-1 30s"},
		},
		"evicted, and no replacement starts": {
			of: set, n: 3, grace: notice, want: []string{"0 evict db-1", "100 delete db-2 20s", "119 delete db-3 1s"},
		},
		"evicted within a budget of one, and no replacement starts": {
			of: set, n: 3, grace: notice, budget: 2, want: []string{"0 evict db-1", "100 delete db-2 20s", "119 delete db-3 1s"},
		},
		"of an operator, within a budget of one, and no replacement starts": {
			of: operator, n: 3, grace: notice, budget: 2, want: []string{"0 evict kafka-1", "100 delete kafka-2 20s", "119 delete kafka-3 1s"},
		},
		"a budget that allows nothing": {
			of: set, n: 3, grace: notice, budget: 3, want: []string{"80 delete db-1 40s", "100 delete db-2 20s", "119 delete db-3 1s"},
		},
		"no room, and no PodDisruptionBudget": {
			of: set, n: 2, grace: notice, noRoom: true, want: []string{"90 delete db-1 30s", "119 delete db-2 1s"},
		},
		"a grace period that leaves too little time for a replacement": {
			of: set, n: 2, grace: notice - time.Second, budget: 2, want: []string{"90 delete db-1 30s", "119 delete db-2 1s"},
		},
		"a shorter grace period is not cut": {
			of: set, n: 2, grace: notice * 9 / 10, budget: 2, want: []string{"12 delete db-1 108s", "12 delete db-2 108s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			names := draining(w, test.of(w), test.n, test.grace)
			if test.budget > 0 {
				w.budget("web", test.budget)
				w.budget("db", test.budget)
				w.budget("kafka", test.budget)
			}
			w.sync()
			b := newBench(w, false)
			var got []string
			for second := range int(notice.Seconds()) {
				w.sync()
				s := w.snapshot()
				r := &room{left: 10}
				if test.noRoom {
					r.left = 0
				}
				before := len(w.log)
				b.executor.Do(quiet, migration.Plan(s, r, noticed(s, notice, names...), settings, b.executor.Observe(s)))
				b.executor.Wait()
				slices.Sort(w.log[before:]) // two are sent at a time
				for _, request := range w.log[before:] {
					got = append(got, fmt.Sprint(second, " ", request))
				}
				b.pass(time.Second)
			}
			clustertest.Equal(t, "requests", test.want, got)
		})
	}
}

// Replicas that serve elsewhere count: the pods on the node need not wait for each other.
func TestSpreadCountsReplicasElsewhere(t *testing.T) {
	w := newWorld(t)
	set := w.statefulSet("db", 3)
	w.pod("db-0", set, "remaining")
	for i := 1; i < 3; i++ {
		w.pod(fmt.Sprintf("db-%d", i), set, "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(300))
	}
	w.budget("db", 3)
	for second, want := range map[int][]string{
		79:  {"evict db-1 by evict", "evict db-2 by evict"},             // both unlikely
		80:  {"delete db-1 by delete 40s", "evict db-2 by evict"},       // one may be missing
		100: {"delete db-1 by delete 20s", "delete db-2 by delete 20s"}, // two may be missing
	} {
		w.now = start.Add(time.Duration(second) * time.Second)
		w.sync()
		s := w.snapshot()
		clustertest.Equal(t, fmt.Sprintf("after %d s", second), want, describe(migration.Plan(s, &room{left: 9}, noticed(s, 2*time.Minute, "db-1", "db-2"), settings, nil)))
	}
}

// A pod that no controller recreates gets the longest grace period that its node allows.
func TestNoSpreadWithoutRecreation(t *testing.T) {
	w := newWorld(t)
	w.pod("tool", nil, "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(300))
	step := w.pod("step", nil, "reclaimed")
	step.OwnerReferences, step.Spec.TerminationGracePeriodSeconds = ofTaskRun, new(int64(300))
	w.pod("train", w.replicaSet("job", "train", 1, nil), "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(300))
	w.sync()
	s := w.snapshot()
	for _, pod := range s.Pods {
		if pod.Name == "train" { // of a Job that fails with the loss of a pod
			pod.Subject = &workload.Subject{Pod: decision.Pod{Workload: decision.Workload{Batch: decision.NotRetriable}}}
		}
	}
	got := describe(migration.Plan(s, &room{left: 9}, noticed(s, 2*time.Minute, "tool", "step", "train"), settings, nil))
	want := []string{"delete step by delete 2m0s", "delete tool by delete 2m0s", "delete train by delete 2m0s"}
	clustertest.Equal(t, "actions", want, got)
}

// TestDeletionsQueue: many deletions start earlier by the time that the client needs for them, so
// that the last pod has its full grace period too.
func TestDeletionsQueue(t *testing.T) {
	const pods, requests, notice, grace = 3000, 200, 2 * time.Minute, 30 * time.Second
	const perSecond = requests / 2 // the condition and the deletion
	w := newWorld(t)
	var names []string
	for i := range pods {
		names = append(names, w.pod(fmt.Sprintf("db-%d", i), w.statefulSet(fmt.Sprintf("db-%d", i), 1), "reclaimed").Name)
	}
	w.sync()
	limited := settings
	limited.RequestsPerSecond = requests
	deletions := func(after time.Duration, of int) (n int) {
		s := w.snapshot()
		s.Now = start.Add(after)
		for _, a := range migration.Plan(s, &room{}, moves(s, migration.Interruption, start.Add(notice), names[:of]...), limited, nil) {
			if a.Kind == migration.DeletePod {
				n++
				if *a.Grace != grace {
					t.Errorf("%s gets %s after %s, want %s", a.Pod.Name, *a.Grace, after, grace)
				}
			}
		}
		return n
	}
	last := notice - grace
	early := (pods/perSecond - 1) * time.Second
	for _, test := range []struct {
		after time.Duration
		of    int
		want  int
	}{
		{last - early - time.Second, pods, 0},
		{last - early, pods, perSecond},
		{last - early + 9*time.Second, pods, 10 * perSecond},
		{last, pods, pods},
		{last - 1, perSecond, 0}, // no queue
		{last, perSecond, perSecond},
		{last - time.Second, perSecond + 1, 1},
	} {
		if got := deletions(test.after, test.of); got != test.want {
			t.Errorf("%d of %d pods are deleted after %s, want %d", got, test.of, test.after, test.want)
		}
	}
	s := w.snapshot()
	requested := moves(s, migration.Interruption, start.Add(notice), names...)
	if got := migration.NextLastMoment(s, requested, limited); !got.Equal(start.Add(last - early)) {
		t.Errorf("the next last moment is %s after the start, want %s", got.Sub(start), last-early)
	}
}

// NextLastMoment counts only future moments and uses each pod's own grace period.
func TestNextLastMoment(t *testing.T) {
	w := newWorld(t)
	set := w.statefulSet("db", 2)
	w.pod("db-0", set, "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(5))
	w.pod("db-1", set, "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(0)) // treated as 1 s
	w.pod("tool", nil, "reclaimed")                                                    // 30 s
	w.sync()
	s := w.snapshot()
	const notice = time.Minute
	interrupted := moves(s, migration.Interruption, start.Add(notice), "db-0", "db-1", "tool")
	for name, test := range map[string]struct {
		moves []migration.Move
		after time.Duration
		want  time.Time
	}{
		"nothing moves":     {},
		"no deadline":       {moves: moves(s, migration.Heal, time.Time{}, "db-0")},
		"all in the future": {moves: interrupted, want: start.Add(notice - 30*time.Second)},
		"one reached":       {moves: interrupted, after: notice - 30*time.Second, want: start.Add(notice - 5*time.Second)},
		"the last":          {moves: interrupted, after: notice - 2*time.Second, want: start.Add(notice - time.Second)},
		"all in the past":   {moves: interrupted, after: notice - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextLastMoment(s, test.moves, test.after); !got.Equal(test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// nextLastMoment calls NextLastMoment at this time after start.
func nextLastMoment(s *snapshot.Snapshot, moves []migration.Move, after time.Duration) time.Time {
	later := *s
	later.Now = start.Add(after)
	return migration.NextLastMoment(&later, moves, settings)
}
