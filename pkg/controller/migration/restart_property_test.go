package migration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// errKilled is the error of a request of a killed controller.
var errKilled = errors.New("killed")

// TestAnyInterruption moves the pods of Deployments through random histories. Caches lag, and
// requests and answers are lost. The controller is killed between any two requests and started
// again. Workloads are scaled, rolled out and deleted meanwhile. The test checks:
//
//   - No pod is deleted before its last moment.
//   - No more evictions are estimated as allowed than a PodDisruptionBudget allows.
//   - If grace periods use up the whole notice, the last serving replica of several is neither
//     deleted nor evicted.
//   - No released pod is evicted before its replacement serves, unless it has been unready for
//     30 s.
//   - In the end no pod is released, and no replica is missing, extra or orphaned.
func TestAnyInterruption(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		apps := []string{"web", "shop"}
		for _, app := range apps {
			n := rapid.Int32Range(1, 3).Draw(t, app)
			d := w.deployment(app, n)
			if rapid.Bool().Draw(t, "no surge") {
				d.Annotations = map[string]string{spot.SurgeAnnotation: "false"}
			}
			if rapid.Bool().Draw(t, "budget") {
				w.budget(app, rapid.Int32Range(1, n).Draw(t, "least"))
			}
			grace := rapid.SampledFrom([]int64{30, 120, 300}).Draw(t, "grace")
			w.grace[app] = grace
			for i := range n {
				w.pod(fmt.Sprintf("%s-1-%d", app, i), w.replicaSets[app+"-1"], rapid.SampledFrom([]string{"reclaimed", "remaining"}).Draw(t, "node"))
			}
		}
		w.sync()
		b := newBench(w, false)
		var noticed, deadline time.Time
		healing := map[string]bool{}
		with, requires := settings, decision.Unassigned
		if rapid.Bool().Draw(t, "autoscaler mode") {
			requires = decision.AssignedOnDemand
			with.ProvisionFor, with.NodeStartup = []migration.Reason{migration.Heal}, 3*time.Minute
		}
		requested := func(s *snapshot.Snapshot) []migration.Move {
			var all []migration.Move
			for _, pod := range s.Pods {
				switch {
				case !deadline.IsZero() && pod.Spec.NodeName == "reclaimed":
					all = append(all, migration.Move{Pod: pod, Reason: migration.Interruption, Deadline: deadline, Noticed: noticed})
				case healing[pod.Name] && pod.Release == nil:
					all = append(all, migration.Move{Pod: pod, Reason: migration.Heal, Requires: requires})
				}
			}
			return all
		}
		broken := "" // set on goroutines of the executor, where a test must not end
		round := func() {
			s := w.snapshot()
			actions := migration.Plan(s, &room{left: rapid.IntRange(0, 2).Draw(t, "room")}, requested(s), with, b.executor.Observe(s))
			for _, a := range actions {
				if a.WithoutRoom && a.Deadline.IsZero() && (a.Kind != migration.Release || requires == decision.Unassigned) {
					t.Fatalf("%s of %s without room for a replacement, and without a deadline", a.Kind, a.Pod.Name)
				}
			}
			likely := map[types.UID]int32{}
			for _, a := range actions {
				if a.Kind == migration.EvictPod && !a.LikelyRefused && isReady(a.Pod.Pod) {
					likely[a.DisruptionBudget]++
				}
			}
			for _, budget := range w.seen.budgets {
				if allowed := budget.Status.DisruptionsAllowed; likely[budget.UID] > allowed {
					t.Fatalf("%d evictions are estimated as allowed by a PodDisruptionBudget that allows %d: %v", likely[budget.UID], allowed, describe(actions))
				}
			}
			b.executor.Do(quiet, actions)
			b.executor.Wait()
			if broken != "" {
				t.Fatal(broken)
			}
		}
		// saves reports whether a replica serves besides the pod, or the pod may be the last one.
		saves := func(pod *v1.Pod) bool {
			d, reclaimed := w.seen.deployments[pod.Labels["app"]], !deadline.IsZero() && pod.Spec.NodeName == "reclaimed"
			if d == nil || *d.Spec.Replicas < 2 || !reclaimed || !w.now.Add(time.Second).Before(deadline) || w.removed[pod.Name] ||
				time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second < deadline.Sub(noticed) {
				return true
			}
			// After this time the executor no longer expects the caches to show its actions.
			forgotten := w.now.Sub(w.synced) >= 30*time.Second
			for name, sibling := range w.seen.pods {
				if name != pod.Name && sibling.Labels["app"] == pod.Labels["app"] && isReady(sibling) && sibling.DeletionTimestamp == nil && (!w.removed[name] || forgotten) {
					return true
				}
			}
			return false
		}
		w.mayDelete = func(pod *v1.Pod) {
			rs := w.replicaSets[pod.Labels["app"]+"-1"]
			grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
			last := !deadline.IsZero() && !w.now.Add(grace).Before(deadline) && pod.Spec.NodeName == "reclaimed"
			if rs != nil && *rs.Spec.Replicas > 0 && !saves(pod) {
				broken = fmt.Sprintf("%s was deleted at %s, deadline %s, although no other replica serves", pod.Name, w.now, deadline)
			}
			if rs != nil && *rs.Spec.Replicas > 0 && !last {
				broken = fmt.Sprintf("%s was deleted at %s, deadline %s, although %s wants %d", pod.Name, w.now, deadline, rs.Name, *rs.Spec.Replicas)
			}
		}
		w.mayEvict = func(pod *v1.Pod) {
			seen := w.seen.pods[pod.Name]
			from, at, waits := releasedFrom(seen)
			rs := w.seen.replicaSets[from]
			if w.removed[pod.Name] {
				return // already terminating: after a long cache lag it is requested again
			}
			if !waits && isReady(seen) && !saves(pod) {
				broken = fmt.Sprintf("%s was evicted at %s, deadline %s, although no other replica serves", pod.Name, w.now, deadline)
			}
			if !waits || rs == nil || *rs.Spec.Replicas == 0 {
				return
			}
			serving, ill := 0, 0
			if !isReady(seen) {
				if w.now.Sub(seen.Status.Conditions[0].LastTransitionTime.Time) >= 30*time.Second {
					return
				}
				serving++ // no fewer pods serve without it
			}
			for name, sibling := range w.seen.pods {
				of, _, released := releasedFrom(sibling)
				counts := released && of == from || !released && selects(rs, sibling)
				// The eviction of a pod that is not ready requires a replacement that serves, but
				// not that the other released pods serve.
				serves := isReady(sibling) || released && !isReady(seen)
				if counts && serves && sibling.DeletionTimestamp == nil && !w.removed[name] {
					serving++
				}
				if !released && selects(rs, sibling) && !isReady(sibling) && !sibling.CreationTimestamp.Add(settings.Migration.SurgeTimeout.Duration).After(at) {
					ill++
				}
			}
			if serving+ill <= int(*rs.Spec.Replicas) {
				broken = fmt.Sprintf("%s was evicted although only %d serve of %d (%d unready)", pod.Name, serving, *rs.Spec.Replicas, ill)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"control":       func(*rapid.T) { w.control() },
			"start pods":    func(*rapid.T) { w.startPods() },
			"end pods":      func(*rapid.T) { w.endPods() },
			"sync caches":   func(*rapid.T) { w.sync() },
			"round":         func(*rapid.T) { round() },
			"another round": func(*rapid.T) { w.sync(); round() },
			"wait": func(t *rapid.T) {
				b.pass(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
			},
			"round, and killed in it": func(t *rapid.T) {
				left, doing := rapid.IntRange(0, 4).Draw(t, "requests"), rapid.Bool().Draw(t, "done, but not known")
				w.fail = func(string, string, string) (error, bool) {
					if left--; left < 0 {
						return errKilled, left < -1 || !doing
					}
					return nil, false
				}
				round()
				w.fail = nil
				w.sync() // a starting controller lists all objects
				b = newBench(w, false)
			},
			"round, and an answer is lost": func(t *rapid.T) {
				left := rapid.IntRange(0, 4).Draw(t, "requests")
				w.fail = func(string, string, string) (error, bool) {
					if left--; left == -1 {
						return context.DeadlineExceeded, false
					}
					return nil, false
				}
				round()
				w.fail = nil
			},
			"notice": func(*rapid.T) { noticed, deadline = w.now, w.now.Add(2*time.Minute) },
			"all clear": func(*rapid.T) {
				if deadline.After(w.now) {
					deadline = time.Time{}
				}
			},
			"heal": func(t *rapid.T) {
				if len(w.pods) > 0 {
					healing[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")] = true
				}
			},
			"heals no more": func(*rapid.T) { clear(healing) },
			"pod fails": func(t *rapid.T) {
				if len(w.pods) > 0 {
					w.setReady(w.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")], v1.ConditionFalse)
				}
			},
			"pod deleted by hand": func(t *rapid.T) {
				if len(w.pods) > 0 {
					w.terminate(w.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")])
				}
			},
			"scale": func(t *rapid.T) {
				app := rapid.SampledFrom(apps).Draw(t, "app")
				if d, ok := w.deployments[app]; ok {
					n := rapid.Int32Range(0, 3).Draw(t, "replicas")
					d.Spec.Replicas = &n
					for _, number := range []string{"-2", "-1"} {
						if rs, ok := w.replicaSets[app+number]; ok {
							rs.Spec.Replicas = &n
							break
						}
					}
				}
			},
			"roll out": func(t *rapid.T) {
				app := rapid.SampledFrom(apps).Draw(t, "app")
				if d, ok := w.deployments[app]; ok && w.replicaSets[app+"-2"] == nil {
					w.replicaSet(app+"-2", app, *d.Spec.Replicas, d)
					w.replicaSets[app+"-1"].Spec.Replicas = new(int32(0))
				}
			},
			"delete": func(t *rapid.T) {
				app := rapid.SampledFrom(apps).Draw(t, "app")
				delete(w.deployments, app)
				delete(w.replicaSets, app+"-1")
				delete(w.replicaSets, app+"-2")
			},
		})

		// In the end either pods can start, or none can. Then pods that were released without a
		// deadline are restored.
		starts := rapid.Bool().Draw(t, "pods start")
		for range 40 {
			w.sync()
			round()
			w.control()
			w.endPods()
			if starts {
				w.startPods()
			}
			for _, pod := range w.pods {
				if starts && !isReady(pod) {
					w.setReady(pod, v1.ConditionTrue)
				}
			}
			b.pass(20 * time.Second)
			clear(healing)
		}
		owned := map[string]int{}
		for _, pod := range w.pods {
			if _, ok := pod.Annotations[spot.ReleasedAnnotation]; ok {
				t.Fatalf("%s is still released: %v", pod.Name, pod.Annotations)
			}
			owner := metav1.GetControllerOf(pod)
			if owner == nil {
				t.Fatalf("%s has no owner", pod.Name)
			}
			owned[owner.Name]++
		}
		for name, rs := range w.replicaSets {
			if owned[name] != int(*rs.Spec.Replicas) {
				t.Fatalf("%s has %d pods, want %d", name, owned[name], *rs.Spec.Replicas)
			}
			delete(owned, name)
		}
		if len(owned) > 0 {
			t.Fatalf("pods of ReplicaSets that are gone: %v", owned)
		}
	})
}

// releasedFrom returns the name of the ReplicaSet that a pod was released from, and the time of the
// release.
func releasedFrom(pod *v1.Pod) (from string, at time.Time, ok bool) {
	var release snapshot.Release
	if pod == nil || json.Unmarshal([]byte(pod.Annotations[spot.ReleasedAnnotation]), &release) != nil {
		return "", time.Time{}, false
	}
	return release.ReplicaSet, release.At, true
}
