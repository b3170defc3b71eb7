package migration_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// TestUnconfirmed plans moves off a node whose reclaim nothing confirms. The same moves when the
// reclaim is confirmed are beside them.
func TestUnconfirmed(t *testing.T) {
	const notice = 2 * time.Minute
	web := func(w *world) string {
		w.deployment("web", 1)
		w.pod("web", w.replicaSets["web-1"], "reclaimed")
		return "web"
	}
	released := func(w *world) string {
		w.deployment("web", 1)
		w.releasedFor(w.pod("web", w.replicaSets["web-1"], "reclaimed"), migration.Interruption, 0)
		return "web"
	}
	for name, test := range map[string]struct {
		pod    func(*world) string
		after  time.Duration
		noRoom bool
		want   []string
		// wantConfirmed are the actions if the reclaim is confirmed.
		wantConfirmed []string
	}{
		"can surge":                     {web, 0, false, []string{"release web by surge"}, []string{"release web by surge"}},
		"can surge, without room":       {web, notice / 2, true, []string{"release web by surge"}, []string{"release web by surge"}},
		"can surge, after its deadline": {web, notice, false, []string{"release web by surge"}, []string{"delete web by delete 1s"}},
		"can surge, with a long grace period": {func(w *world) string {
			w.grace["web"] = int64(notice.Seconds())
			return web(w)
		}, 0, false, []string{"release web by surge"}, []string{"release web by surge"}},
		"released":                          {released, 0, false, nil, nil},
		"released, after its deadline":      {released, notice, false, nil, []string{"delete web by delete 1s"}},
		"released, long after its deadline": {released, 24 * time.Hour, false, nil, []string{"delete web by delete 1s"}},
		"released, its replacement is ready": {func(w *world) string {
			name := released(w)
			w.pod("replacement", w.replicaSets["web-1"], "remaining")
			return name
		}, 0, false, []string{"evict web by surge"}, []string{"evict web by surge"}},
		"released, its ReplicaSet is scaled to 0": {func(w *world) string {
			name := released(w)
			w.deployments["web"].Spec.Replicas, w.replicaSets["web-1"].Spec.Replicas = new(int32(0)), new(int32(0))
			return name
		}, 0, false, []string{"delete web by surge"}, []string{"delete web by surge"}},
		"cannot surge": {func(w *world) string { return w.pod("set-0", w.statefulSet("set", 1), "reclaimed").Name }, 0, false,
			[]string{"stay set-0"}, []string{"evict set-0 by evict"}},
		"cannot surge, after its deadline": {func(w *world) string { return w.pod("set-0", w.statefulSet("set", 1), "reclaimed").Name }, notice, false,
			[]string{"stay set-0"}, []string{"delete set-0 by delete 1s"}},
		"not ready": {func(w *world) string {
			name := web(w)
			w.setReady(w.pods[name], v1.ConditionFalse)
			return name
		}, 0, false, []string{"stay web"}, []string{"evict web by evict"}},
		"without a controller, after its deadline": {func(w *world) string { return w.pod("tool", nil, "reclaimed").Name }, notice, false,
			nil, []string{"delete tool by delete 1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := test.pod(w)
			w.sync()
			s := w.snapshot()
			s.Now = start.Add(test.after)
			for unconfirmed, want := range map[bool][]string{true: test.want, false: test.wantConfirmed} {
				all := noticed(s, notice, pod)
				all[0].Unconfirmed = unconfirmed
				space := &room{left: 1}
				if test.noRoom {
					space.left = 0
				}
				actions := migration.Plan(s, space, all, settings, nil)
				clustertest.Equal(t, fmt.Sprintf("actions, unconfirmed: %t", unconfirmed), want, describe(actions))
				for _, a := range actions {
					if unconfirmed && !a.LastMoment.IsZero() {
						t.Errorf("the last moment is %s, want none", a.LastMoment)
					}
				}
				if next := migration.NextLastMoment(s, all, settings); unconfirmed && !next.IsZero() {
					t.Errorf("the next last moment is %s, want none", next)
				}
			}
		})
	}
}

// Unconfirmed moves do not need the client's rate limit, so they do not make other deletions
// earlier.
func TestUnconfirmedNeedNoRequests(t *testing.T) {
	w := newWorld(t)
	names := draining(w, func(n int32) func() *v1.Pod {
		set, i := w.statefulSet("db", n), 0
		return func() *v1.Pod { i++; return w.pod(fmt.Sprintf("db-%d", i), set, "reclaimed") }
	}, 10, time.Second)
	w.sync()
	s := w.snapshot()
	limited := settings
	limited.RequestsPerSecond = 2
	all := noticed(s, time.Minute, names...)
	for i := range all[1:] {
		all[i+1].Unconfirmed = true
	}
	if got, want := migration.NextLastMoment(s, all, limited), start.Add(59*time.Second); !got.Equal(want) {
		t.Errorf("the last moment is %s, want %s", got, want)
	}
}

