//go:build long

package autoscaler

import (
	"testing"
	"time"
)

// watchUnreachableLong includes several retries of a move. After a failed move, a workload pauses
// for 1, 2, 4 and 8 minutes. A controller that forgets refusals releases a pod after each pause.
const watchUnreachableLong = 15 * time.Minute

func TestLongTaintedSpot(t *testing.T)         { taintedSpot(t, watchUnreachableLong) }
func TestLongOnDemandUnavailable(t *testing.T) { onDemandUnavailable(t, watchUnreachableLong) }

// TestLongTaintedSpotWithoutNodes: like TestLongTaintedSpot, but the spot NodePool has never had a
// node. The controller cannot know the taint, so it releases one pod. Karpenter refuses a node for
// the replacement. The pod returns to its ReplicaSet, and the controller releases no other.
func TestLongTaintedSpotWithoutNodes(t *testing.T) {
	s := startTainted(t)
	s.deploy("web", 4, "300m", "64Mi", floor("1"))
	s.eventually(soon, s.isAvailableWithSplit("web", split{OnDemand: 4}))
	s.requireNoUselessMove(watchUnreachableLong, map[string]int{"web": 1})
	s.must(s.isAvailableWithSplit("web", split{OnDemand: 4})())
}
