package micro

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	pools         = 500
	lossesPerPool = 32
	scored        = 100 // nodes that are scored, as in a narrow search
)

// risks measures PreScore and Score of SpotPreference in a cycle on 500 spot pools. In one point
// each pool has lost 32 nodes, in the other none.
func risks(t testing.TB, preference fwk.Plugin) []point {
	t.Helper()
	work := func(counter *placement.Counter, nodes []fwk.NodeInfo) func() {
		settings := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}
		cycle, pod := framework.NewCycleState(), &v1.Pod{}
		placement.NewState(subject(), settings, decision.WaitTime{}, counter).Write(cycle)
		return func() {
			if status := preference.(fwk.PreScorePlugin).PreScore(t.Context(), cycle, pod, nodes); !status.IsSuccess() {
				t.Fatal(status)
			}
			for _, node := range nodes {
				if _, status := preference.(fwk.ScorePlugin).Score(t.Context(), cycle, pod, node); !status.IsSuccess() {
					t.Fatal(status)
				}
			}
		}
	}
	calm, calmNodes := poolsThatLost(false)
	losing, losingNodes := poolsThatLost(true)
	return []point{
		{name: "Cycle/SpotPreference/calm", work: work(calm, calmNodes)},
		{name: "Cycle/SpotPreference/losses", work: work(losing, losingNodes)},
	}
}

// subject returns a pod of a workload that runs nowhere yet.
func subject() *workload.Subject {
	return &workload.Subject{
		RevisionKey: workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: "rs"},
		Pod:         decision.Pod{Workload: decision.Workload{Desired: replicas}},
	}
}

// poolsThatLost returns a counter of one node per pool, and the nodes to score. The nodes of each
// pool were replaced 32 times. If losses is set, each was deleted with a pod on it; otherwise it
// was empty.
func poolsThatLost(losses bool) (*placement.Counter, []fwk.NodeInfo) {
	counter := placement.NewCounter(&node.Reader{Policy: &decision.Policy{}})
	var nodes []fwk.NodeInfo
	for i := range lossesPerPool + 1 {
		nodes = nodes[:0]
		for pool := range pools {
			nodes = append(nodes, nodeInPool(fmt.Sprintf("node-%d-%d", pool, i), pool, losses))
		}
		counter.Update(nodes, time.Now())
	}
	return counter, nodes[:scored]
}

func nodeInPool(name string, pool int, withPod bool) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	if withPod {
		info.AddPod(clustertest.NewPod(name, clustertest.OwnedBy("ReplicaSet", "other")))
	}
	info.SetNode(clustertest.NewNode(name, "spot", fmt.Sprintf("m6i.%dxlarge/zone-%d", pool/5, pool%5)))
	return info
}

// TestPoolsHaveLost checks an assumption of the figures: pools that lost nodes rank below pools
// that did not.
func TestPoolsHaveLost(t *testing.T) {
	made, stop := newPlugins(t, newCluster(t, sizes[0]), 1)
	defer stop()
	preference := made["SpotPreference"]
	rank := func(losses bool) int64 {
		counter, nodes := poolsThatLost(losses)
		cycle := framework.NewCycleState()
		placement.NewState(subject(), decision.WorkloadSettings{}, decision.WaitTime{}, counter).Write(cycle)
		must(t, preference.(fwk.PreScorePlugin).PreScore(t.Context(), cycle, nil, nodes).AsError())
		rank, status := preference.(fwk.ScorePlugin).Score(t.Context(), cycle, nil, nodes[0])
		must(t, status.AsError())
		return rank
	}
	if calm, losing := rank(false), rank(true); losing >= calm {
		t.Errorf("the rank of a node is %d in a pool that lost %d nodes, and %d in a pool that lost none", losing, lossesPerPool, calm)
	}
}