// TestAnyUnconfirmedMove follows a Deployment and a StatefulSet on a node whose reclaim is
// announced, confirmed and cleared at random moments, past its deadline. Leaders change. While the
// reclaim is unconfirmed:
//
//   - No pod is deleted.
//   - Only released pods are evicted, and only if as many others of the Deployment are ready as it
//     wants.
func TestAnyUnconfirmedMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		replicas := rapid.Int32Range(1, 4).Draw(t, "replicas")
		w.deployment("web", replicas)
		set := w.statefulSet("set", 2)
		add := func() {
			for i := range replicas {
				if name := fmt.Sprintf("web-1-%d", i); w.pods[name] == nil {
					w.pod(name, w.replicaSets["web-1"], "reclaimed")
				}
			}
			for i := range 2 {
				if name := fmt.Sprintf("set-%d", i); w.pods[name] == nil {
					w.pod(name, set, "reclaimed")
				}
			}
		}
		add()
		w.grace["web"] = rapid.SampledFrom([]int64{1, 30, 120}).Draw(t, "grace")
		b := newBench(w, false)
		var noticed, deadline time.Time
		broken := ""
		w.mayDelete = func(pod *v1.Pod) {
			if b.unconfirmed {
				broken = pod.Name + " was deleted"
			}
		}
		w.mayEvict = func(pod *v1.Pod) {
			ready := 0
			for _, other := range w.pods {
				if other.Labels["app"] == pod.Labels["app"] && other.Name != pod.Name && isReady(other) && other.DeletionTimestamp == nil {
					ready++
				}
			}
			if _, _, released := releasedFrom(pod); b.unconfirmed && (!released || ready < int(replicas)) {
				broken = fmt.Sprintf("%s was evicted, released: %t, with %d others", pod.Name, released, ready)
			}
		}
		place := func() string {
			return rapid.SampledFrom([]string{"remaining", "remaining", "reclaimed"}).Draw(t, "node")
		}
		second := func() {
			if b.second(noticed, deadline, place); broken != "" {
				t.Fatal(broken)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"second": func(*rapid.T) { second() },
			"seconds": func(t *rapid.T) {
				for range rapid.IntRange(1, 60).Draw(t, "seconds") {
					second()
				}
			},
			"notice": func(*rapid.T) {
				if w.calm = false; deadline.IsZero() {
					noticed, deadline, b.unconfirmed = w.now, w.now.Add(time.Minute), true
				}
			},
			"confirmed":  func(*rapid.T) { b.unconfirmed = false },
			"all clear":  func(*rapid.T) { w.calm, deadline, b.unconfirmed = true, time.Time{}, false },
			"new leader": func(*rapid.T) { unconfirmed := b.unconfirmed; b = newBench(w, false); b.unconfirmed = unconfirmed },
			"new pods":   func(*rapid.T) { add() },
		})
		// The alarm was false, and everything is as before.
		w.calm, deadline, b.unconfirmed = true, time.Time{}, false
		for range 600 {
			b.second(noticed, deadline, func() string { return "remaining" })
		}
		for name, pod := range maps.All(w.pods) {
			if _, _, released := releasedFrom(pod); released {
				t.Fatalf("%s is still released", name)
			}
		}
	})
}

// When the signal ends after the timeout of the replacement, the released pod waits for its
// replacement for another timeout: until then the scheduler may not have had any room.
func TestReleasedPodWaitsAfterClearedSignal(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.pod("old", w.replicaSets["web-1"], "reclaimed")
	b := newBench(w, false)
	b.unconfirmed = true
	seconds := func(n int, deadline time.Time) {
		for range n {
			b.second(start, deadline, func() string { return "remaining" })
			for name, pod := range w.pods {
				if name != "old" {
					w.setReady(pod, v1.ConditionFalse)
				}
			}
		}
	}
	isReleased := func() bool {
		_, _, released := releasedFrom(w.pods["old"])
		return released
	}
	seconds(3700, start.Add(time.Minute)) // longer than departures are remembered
	if !isReleased() {
		t.Fatal("the pod is not released")
	}
	seconds(1, time.Time{}) // the taint of the controller is still on the node
	w.calm = true
	seconds(110, time.Time{})
	if !isReleased() {
		t.Error("the pod is restored before the timeout")
	}
	seconds(20, time.Time{})
	if isReleased() {
		t.Error("the pod is still released after the timeout")
	}
}
