package migration_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// TestFairEnd plans unconfirmed moves of pods that cannot surge. While the breaker has opened by
// itself they are evicted one after the other.
func TestFairEnd(t *testing.T) {
	const notice = 2 * time.Minute
	set := func(n, onReclaimed int) func(*world) []string {
		return func(w *world) (names []string) {
			s := w.statefulSet("set", int32(n))
			for i := range n {
				node := "remaining"
				if i < onReclaimed {
					node = "reclaimed"
					names = append(names, fmt.Sprint("set-", i))
				}
				w.pod(fmt.Sprint("set-", i), s, node)
			}
			return names
		}
	}
	job := func(policy *batchv1.PodFailurePolicy) func(*world) []string {
		return func(w *world) []string {
			j := clustertest.NewJob("job", 2)
			j.Spec.PodFailurePolicy = policy
			w.admit(j)
			w.others = append(w.others, j)
			for _, name := range []string{"job-a", "job-b"} {
				w.pod(name, nil, "reclaimed").OwnerReferences = []metav1.OwnerReference{
					*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
			}
			return []string{"job-a"}
		}
	}
	ignore := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}}}}
	fails := &batchv1.PodFailurePolicy{Rules: append([]batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{0}}}},
		ignore.Rules...)}
	for name, test := range map[string]struct {
		pods   func(*world) []string
		budget int32 // the least number of ready pods
		room   int
		after  time.Duration
		begins time.Duration
		never  bool
		want   []string
	}{
		"one at a time":            {pods: set(3, 3), room: 3, want: []string{"evict set-0 by evict"}},
		"before it begins":         {pods: set(3, 1), room: 3, after: 29 * time.Second, begins: 30 * time.Second, want: []string{"stay set-0"}},
		"when it begins":           {pods: set(3, 1), room: 3, after: 30 * time.Second, begins: 30 * time.Second, want: []string{"evict set-0 by evict"}},
		"a user has opened it":     {pods: set(3, 1), room: 3, never: true, want: []string{"stay set-0"}},
		"no room":                  {pods: set(3, 1), want: []string{"stay set-0"}},
		"no room, with a budget":   {pods: set(3, 1), budget: 1, want: []string{"stay set-0"}},
		"the budget allows it":     {pods: set(3, 1), budget: 2, room: 3, want: []string{"evict set-0 by evict"}},
		"the budget allows none":   {pods: set(3, 1), budget: 3, room: 3},
		"the last one that serves": {pods: set(1, 1), room: 3},
		"another replica is missing": {pods: func(w *world) []string {
			names := set(3, 1)(w)
			w.setReady(w.pods["set-2"], v1.ConditionFalse)
			return names
		}, room: 3},
		"an unready pod": {pods: func(w *world) []string {
			names := set(3, 1)(w)
			w.setReady(w.pods["set-0"], v1.ConditionFalse)
			return names
		}, room: 3, want: []string{"evict set-0 by evict"}},
		"a Job":                               {pods: job(nil), room: 3, want: []string{"stay job-a"}},
		"a Job that an exit code fails first": {pods: job(fails), room: 3, want: []string{"stay job-a"}},
		"a Job that ignores disruptions":      {pods: job(ignore), room: 3, want: []string{"evict job-a by evict"}},
		"a pod without a controller":          {pods: func(w *world) []string { return []string{w.pod("tool", nil, "reclaimed").Name} }, room: 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			names := test.pods(w)
			if test.budget > 0 {
				w.budget("set", test.budget)
			}
			w.sync()
			s := w.snapshot()
			s.Now = start.Add(test.after)
			all := noticed(s, notice, names...)
			for i := range all {
				if all[i].Unconfirmed = true; !test.never {
					all[i].FairEnd = start.Add(test.begins)
				}
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: test.room}, all, settings, nil)))
		})
	}
}

// Pods that cannot surge leave a node that has outlived its deadline, one after the other, although
// no replica runs on a remaining node.
func TestOutlivedDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		ready v1.ConditionStatus // of set-1
		want  []string
	}{
		"all serve":      {v1.ConditionTrue, []string{"evict set-0 by evict"}},
		"one is missing": {v1.ConditionFalse, []string{"evict set-1 by evict"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			set := w.statefulSet("set", 2)
			var names []string
			for i := range 2 {
				names = append(names, w.pod(fmt.Sprint("set-", i), set, "reclaimed").Name)
			}
			w.setReady(w.pods["set-1"], test.ready)
			w.sync()
			s := w.snapshot()
			all := noticed(s, 2*time.Minute, names...)
			for i := range all {
				all[i].Deadline = time.Time{}
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: 3}, all, settings, nil)))
		})
	}
}

