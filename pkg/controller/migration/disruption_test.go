package migration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// disrupted returns the pod's condition DisruptionTarget.
func disrupted(pod *v1.Pod) (found []v1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.DisruptionTarget {
			found = append(found, c)
		}
	}
	return found
}

// A pod that is deleted against its PodDisruptionBudget has the condition DisruptionTarget first. A
// failure to set the condition does not prevent the deletion.
func TestDisruptionTarget(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"set":       {want: 1},
		"forbidden": {err: apierrors.NewForbidden(pods, "db-0", errors.New("no right"))},
		"time-out":  {err: context.DeadlineExceeded},
		"gone":      {err: apierrors.NewNotFound(pods, "db-0")},
		"replaced":  {err: apierrors.NewConflict(pods, "db-0", errors.New("uid"))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
			w.sync()
			marked := -1
			w.mayDelete = func(pod *v1.Pod) { marked = len(disrupted(pod)) }
			w.fail = func(verb, _, _ string) (error, bool) { return errOf(test.err, verb == "patch status"), true }
			b := newBench(w, false)
			b.round(30*time.Second, "db-0")
			if marked != test.want {
				t.Errorf("%d conditions when the pod was deleted, want %d", marked, test.want)
			}
			for _, c := range disrupted(w.pods["db-0"]) {
				if c.Status != v1.ConditionTrue || c.Reason != "SpotInterruption" || c.Message == "" || !c.LastTransitionTime.Time.Equal(w.now) {
					t.Errorf("%+v, want true since %s because of SpotInterruption", c, w.now)
				}
			}
			b.want(t, []string{"delete db-0 30s"}, []string{"DeletedAtDeadline Pod", "DeletedAtDeadline StatefulSet"})
		})
	}
}

func errOf(err error, applies bool) error {
	if applies {
		return err
	}
	return nil
}

// A pod that an eviction has marked is not marked again. A pod whose workload is gone is not
// marked.
func TestDisruptionTargetOnce(t *testing.T) {
	w := newWorld()
	pod := w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue})
	w.deployment("web", 1)
	w.released(w.pod("left", w.replicaSets["web-1"], "remaining"), time.Second)
	delete(w.replicaSets, "web-1")
	w.sync()
	w.fail = func(verb, _, name string) (error, bool) {
		if verb == "patch status" {
			t.Errorf("%s is marked", name)
		}
		return nil, false
	}
	newBench(w, false).round(30*time.Second, "db-0")
	if len(w.log) != 2 {
		t.Errorf("requests %v, want two deletions", w.log)
	}
}
