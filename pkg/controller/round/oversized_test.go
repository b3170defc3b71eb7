package round

import (
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// A PodDisruptionBudget with so many terms that it is not evaluated is reported once, and again if
// it vanished meanwhile.
func TestOversized(t *testing.T) {
	selector := func(terms int) *metav1.LabelSelector {
		s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for i := range terms {
			s.MatchLabels[fmt.Sprint("k", i)] = ""
		}
		return s
	}
	snapshotOf := func(terms int) *snapshot.Snapshot {
		budget := clustertest.NewBudget("web", 1)
		budget.Spec.Selector = selector(terms)
		return &snapshot.Snapshot{Budgets: map[string][]*policyv1.PodDisruptionBudget{clustertest.Namespace: {budget}}}
	}
	var d defects
	for i, step := range []struct{ terms, want int }{{20, 0}, {201, 1}, {201, 0}, {20, 0}, {20000, 1}} {
		recorder := events.NewFakeRecorder(9)
		d.recorder = recorder
		d.observe(snapshotOf(step.terms), nil, nil)
		if len(recorder.Events) != step.want {
			t.Errorf("step %d: %d events, want %d", i, len(recorder.Events), step.want)
		}
		for range len(recorder.Events) {
			if got := <-recorder.Events; !strings.HasPrefix(got, "Warning TooManyTerms ") {
				t.Errorf("step %d: event %q", i, got)
			}
		}
	}
}
