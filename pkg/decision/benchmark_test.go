package decision_test

import (
	"fmt"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// benchmarkNodes is the number of nodes of a large cluster.
const benchmarkNodes = 5000

func manyNodes() []decision.Node {
	nodes := make([]decision.Node, benchmarkNodes)
	for i := range nodes {
		nodes[i] = decision.Node{
			Capacity: decision.Capacity{Type: decision.CapacityType(i % 2)},
			Pool:     decision.NewPool(fmt.Sprintf("type-%d", i%10), fmt.Sprintf("zone-%d", i%3)),
		}
	}
	return nodes
}

// BenchmarkAdmit admits one pod to every node of a large cluster.
func BenchmarkAdmit(b *testing.B) {
	nodes, plan := manyNodes(), planOfArgs(b, "maxPerPool=2")
	b.ReportAllocs()
	admitted := 0
	for b.Loop() {
		for i := range nodes {
			if plan.Admit(nodes[i], 0, i%3) == decision.Admitted {
				admitted++
			}
		}
	}
	if admitted == 0 {
		b.Error("nothing was admitted")
	}
}

// BenchmarkRank ranks every node of a large cluster for one pod.
func BenchmarkRank(b *testing.B) {
	nodes, plan := manyNodes(), planOfArgs(b, "maxPerPool=2")
	b.ReportAllocs()
	best := decision.Rank(0)
	for b.Loop() {
		for i := range nodes {
			best = max(best, plan.Rank(nodes[i], decision.Siblings{OnNode: i % 2, InZone: i % 5, InPool: i % 3}, 0.5))
		}
	}
	if best == 0 {
		b.Error("nothing was ranked")
	}
}

// BenchmarkScoreBands scores every node of a large cluster, once per pod.
func BenchmarkScoreBands(b *testing.B) {
	nodes, plan := manyNodes(), planOfArgs(b, "maxPerPool=2")
	ranks, scores := make([]decision.Rank, len(nodes)), make([]decision.Rank, len(nodes))
	for i := range nodes {
		ranks[i] = plan.Rank(nodes[i], decision.Siblings{OnNode: i % 2, InZone: i % 50, InPool: i % 3}, 0.5)
	}
	b.ReportAllocs()
	for b.Loop() {
		copy(scores, ranks)
		decision.ScoreBands(scores)
	}
}

// TestNoAllocationPerNode: functions that run once per node do not allocate.
func TestNoAllocationPerNode(t *testing.T) {
	nodes, plan := manyNodes()[:10], planOfArgs(t, "maxPerPool=2")
	allocations := testing.AllocsPerRun(10, func() {
		for i := range nodes {
			plan.Admit(nodes[i], 0, 1)
			plan.Rank(nodes[i], decision.Siblings{OnNode: 1}, 0.5)
			_ = plan.Outcome(nodes[i], 1)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations for %d nodes", allocations, len(nodes))
	}
}
