//go:build long

package autoscaler

import (
	"testing"
	"time"
)

// watchUnreachableLong includes several retries of a move. After a failed move, a workload pauses
// for 1, 2, 4 and 8 minutes. A controller that forgets refusals releases a pod after each pause.
const watchUnreachableLong = 15 * time.Minute

func TestLongTaintedSpot(t *testing.T) { taintedSpot(t, watchUnreachableLong) }
func TestLongTaintedSpotWithoutNodes(t *testing.T) {
	taintedSpotWithoutNodes(t, watchUnreachableLong)
}
func TestLongOnDemandUnavailable(t *testing.T) { onDemandUnavailable(t, watchUnreachableLong) }
