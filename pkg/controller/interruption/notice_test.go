package interruption_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
)

// Moves contain when the interruption of their node was noticed, also if a later controller process
// plans them.
func TestMovesContainNoticed(t *testing.T) {
	w := newWorld(t)
	noticed := start.Add(-10 * time.Second)
	w.taint(awsReclaim, "x", &metav1.Time{Time: noticed})
	for range 3 {
		w.round(5 * time.Second)
		_, moves, _ := interruption.Plan(w.snapshot(), w.settings)
		if len(moves) != 2 {
			t.Fatalf("%d moves, want 2", len(moves))
		}
		for _, m := range moves {
			if !m.Noticed.Equal(noticed) {
				t.Errorf("%s was noticed at %s, want %s", m.Pod.Name, m.Noticed, noticed)
			}
		}
	}
}
