package migration_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// ofDaemonSet is the owner of a pod that belongs to its node.
var ofDaemonSet = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: new(true)}}

// ofTaskRun is the owner of a pod whose work may not be repeated.
var ofTaskRun = []metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Controller: new(true)}}

// ofStrimzi is the owner of a pod that an operator recreates.
var ofStrimzi = []metav1.OwnerReference{{APIVersion: "core.strimzi.io/v1beta2", Kind: "StrimziPodSet", Controller: new(true)}}

var settings = migration.Settings{
	Migration: controller.Migration{
		SurgeTimeout: metav1.Duration{Duration: 2 * time.Minute}, EvictableOwners: []string{"StrimziPodSet.core.strimzi.io"},
	},
	Interruption: controller.Interruption{DeleteAtDeadline: true},
}

// TestBegin plans the first steps of moves.
func TestBegin(t *testing.T) {
	const (
		notice = 2 * time.Minute
		noTime = "its node is about to be reclaimed, and no time is left for an eviction"
		fits   = "by requests, node remaining has room for a replacement; no surge: it does not belong to a ReplicaSet"
	)
	replica := func(w *world) { w.deployment("web", 1); w.pod("web", w.replicaSets["web-1"], "reclaimed") }
	ordinal := func(w *world) { w.pod("db-0", w.statefulSet("db", 1), "reclaimed") }
	bare := func(w *world) { w.pod("tool", nil, "reclaimed") }
	step := func(w *world) { w.pod("step", nil, "reclaimed").OwnerReferences = ofTaskRun }
	for name, test := range map[string]struct {
		// given adds pods to the interrupted node.
		given func(*world)
		// left is the time to the deadline; 0 for none.
		left    time.Duration
		reason  migration.Reason
		noRoom  bool
		fails   bool
		gentle  bool
		useless string
		want    []string
		wantWhy string
	}{
		"a replica of a Deployment": {given: replica, left: notice, want: []string{"release web by surge"}, wantWhy: "by requests, node remaining has room for a replacement"},
		"one of a StatefulSet":      {given: ordinal, left: notice, want: []string{"evict db-0 by evict"}, wantWhy: fits},
		"nothing has room for it": {
			given: ordinal, left: notice, noRoom: true,
			want: []string{"stay db-0"}, wantWhy: "nothing has room for a replacement: all full; it runs until 2026-03-01T12:01:30Z",
		},
		"no room, and no interruption": {
			given: replica, reason: migration.Heal, noRoom: true,
			want: []string{"stay web"}, wantWhy: "nothing has room for a replacement: all full",
		},
		"nothing has room for it, and it can surge": {
			given: replica, left: notice, noRoom: true,
			want: []string{"release web by surge"}, wantWhy: "nothing has room for a replacement: all full; it waits for a new node",
		},
		"nothing has room for it, and a budget selects it": {
			given: func(w *world) { w.pod("db-0", w.statefulSet("db", 1), "reclaimed"); w.budget("db", 0) }, left: notice, noRoom: true,
			want:    []string{"evict db-0 by evict"},
			wantWhy: "nothing has room for a replacement: all full; it waits for a new node; no surge: it does not belong to a ReplicaSet",
		},
		"nothing has room for it, a budget selects it, and only this node matches": {
			given: func(w *world) {
				w.pod("db-0", w.statefulSet("db", 1), "reclaimed").Spec.NodeSelector = map[string]string{v1.LabelHostname: "reclaimed"}
				w.nodes["reclaimed"].Labels[v1.LabelHostname] = "reclaimed"
				w.budget("db", 0)
			}, left: notice, noRoom: true,
			want: []string{"stay db-0"}, wantWhy: "nothing has room for a replacement: all full; it runs until 2026-03-01T12:01:30Z",
		},
		"the last moment but one": {
			given: ordinal, left: 31 * time.Second, noRoom: true,
			want: []string{"stay db-0"}, wantWhy: "nothing has room for a replacement: all full; it runs until 2026-03-01T12:00:01Z",
		},
		"the last moment":                         {given: ordinal, left: 30 * time.Second, want: []string{"delete db-0 by delete 30s"}, wantWhy: noTime},
		"after the last moment, its grace is cut": {given: ordinal, left: 12500 * time.Millisecond, want: []string{"delete db-0 by delete 12s"}, wantWhy: noTime},
		"after the deadline":                      {given: ordinal, left: -time.Hour, want: []string{"delete db-0 by delete 1s"}, wantWhy: noTime},
		"a grace period of its own": {
			given: func(w *world) {
				w.pod("db-0", w.statefulSet("db", 1), "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(5))
			}, left: 5 * time.Second,
			want: []string{"delete db-0 by delete 5s"}, wantWhy: noTime,
		},
		"a grace period that no Duration can express": {
			given: func(w *world) {
				w.pod("tool", nil, "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(math.MaxInt64))
			}, left: notice,
			want: []string{"delete tool by delete 2m0s"}, wantWhy: noTime,
		},
		"a grace period that a Duration can just not express": {
			given: func(w *world) {
				w.pod("tool", nil, "reclaimed").Spec.TerminationGracePeriodSeconds = new(math.MaxInt64/int64(time.Second) + 1)
			}, left: notice,
			want: []string{"delete tool by delete 2m0s"}, wantWhy: noTime,
		},
		"none": {
			given: func(w *world) {
				w.pod("db-0", w.statefulSet("db", 1), "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(0))
			}, left: time.Second,
			want: []string{"delete db-0 by delete 1s"}, wantWhy: noTime,
		},
		"longer than the notice": {
			given: func(w *world) {
				w.deployment("web", 1)
				w.pod("web", w.replicaSets["web-1"], "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(600))
			}, left: notice,
			want: []string{"delete web by delete 2m0s"}, wantWhy: noTime,
		},
		"deletion is off":                    {given: ordinal, left: time.Second, gentle: true, want: []string{"evict db-0 by evict"}, wantWhy: "its node is about to be reclaimed"},
		"no deadline, so no deletion":        {given: ordinal, reason: migration.Heal, want: []string{"evict db-0 by evict"}, wantWhy: fits},
		"no controller: not yet":             {given: bare, left: 31 * time.Second},
		"no controller: now":                 {given: bare, left: 30 * time.Second, want: []string{"delete tool by delete 30s"}, wantWhy: noTime},
		"no controller, and no interruption": {given: bare, reason: migration.Heal},
		"of a Job that fails with its loss: not yet": {
			given: func(w *world) { w.pod("train", w.replicaSet("job", "train", 1, nil), "reclaimed") }, fails: true, left: 31 * time.Second,
		},
		"of a Job that fails with its loss: now": {
			given: func(w *world) { w.pod("train", w.replicaSet("job", "train", 1, nil), "reclaimed") }, fails: true, left: 30 * time.Second,
			want: []string{"delete train by delete 30s"}, wantWhy: noTime,
		},
		"controller of an unknown kind: not yet":             {given: step, left: 31 * time.Second},
		"controller of an unknown kind: now":                 {given: step, left: 30 * time.Second, want: []string{"delete step by delete 30s"}, wantWhy: noTime},
		"controller of an unknown kind, and no interruption": {given: step, reason: migration.Advisory},
		"controller of an unknown kind, but a budget selects it": {
			given: func(w *world) { w.pod("step", nil, "reclaimed").OwnerReferences = ofTaskRun; w.budget("step", 0) }, left: 31 * time.Second,
			want: []string{"evict step by evict"}, wantWhy: fits,
		},
		"controller of an unknown kind, selected by a budget, and no interruption": {
			given:  func(w *world) { w.pod("step", nil, "reclaimed").OwnerReferences = ofTaskRun; w.budget("step", 0) },
			reason: migration.Advisory,
		},
		"no controller, and a budget selects it": {given: func(w *world) { w.pod("tool", nil, "reclaimed"); w.budget("tool", 0) }, left: 31 * time.Second},
		"of an operator that recreates it": {
			given: func(w *world) { w.pod("kafka", nil, "reclaimed").OwnerReferences = ofStrimzi }, left: 31 * time.Second,
			want: []string{"evict kafka by evict"}, wantWhy: fits,
		},
		"of an operator that recreates it, and no interruption": {
			given:  func(w *world) { w.pod("kafka", nil, "reclaimed").OwnerReferences = ofStrimzi },
			reason: migration.Heal,
		},
		"of a ReplicaSet that an Argo Rollout controls": {
			given: func(w *world) {
				rs := w.replicaSet("web-1", "web", 1, nil)
				rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web", UID: "r", Controller: new(true)}}
				w.pod("web", rs, "reclaimed")
			}, left: 31 * time.Second,
			want: []string{"evict web by evict"}, wantWhy: "by requests, node remaining has room for a replacement; no surge: its ReplicaSet has a controller that is not a Deployment",
		},
		"of a DaemonSet": {
			given: func(w *world) {
				w.pod("agent", nil, "reclaimed").OwnerReferences = ofDaemonSet
			}, left: time.Second,
		},
		"static": {
			given: func(w *world) {
				w.pod("proxy", nil, "reclaimed").Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
			}, left: time.Second,
		},
		"heal, to a node of the right type":                {given: ordinal, reason: migration.Heal, want: []string{"evict db-0 by evict"}, wantWhy: fits},
		"back to spot, where only on-demand has room left": {given: ordinal, reason: migration.ReturnToSpot},
		"its owner's template names its node": {
			given: func(w *world) {
				set := w.statefulSet("db", 1)
				set.Spec.Template.Spec.NodeName = "reclaimed"
				w.pod("db-0", set, "reclaimed")
			}, reason: migration.Heal,
			want: []string{"stay db-0"}, wantWhy: "the template of its owner names this node",
		},
		"its move is useless": {given: replica, reason: migration.Heal, useless: "no use", want: []string{"stay web"}, wantWhy: "no use"},
		"already terminating": {given: func(w *world) { w.terminate(w.pod("db-0", w.statefulSet("db", 1), "reclaimed")) }, left: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.given(w)
			w.sync()
			s := w.snapshot()
			var deadline time.Time
			reason := test.reason
			if test.left != 0 {
				deadline, reason = w.now.Add(test.left), migration.Interruption
			}
			var requested []migration.Move
			for _, pod := range s.Pods {
				if test.fails {
					pod.Subject = &workload.Subject{Pod: decision.Pod{Workload: decision.Workload{Batch: decision.NotRetriable}}}
				}
				requested = append(requested, migration.Move{Pod: pod, Reason: reason, Deadline: deadline, Useless: test.useless})
			}
			r := &room{left: 10}
			if test.noRoom {
				r.left = 0
			}
			settings := settings
			settings.Interruption.DeleteAtDeadline = !test.gentle
			actions := migration.Plan(s, r, requested, settings, nil)
			clustertest.Equal(t, "actions", test.want, describe(actions))
			for _, a := range actions {
				if a.Why != test.wantWhy || a.Reason != reason || !a.Deadline.Equal(deadline) {
					t.Errorf("%+v, want reason %s, deadline %v, why %q", a, reason, deadline, test.wantWhy)
				}
			}
		})
	}
}

// TestUrgency checks the order in which moves reserve scarce room: no workload loses everything
// while another loses nothing. Actions have the same order, except that later pods of a workload
// are grouped.
func TestUrgency(t *testing.T) {
	w := newWorld(t)
	for app, n := range map[string]struct{ reclaimed, remaining int32 }{"all": {3, 0}, "single": {1, 0}, "most": {2, 1}, "some": {1, 3}} {
		w.deployment(app, n.reclaimed+n.remaining)
		for i := range n.reclaimed {
			w.pod(fmt.Sprintf("%s-%d", app, i), w.replicaSets[app+"-1"], "reclaimed")
		}
		for i := range n.remaining {
			w.pod(fmt.Sprintf("%s-%d-stays", app, i), w.replicaSets[app+"-1"], "remaining")
		}
	}
	w.deployment("other", 1)
	w.pod("a-heal", w.replicaSets["other-1"], "remaining")
	w.deployment("late", 1)
	w.released(w.pod("late", w.replicaSets["late-1"], "reclaimed"), time.Minute)
	w.sync()
	s := w.snapshot()
	requested := moves(s, migration.Interruption, w.now.Add(2*time.Minute), "all-0", "all-1", "all-2", "most-0", "most-1", "some-0")
	requested = append(requested, moves(s, migration.Heal, time.Time{}, "a-heal")...)
	requested = append(requested, moves(s, migration.Interruption, w.now.Add(time.Minute), "single-0")...)
	requested = append(requested, moves(s, migration.Interruption, w.now.Add(10*time.Second), "late")...)
	// A second move of the same pod: the earlier deadline counts.
	requested = append(requested, moves(s, migration.Heal, time.Time{}, "single-0")...)
	r := &room{left: 6}
	got := describe(migration.Plan(s, r, requested, settings, nil))
	want := []string{
		"delete late by delete 10s", // last moment reached
		"release single-0 by surge", // 1 of 1, earlier
		"release all-0 by surge",    // 3 of 3
		"release most-0 by surge",   // 2 of 3
		"release all-1 by surge",    // 2 of 3; by name, its room was reserved before that of most-0
		"release all-2 by surge",    // 1 of 3
		"release some-0 by surge",   // 1 of 4, no room left: its replacement waits for a new node
		"release most-1 by surge",   // 1 of 3, no room left either
		"stay a-heal",               // no deadline
	}
	clustertest.Equal(t, "actions", want, got)
}

// Actions in flight reserve room before the caches show them.
func TestRoomIsReservedOnce(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 3)
	rs := w.replicaSets["web-1"]
	w.pod("active", rs, "reclaimed")
	w.pod("new", rs, "reclaimed")
	w.released(w.pod("unreplaced", rs, "reclaimed"), time.Second)
	w.deployment("done", 1)
	w.released(w.pod("replaced", w.replicaSets["done-1"], "reclaimed"), time.Second)
	w.pod("replacement", w.replicaSets["done-1"], "")
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed").DeletionTimestamp = new(metav1.NewTime(start))
	w.pod("tool", nil, "reclaimed")
	w.sync()
	s := w.snapshot()
	progress := migration.Progress{w.pods["active"].UID: {InFlight: migration.Release}, w.pods["tool"].UID: {InFlight: migration.DeletePod}}
	r := &room{left: 10}
	deadline := w.now.Add(2 * time.Minute)
	requested := moves(s, migration.Interruption, deadline, "active", "new", "unreplaced", "replaced", "db-0", "tool")
	got := describe(migration.Plan(s, r, requested, settings, progress))
	clustertest.Equal(t, "actions", []string{"release new by surge"}, got)
	clustertest.Equal(t, "room reserved for", []string{"active", "db-0", "unreplaced", "new"}, r.taken)
}

// The annotation of a release may contain any reason. A metric label may not.
func TestReasonOfRelease(t *testing.T) {
	for written, want := range map[string]migration.Reason{
		"interruption": migration.Interruption, "heal": migration.Heal, "because": migration.Unknown, "": migration.Unknown,
	} {
		w := newWorld(t)
		w.deployment("web", 0)
		pod := w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), time.Second)
		text := pod.Annotations[spot.ReleasedAnnotation]
		pod.Annotations[spot.ReleasedAnnotation] = strings.Replace(text, `"heal"`, strconv.Quote(written), 1)
		w.sync()
		if got := migration.Plan(w.snapshot(), &room{}, nil, settings, nil); len(got) != 1 || got[0].Reason != want {
			t.Errorf("%q: %+v, want reason %s", written, got, want)
		}
	}
}

