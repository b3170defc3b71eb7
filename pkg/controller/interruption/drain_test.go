package interruption_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// TestAssist checks which nodes count as draining, and for which pods a move is requested.
func TestAssist(t *testing.T) {
	const both = "web-0 drain, web-1 drain"
	for name, test := range map[string]struct {
		change func(*world)
		want   string
	}{
		"nothing":                      {func(*world) {}, ""},
		"Karpenter":                    {func(w *world) { w.taint("karpenter.sh/disrupted", "", nil) }, both},
		"the cluster autoscaler":       {func(w *world) { w.taint("ToBeDeletedByClusterAutoscaler", "1", nil) }, both},
		"being deleted":                {func(w *world) { w.node.DeletionTimestamp, w.node.Finalizers = at(0), []string{"x"} }, both},
		"cordoned":                     {func(w *world) { w.node.Spec.Unschedulable = true }, ""},
		"cordoned, and Cordons is set": {func(w *world) { w.settings.Cordons = true; w.node.Spec.Unschedulable = true }, both},
		"no assistance": {func(w *world) {
			w.settings.Assist = false
			w.taint("karpenter.sh/disrupted", "", nil)
		}, ""},
		"cordoned, no assistance": {func(w *world) { w.settings.Assist = false; w.settings.Cordons = true; w.node.Spec.Unschedulable = true }, ""},
		"another namespace": {func(w *world) {
			w.settings.Selects = func(string) bool { return false }
			w.taint("karpenter.sh/disrupted", "", nil)
		}, ""},
		"terminating": {func(w *world) {
			w.taint("karpenter.sh/disrupted", "", nil)
			w.pods[0].DeletionTimestamp = &metav1.Time{Time: start}
		}, "web-1 drain"},
		"reclaimed as well": {func(w *world) { w.taint("karpenter.sh/disrupted", "", nil); w.taint(own, "by-hand", nil) },
			"web-0 interruption +120, web-1 interruption +120"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settings.Assist = true
			test.change(w)
			if got := w.round(0); got != test.want {
				t.Errorf("moves %q, want %q", got, test.want)
			}
		})
	}
}

// A restored pod is not released again for the same drain, also not by another controller process.
func TestAssistsOnce(t *testing.T) {
	w := newWorld(t)
	w.settings.Assist, w.settings.Cordons = true, true
	w.node.Spec.Unschedulable = true
	expect := func(after time.Duration, want string) {
		t.Helper()
		if got := w.round(after); got != want {
			t.Errorf("%s after the start: moves %q, want %q", w.now.Sub(start), got, want)
		}
	}
	release := func() { w.pods[0].Release = &snapshot.Release{Reason: string(migration.Drain), At: w.now} }
	expect(0, "web-0 drain, web-1 drain")
	release()
	expect(time.Minute, "web-0 drain, web-1 drain")
	w.pods[0].Release = nil
	expect(time.Minute, "web-1 drain")
	w.node.Spec.Unschedulable = false
	expect(time.Minute, "")
	if text, ok := w.node.Annotations[spot.InterruptionStateAnnotation]; ok {
		t.Errorf("the annotation %s is %s after the drain", spot.InterruptionStateAnnotation, text)
	}
	w.node.Spec.Unschedulable = true
	expect(time.Hour, "web-0 drain, web-1 drain")
}
