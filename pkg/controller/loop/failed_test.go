package loop

import (
	"context"
	"errors"
	"testing"

	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// After a failed write the loop plans again soon, although deletion costs are not urgent. Each
// write is recorded, however many are performed at a time.
func TestFailedWrite(t *testing.T) {
	for name, fails := range map[string]bool{"all succeed": false, "one fails": true} {
		t.Run(name, func(t *testing.T) {
			l := New(nil, synced(), false, 3)
			plan := Plan{Move: noMoves}
			for _, pod := range []string{"a", "b", "c", "d", "e"} {
				plan.Writes = append(plan.Writes, Write{
					Kind: DeletionCost, UID: clustertest.UID(pod), Version: "1", Name: klog.KRef("shop", pod),
					Apply: func(context.Context) error {
						if fails && pod == "b" {
							return errors.New("quota")
						}
						return nil
					},
				})
			}
			if got := l.act(t.Context(), plan); got != fails {
				t.Errorf("plans again soon: %v, want %v", got, fails)
			}
			if got := len(l.attempts); got != 5 {
				t.Errorf("%d writes are recorded, want 5", got)
			}
		})
	}
}
