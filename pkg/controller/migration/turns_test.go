package migration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// Replicas that cannot surge and have no PodDisruptionBudget are evicted one after the other while
// there is time.
func TestInTurn(t *testing.T) {
	recreate := func(w *world) { w.deployments["web"].Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }
	for name, test := range map[string]struct {
		replicas int
		given    func(*world)
		// after is the time since the notice of two minutes.
		after time.Duration
		want  []string
	}{
		"of a Recreate Deployment": {replicas: 3, given: recreate, want: []string{"evict web-0 by evict"}},
		"with a host port": {
			replicas: 3, given: func(w *world) {
				for _, pod := range w.pods {
					pod.Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80}}}}
				}
			},
			want: []string{"evict web-0 by evict"},
		},
		"in a rollout": {
			replicas: 3, given: func(w *world) { w.deployments["web"].Generation = 2 }, want: []string{"evict web-0 by evict"},
		},
		"one replica is on the node": {
			replicas: 3, given: func(w *world) {
				recreate(w)
				w.pods["web-1"].Spec.NodeName, w.pods["web-2"].Spec.NodeName = "remaining", "remaining"
			},
			want: []string{"evict web-0 by evict"},
		},
		"another replica does not serve": {
			replicas: 3, given: func(w *world) { recreate(w); w.setReady(w.pods["web-2"], v1.ConditionFalse) },
			want: []string{"evict web-2 by evict"},
		},
		"another replica elsewhere does not serve": {
			replicas: 3, given: func(w *world) {
				recreate(w)
				w.pods["web-2"].Spec.NodeName = "remaining"
				w.setReady(w.pods["web-2"], v1.ConditionFalse)
			},
		},
		"it does not serve for two thirds of the second half of the notice": {
			replicas: 3, after: 100 * time.Second, given: func(w *world) {
				recreate(w)
				w.pods["web-2"].Spec.NodeName = "remaining"
				w.setReady(w.pods["web-2"], v1.ConditionFalse)
			},
			want: []string{"evict web-0 by evict"},
		},
		"a PodDisruptionBudget decides": {
			replicas: 3, given: func(w *world) { recreate(w); w.budget("web", 1) },
			want: []string{"evict web-0 by evict", "evict web-1 by evict", "evict web-2 by evict"},
		},
		"surges do not wait": {replicas: 2, want: []string{"release web-0 by surge", "release web-1 by surge"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", int32(test.replicas))
			for i := range test.replicas {
				w.pod(fmt.Sprint("web-", i), w.replicaSets["web-1"], "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(10))
			}
			if test.given != nil {
				test.given(w)
			}
			w.sync()
			w.now = start.Add(test.after)
			s := w.snapshot()
			var names []string
			for _, pod := range s.Pods {
				if pod.Spec.NodeName == "reclaimed" {
					names = append(names, pod.Name)
				}
			}
			got := describe(migration.Plan(s, &room{left: 10}, noticed(s, 2*time.Minute, names...), settings, nil))
			clustertest.Equal(t, "actions", test.want, got)
		})
	}
}

// While ordinal 0 is not ready, Kubernetes creates no later pod of an ordered StatefulSet again.
func TestLowerOrdinalUnready(t *testing.T) {
	for name, test := range map[string]struct {
		parallel bool
		ready    bool
		created  bool // db-0 was created after the notice: it may have moved too
		after    time.Duration
		want     []string
	}{
		"not ready":                     {want: []string{"stay db-1", "stay db-2"}},
		"ready":                         {ready: true, want: []string{"evict db-1 by evict"}},
		"not ready, and new":            {created: true},
		"not ready, parallel":           {parallel: true, after: 100 * time.Second, want: []string{"evict db-1 by evict"}},
		"not ready, at the last moment": {after: 110 * time.Second, want: []string{"delete db-1 by delete 10s", "delete db-2 by delete 10s"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			set := w.statefulSet("db", 3)
			if test.parallel {
				set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			}
			w.pod("db-0", set, "remaining")
			if !test.ready {
				w.setReady(w.pods["db-0"], v1.ConditionFalse)
			}
			if test.created {
				w.pods["db-0"].CreationTimestamp = metav1.NewTime(start)
			}
			for _, name := range []string{"db-1", "db-2"} {
				w.pod(name, set, "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(10))
			}
			w.sync()
			w.now = start.Add(test.after)
			s := w.snapshot()
			got := describe(migration.Plan(s, &room{left: 10}, noticed(s, 2*time.Minute, "db-1", "db-2"), settings, nil))
			clustertest.Equal(t, "actions", test.want, got)
		})
	}
}

// A replica that the same plan deletes at its last moment does not serve: the next one waits.
func TestTurnAfterADeletion(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 2).Annotations = map[string]string{spot.SurgeAnnotation: "false"}
	for name, grace := range map[string]int64{"a": 100, "b": 1} {
		w.pod(name, w.replicaSets["web-1"], "reclaimed").Spec.TerminationGracePeriodSeconds = &grace
	}
	w.sync()
	s := w.snapshot()
	requested := moves(s, migration.Interruption, w.now.Add(100*time.Second), "a", "b")
	for i := range requested {
		requested[i].Noticed = w.now.Add(-20 * time.Second)
	}
	got := describe(migration.Plan(s, &room{left: 10}, requested, settings, nil))
	if want := []string{"delete a by delete 1m40s"}; !slices.Equal(got, want) {
		t.Errorf("actions %v, want %v", got, want)
	}
}

// A move with OnlySurge is not started in another way.
func TestOnlySurge(t *testing.T) {
	for onlySurge, want := range map[bool][]string{false: {"evict db-0 by evict", "release web by surge"}, true: {"release web by surge"}} {
		w := newWorld(t)
		w.deployment("web", 1)
		w.pod("web", w.replicaSets["web-1"], "reclaimed")
		w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
		w.sync()
		s := w.snapshot()
		requested := moves(s, migration.Advisory, time.Time{}, "db-0", "web")
		for i := range requested {
			requested[i].OnlySurge = onlySurge
		}
		clustertest.Equal(t, fmt.Sprintf("OnlySurge %t: actions", onlySurge), want, describe(migration.Plan(s, &room{left: 10}, requested, settings, nil)))
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
			w := newWorld(t)
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
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: 10}, all, settings, nil)))
		})
	}
}

// The eviction of a pod that is not ready uses no PodDisruptionBudget.
func TestUnreadyPodUsesNoBudget(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 2).Annotations = map[string]string{spot.SurgeAnnotation: "false"}
	w.budget("web", 0)
	w.setReady(w.pod("web-0", w.replicaSets["web-1"], "reclaimed"), v1.ConditionFalse)
	w.pod("web-1", w.replicaSets["web-1"], "reclaimed")
	w.sync()
	s := w.snapshot()
	actions := migration.Plan(s, &room{left: 10}, noticed(s, 2*time.Minute, "web-0", "web-1"), settings, nil)
	clustertest.Equal(t, "actions", []string{"evict web-0 by evict", "evict web-1 by evict"}, describe(actions))
	for _, a := range actions {
		if a.LikelyRefused {
			t.Errorf("the eviction of %s counts as refused, want one allowed eviction of a ready pod", a.Pod.Name)
		}
	}
}