// longReady gives the pod a replacement that must be ready for 2 min.
func longReady(w *world) {
	w.replicaSets["web-1"].Spec.MinReadySeconds = 120
	w.pod("new", w.replicaSets["web-1"], "remaining")
}

// unreadySibling adds a sibling that has never been ready since its creation this long ago.
func unreadySibling(w *world, ago time.Duration) {
	pod := w.pod("ill", w.replicaSets["web-1"], "remaining")
	w.setReady(pod, v1.ConditionFalse)
	created := metav1.NewTime(w.now.Add(-ago))
	pod.CreationTimestamp, pod.Status.Conditions[0].LastTransitionTime = created, created
}

// unready is how long a released pod may be unready before it is evicted without a replacement.
const unready = 30 * time.Second

// notReady makes the released pod unready since this long ago.
func notReady(w *world, ago time.Duration) {
	w.setReady(w.pods["old"], v1.ConditionFalse)
	w.pods["old"].Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.now.Add(-ago))
}

// giveBack has the effect of a Restore.
func giveBack(w *world) { w.pods["old"].Labels[hashKey] = "web-1" }

// TestFinish plans the next steps of released pods, also of pods that no move concerns any more.
func TestFinish(t *testing.T) {
	// Another ReplicaSet of the Deployment replaces web-1, with pods on these nodes.
	succeed := func(w *world, nodes ...string) {
		delete(w.replicaSets, "web-1")
		rs := w.replicaSet("web-2", "web", *w.deployments["web"].Spec.Replicas, w.deployments["web"])
		for i, node := range nodes {
			w.pod(fmt.Sprintf("new-%d", i), rs, node)
		}
	}
	const fresh, late = time.Second, 2 * time.Minute
	const none = -1
	replaced := func(w *world) { w.pod("new", w.replicaSets["web-1"], "remaining") }
	evict, restore := []string{"evict old by surge"}, []string{"restore old by surge"}
	deletion, orphan := []string{"delete old by delete 30s"}, []string{"delete old by surge"}
	for name, test := range map[string]struct {
		// The pod "old" of Deployment web with n replicas (0: 1) was released this long ago (0:
		// fresh). given may change the world.
		n     int32
		ago   time.Duration
		given func(*world)
		// left is the time to the deadline of its move; 0 for no move.
		left     time.Duration
		progress map[string]migration.Kind
		gentle   bool
		want     []string
	}{
		"no replacement yet":             {},
		"a replacement, not running yet": {given: func(w *world) { w.pod("new", w.replicaSets["web-1"], "") }},
		"a replacement, ready":           {given: replaced, want: evict},
		"a replacement, ready but not for long enough": {
			given: func(w *world) {
				w.replicaSets["web-1"].Spec.MinReadySeconds = 10
				w.pod("new", w.replicaSets["web-1"], "remaining")
				w.now = w.now.Add(9 * time.Second)
			},
		},
		"a replacement, ready for long enough": {
			given: func(w *world) {
				w.replicaSets["web-1"].Spec.MinReadySeconds = 10
				w.pod("new", w.replicaSets["web-1"], "remaining")
				w.now = w.now.Add(10 * time.Second)
			},
			want: evict,
		},
		"a replacement, ready by a clock that is ahead": {
			given: func(w *world) {
				w.pod("new", w.replicaSets["web-1"], "remaining")
				w.now = w.now.Add(-time.Second)
			},
			want: evict,
		},
		"a replacement on a node that vanished": {
			given: func(w *world) {
				w.pod("new", w.replicaSets["web-1"], "remaining")
				delete(w.nodes, "remaining")
			},
		},
		"a replacement that is terminating": {
			given: func(w *world) {
				w.pod("new", w.replicaSets["web-1"], "remaining").DeletionTimestamp = new(metav1.NewTime(start))
			},
		},
		"a replacement that is about to be removed": {given: replaced, progress: map[string]migration.Kind{"new": migration.EvictPod}},
		"one replacement for two: the first released is evicted": {
			n: 2, given: func(w *world) {
				w.released(w.pod("an-old", w.replicaSets["web-1"], "reclaimed"), 0)
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
			want: evict,
		},
		"one replacement for two, and one about to be removed": {
			n: 2, given: func(w *world) {
				w.released(w.pod("an-old", w.replicaSets["web-1"], "reclaimed"), 0)
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
			progress: map[string]migration.Kind{"an-old": migration.EvictPod},
		},
		"a sibling is not ready: the old one is needed": {
			n: 3, given: func(w *world) {
				w.pod("new", w.replicaSets["web-1"], "remaining")
				w.pod("other", w.replicaSets["web-1"], "remaining")
				w.setReady(w.pod("ill", w.replicaSets["web-1"], "remaining"), v1.ConditionFalse)
			},
		},
		"a sibling has long been unready": {
			n: 2, given: func(w *world) { unreadySibling(w, late+fresh); w.pod("new", w.replicaSets["web-1"], "remaining") },
			want: evict,
		},
		"a sibling has long found no node": {
			n: 2, given: func(w *world) {
				w.pod("waits", w.replicaSets["web-1"], "").CreationTimestamp = metav1.NewTime(w.now.Add(-late - fresh))
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
			want: evict,
		},
		"a sibling has long been unready, and so has the replacement": {
			n: 2, ago: late, left: time.Hour, given: func(w *world) {
				unreadySibling(w, 2*late)
				w.setReady(w.pod("new", w.replicaSets["web-1"], "remaining"), v1.ConditionFalse)
			},
		},
		"a sibling has long been unready, and one of two has a replacement": {
			n: 3, given: func(w *world) {
				unreadySibling(w, late+fresh)
				w.released(w.pod("an-old", w.replicaSets["web-1"], "reclaimed"), 0)
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
			want: evict,
		},
		"a sibling has long been unready, and two have one replacement, the first in flight": {
			n: 3, given: func(w *world) {
				unreadySibling(w, late+fresh)
				w.released(w.pod("an-old", w.replicaSets["web-1"], "reclaimed"), 0)
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
			progress: map[string]migration.Kind{"old": migration.EvictPod},
		},
		"a sibling is unready, but might replace another that was released before": {
			n: 2, given: func(w *world) { unreadySibling(w, late); w.pod("new", w.replicaSets["web-1"], "remaining") },
		},
		"a sibling has long been unready, but perhaps replaces one that still waits": {
			n: 2, ago: 3 * late, left: time.Hour, given: func(w *world) {
				unreadySibling(w, late+fresh)
				w.released(w.pod("an-old", w.replicaSets["web-1"], "reclaimed"), fresh)
			},
		},
		"a sibling became unready after the release": {
			n: 2, given: func(w *world) {
				unreadySibling(w, 2*late)
				w.setReady(w.pods["ill"], v1.ConditionFalse)
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
		},
		"a sibling's node vanished": {
			n: 2, given: func(w *world) {
				unreadySibling(w, 2*late)
				w.pods["ill"].Spec.NodeName = "gone"
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
		},
		"scaled down meanwhile": {
			n: 2, given: func(w *world) {
				w.pod("new", w.replicaSets["web-1"], "remaining")
				w.replicaSets["web-1"].Spec.Replicas = new(int32(1))
			},
			want: evict,
		},
		"not ready itself":                     {given: func(w *world) { notReady(w, unready-time.Second) }},
		"not ready itself for long":            {given: func(w *world) { notReady(w, unready) }, want: evict},
		"not ready itself, a replacement is":   {given: func(w *world) { notReady(w, 0); w.pod("new", w.replicaSets["web-1"], "remaining") }, want: evict},
		"not ready itself, at the last moment": {left: 30 * time.Second, given: func(w *world) { notReady(w, 0) }, want: deletion},
		"not ready itself, and one replacement for two: the other one serves": {
			n: 2, given: func(w *world) {
				notReady(w, 0)
				w.released(w.pod("an-old", w.replicaSets["web-1"], "reclaimed"), fresh+time.Second)
				w.pod("new", w.replicaSets["web-1"], "remaining")
			},
			want: evict,
		},
		"its node vanished":      {ago: late, given: func(w *world) { delete(w.nodes, "reclaimed") }, want: evict},
		"no replacement in time": {ago: late, given: func(w *world) { w.pod("new", w.replicaSets["web-1"], "") }, want: restore},
		"no replacement in time, but it has to be ready for long: not yet": {ago: 2*late - 1, given: longReady},
		"no replacement in time, although it has to be ready for long":     {ago: 2 * late, given: longReady, want: restore},
		"no replacement in time, but its node is reclaimed":                {ago: late, left: time.Minute, given: func(w *world) { w.pod("new", w.replicaSets["web-1"], "") }},
		"the last moment":                      {ago: late, left: 30 * time.Second, want: deletion},
		"the last moment, and deletion is off": {ago: late, left: 30 * time.Second, gentle: true, want: []string{"evict old by evict"}},
		"its ReplicaSet is gone":               {given: func(w *world) { delete(w.replicaSets, "web-1") }, want: orphan},
		"its Deployment is gone":               {given: func(w *world) { delete(w.deployments, "web") }, want: orphan},
		"handed over, its ReplicaSet is gone":  {given: func(w *world) { handOver(w); delete(w.replicaSets, "web-1") }},
		"handed over, its ReplicaSet is gone, the last moment": {
			left: 30 * time.Second, given: func(w *world) { handOver(w); delete(w.replicaSets, "web-1") },
			want: deletion,
		},
		"handed over, its ReplicaSet is gone, and another serves":         {n: 2, given: func(w *world) { handOver(w); succeed(w, "remaining", "remaining") }, want: evict},
		"handed over, its ReplicaSet is gone, and another serves too few": {n: 2, given: func(w *world) { handOver(w); succeed(w, "remaining") }},
		"handed over, its ReplicaSet is gone, and another serves on the reclaimed node": {
			n: 2, given: func(w *world) { handOver(w); succeed(w, "remaining", "reclaimed") },
		},
		"handed over, its ReplicaSet is gone, and another is not available yet": {
			given: func(w *world) {
				handOver(w)
				succeed(w, "remaining")
				w.replicaSets["web-2"].Spec.MinReadySeconds = 10
			},
		},
		"handed over, its ReplicaSet and its node are gone": {
			given: func(w *world) { handOver(w); delete(w.replicaSets, "web-1"); delete(w.nodes, "reclaimed") },
			want:  evict,
		},
		"handed over, its ReplicaSet is gone, and its Deployment is scaled to 0": {
			n: none, given: func(w *world) { handOver(w); delete(w.replicaSets, "web-1") },
			want: orphan,
		},
		"handed over, its ReplicaSet is gone, and its Deployment is being deleted": {
			given: func(w *world) {
				handOver(w)
				delete(w.replicaSets, "web-1")
				w.deployments["web"].DeletionTimestamp = new(metav1.NewTime(start))
			},
			want: orphan,
		},
		"handed over, another client has restored its label": {given: func(w *world) { handOver(w); w.pods["old"].Labels[hashKey] = "web-1" }, want: restore},
		"handed over, another client has removed its label":  {given: func(w *world) { handOver(w); delete(w.pods["old"].Labels, hashKey) }, want: restore},
		"another client has removed its label":               {given: func(w *world) { delete(w.pods["old"].Labels, hashKey) }, want: restore},
		"handed over, another client has removed its annotation": {
			given: func(w *world) {
				handOver(w)
				old, rs := w.pods["old"], w.replicaSets["web-1"]
				old.Annotations = nil
				rs.Spec.Selector.MatchLabels[hashKey] = "1" // the last part of its name
				old.OwnerReferences = append(slices.Clone(old.OwnerReferences), metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID})
			},
			want: restore,
		},
		"handed over, its label restored, its ReplicaSet is gone": {
			given: func(w *world) { handOver(w); w.pods["old"].Labels[hashKey] = "web-1"; delete(w.replicaSets, "web-1") },
		},
		"handed over, its label restored, its ReplicaSet is gone, and another serves": {
			given: func(w *world) {
				handOver(w)
				w.pods["old"].Labels[hashKey] = "web-1"
				succeed(w, "remaining")
			},
			want: evict,
		},
		"handed over, a replacement is ready":  {given: func(w *world) { handOver(w); w.pod("new", w.replicaSets["web-1"], "remaining") }, want: evict},
		"handed over, the last moment":         {ago: late, left: 30 * time.Second, given: handOver, want: deletion},
		"scaled to 0":                          {n: none, want: orphan},
		"its eviction is refused for long":     {ago: 2*late - 1, given: replaced, want: evict},
		"its eviction is refused for too long": {ago: 2 * late, given: replaced, want: restore},
		"its eviction is refused for long, and its replacement had to be ready for long before": {
			ago: 2*late - 1, given: func(w *world) { longReady(w); w.now = w.now.Add(late) },
			want: evict,
		},
		"its eviction is refused for too long, and its replacement had to be ready for long before": {
			ago: 2 * late, given: func(w *world) { longReady(w); w.now = w.now.Add(late) },
			want: restore,
		},
		"its eviction is refused for too long, but its node is reclaimed": {ago: 2 * late, left: time.Minute, given: replaced, want: evict},
		"rolled out": {
			given: func(w *world) {
				w.replicaSets["web-1"].Spec.Replicas = new(int32(0))
				w.replicaSet("web-2", "web", 1, w.deployments["web"])
			},
			want: evict,
		},
		"given back":                              {given: giveBack},
		"given back, the last moment":             {left: 30 * time.Second, given: giveBack, want: deletion},
		"given back and adopted":                  {given: func(w *world) { giveBack(w); w.control() }, want: []string{"forget old by surge"}},
		"given back to a ReplicaSet that is gone": {given: func(w *world) { giveBack(w); delete(w.replicaSets, "web-1") }, want: orphan},
		"adopted by a ReplicaSet that is gone": {
			given: func(w *world) { giveBack(w); w.control(); delete(w.replicaSets, "web-1") },
			want:  []string{"forget old by surge"},
		},
		"given back, others wait": {
			n: 2, given: func(w *world) {
				giveBack(w)
				w.pod("new", w.replicaSets["web-1"], "remaining")
				w.released(w.pod("an-old", w.replicaSets["web-1"], "reclaimed"), 0)
			},
		},
		"in flight": {given: replaced, progress: map[string]migration.Kind{"old": migration.EvictPod}},
		"leaving": {
			given: func(w *world) {
				w.pod("new", w.replicaSets["web-1"], "remaining")
				w.pods["old"].DeletionTimestamp = new(metav1.NewTime(start))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", max(cmp.Or(test.n, 1), 0))
			w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), cmp.Or(test.ago, fresh))
			if test.given != nil {
				test.given(w)
			}
			w.sync()
			s := w.snapshot()
			var requested []migration.Move
			if test.left != 0 {
				requested = moves(s, migration.Interruption, w.now.Add(test.left), "old")
			}
			progress := migration.Progress{}
			for name, kind := range test.progress {
				progress[w.pods[name].UID] = migration.PodProgress{InFlight: kind}
			}
			settings := settings
			settings.Interruption.DeleteAtDeadline = !test.gentle
			actions := migration.Plan(s, &room{left: 10}, requested, settings, progress)
			clustertest.Equal(t, "actions", test.want, describe(actions))
			for _, a := range actions {
				if wantOrphan := slices.Equal(test.want, orphan); a.Orphan != wantOrphan || a.Why == "" {
					t.Errorf("%+v, want orphan %t, and why", a, wantOrphan)
				}
			}
		})
	}
}