// While the breaker is open, workloads get room first if the loss would break their
// PodDisruptionBudget, then if it would break their floor. Surges without room do not take the room
// of pods that wait for their turn.
func TestRoomWhileTheBreakerIsOpen(t *testing.T) {
	for name, test := range map[string]struct {
		room int
		want []string
	}{
		"no room":    {0, []string{"stay db-0", "stay db-1", "release web-0 by surge", "release web-1 by surge"}},
		"room for 1": {1, []string{"evict db-0 by evict", "stay db-1"}},
		"room for 2": {2, []string{"evict db-0 by evict", "release web-0 by surge", "stay db-1"}},
		"room for 4": {4, []string{"evict db-0 by evict", "release web-0 by surge", "release web-1 by surge"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var names []string
			w.deployment("web", 2)
			db := w.statefulSet("db", 3)
			for i := range 2 {
				names = append(names, w.pod(fmt.Sprint("web-", i), w.replicaSets["web-1"], "reclaimed").Name,
					w.pod(fmt.Sprint("db-", i), db, "reclaimed").Name)
			}
			w.pod("db-2", db, "remaining")
			w.budget("db", 2)
			w.sync()
			s := w.snapshot()
			s.Now = start.Add(20 * time.Second)
			all := noticed(s, 2*time.Minute, names...)
			for i := range all {
				all[i].Unconfirmed, all[i].FairEnd = true, start
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: test.room}, all, settings, nil)))
		})
	}
}

// Pods whose fair end never comes do not delay the surges of others.
func TestRoomIsNotPromisedForEver(t *testing.T) {
	for name, add := range map[string]func(*world) string{
		"a singleton": func(w *world) string { return w.pod("db-0", w.statefulSet("db", 1), "reclaimed").Name },
		"a budget that allows nothing": func(w *world) string {
			s := w.statefulSet("db", 2)
			w.pod("db-1", s, "remaining")
			w.budget("db", 2)
			return w.pod("db-0", s, "reclaimed").Name
		},
		"a pod of another tenant terminates for ever": func(w *world) string {
			p := w.pod("stuck-0", w.statefulSet("stuck", 1), "remaining")
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: start.Add(-time.Hour)}, []string{"example.com/never"}
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 2)
			names := []string{w.pod("web-0", w.replicaSets["web-1"], "reclaimed").Name, w.pod("web-1", w.replicaSets["web-1"], "reclaimed").Name}
			if other := add(w); other != "" {
				names = append(names, other)
			}
			w.sync()
			s := w.snapshot()
			s.Now = start.Add(11 * time.Second)
			all := noticed(s, 2*time.Minute, names...)
			for i := range all {
				all[i].Unconfirmed, all[i].FairEnd = true, start
			}
			released := 0
			for _, a := range migration.Plan(s, &room{left: 1}, all, settings, nil) {
				if a.Kind == migration.Release {
					released++
				}
			}
			if released != 2 {
				t.Errorf("%d pods are released, want 2", released)
			}
		})
	}
}

// A replica that serves beyond its notice keeps its whole grace period if its kubelet is silent.
// After a pause the rest of the notice is shared out as a notice of its own.
func TestRestOfNotice(t *testing.T) {
	w := newWorld(t)
	names := draining(w, func(n int32) func() *v1.Pod {
		set, i := w.statefulSet("db", n), 0
		return func() *v1.Pod { i++; return w.pod(fmt.Sprintf("db-%d", i), set, "reclaimed") }
	}, 3, 30*time.Second)
	w.budget("db", 3)
	w.sync()
	s := w.snapshot()
	s.Now = start.Add(25 * time.Second)
	all := noticed(s, 45*time.Second, names...)
	clustertest.Equal(t, "without a pause", []string{"delete db-1 by delete 20s", "delete db-2 by delete 20s", "delete db-3 by delete 20s"},
		describe(migration.Plan(s, &room{left: 3}, all, settings, nil)))
	for i := range all {
		all[i].Free = s.Now
	}
	for after, want := range map[time.Duration]int{25 * time.Second: 0, 39 * time.Second: 1, 42 * time.Second: 2, 45 * time.Second: 3} {
		s.Now = start.Add(after)
		deleted := 0
		for _, a := range migration.Plan(s, &room{left: 3}, all, settings, nil) {
			if a.Kind == migration.DeletePod {
				deleted++
			}
		}
		if deleted != want {
			t.Errorf("after %s: %d pods are deleted, want %d", after, deleted, want)
		}
	}
	for i := range all {
		all[i].Unreachable = true
	}
	s.Now = start.Add(45 * time.Second)
	clustertest.Equal(t, "silent", []string{"delete db-1 by delete", "delete db-2 by delete", "delete db-3 by delete"},
		describe(migration.Plan(s, &room{left: 3}, all, settings, nil)))
}
