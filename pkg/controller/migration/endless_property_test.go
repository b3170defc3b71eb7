package migration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// TestAnyUselessMove follows Deployments whose replacements are placed anywhere: on nodes that
// remain, on the node that is reclaimed again and again, and on a cordoned one. Owners are deleted
// and created again without their pods, PodDisruptionBudgets refuse evictions, and signals are set
// and cleared. The test checks:
//
//   - Within an hour at most two moves for each replica, and at least ten, start off one node.
//   - No ready pod whose Deployment wants replicas is deleted before its last moment.
//   - No PodDisruptionBudget is broken before the last moment.
func TestAnyUselessMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.node("cordoned").Spec.Unschedulable = true
		apps := []string{"web", "shop"}
		for _, app := range apps {
			n := rapid.Int32Range(1, 3).Draw(t, app)
			d := w.deployment(app, n)
			if rapid.Bool().Draw(t, "recreate") {
				d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
			}
			w.grace[app] = rapid.SampledFrom([]int64{1, 30, 120}).Draw(t, "grace")
			for i := range n {
				w.pod(fmt.Sprintf("%s-1-%d", app, i), w.replicaSets[app+"-1"], "reclaimed")
			}
		}
		b := newBench(w, false)
		var noticed, deadline time.Time
		starts := map[string][]time.Time{}
		broken := ""
		started := func(pod *v1.Pod) {
			app := pod.Labels["app"]
			seen := w.seen.pods[pod.Name]
			if _, _, released := releasedFrom(pod); pod.Spec.NodeName != "reclaimed" || released || seen == nil || metav1.GetControllerOf(seen) == nil {
				return // a pod without a controller is a workload of its own
			}
			starts[app] = append(slices.DeleteFunc(starts[app], func(at time.Time) bool { return w.now.Sub(at) >= time.Hour }), w.now)
			if len(starts[app]) > 10 {
				broken = fmt.Sprintf("%d moves of %s within an hour", len(starts[app]), app)
			}
		}
		w.mayDelete = func(pod *v1.Pod) {
			started(pod)
			grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
			late := !deadline.IsZero() && pod.Spec.NodeName == "reclaimed" && !w.now.Before(deadline.Add(-max(grace, time.Second)))
			if d := w.deployments[pod.Labels["app"]]; d != nil && *d.Spec.Replicas > 0 && isReady(pod) && !late {
				broken = fmt.Sprintf("%s was deleted at %s, deadline %s", pod.Name, w.now, deadline)
			}
		}
		w.mayEvict = started
		patched := len(w.log)
		place := func() string {
			return rapid.SampledFrom([]string{"reclaimed", "reclaimed", "remaining", "cordoned"}).Draw(t, "node")
		}
		second := func() {
			before := maps.Clone(w.pods)
			b.second(noticed, deadline, place)
			for _, line := range w.log[patched:] {
				if name, ok := strings.CutPrefix(line, "patch "); ok && before[name] != nil && before[name].Labels[hashKey] == "released" {
					pod := before[name].DeepCopy()
					delete(pod.Annotations, "spot-aware-scheduler.io/released")
					started(pod)
				}
			}
			patched = len(w.log)
			if broken != "" {
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
				if w.calm = false; deadline.Before(w.now) {
					noticed, deadline = w.now, w.now.Add(2*time.Minute)
				}
			},
			"all clear": func(*rapid.T) { w.calm, deadline = true, time.Time{} },
			"budget": func(t *rapid.T) {
				w.budgets = nil
				if rapid.Bool().Draw(t, "exists") {
					w.budget(rapid.SampledFrom(apps).Draw(t, "app"), rapid.Int32Range(1, 3).Draw(t, "least"))
				}
			},
			"ReplicaSet deleted without its pods": func(t *rapid.T) {
				app := rapid.SampledFrom(apps).Draw(t, "app")
				old := w.replicaSets[app+"-1"]
				if old == nil {
					return
				}
				delete(w.replicaSets, old.Name)
				for _, pod := range w.pods {
					pod.OwnerReferences = slices.DeleteFunc(slices.Clone(pod.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == old.UID })
					w.touch(pod)
				}
			},
			"ReplicaSet created again by its Deployment": func(*rapid.T) {
				for _, app := range apps {
					if w.replicaSets[app+"-1"] == nil {
						w.replicaSet(app+"-1", app, *w.deployments[app].Spec.Replicas, w.deployments[app])
					}
				}
			},
		})
	})
}
