package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

func TestNodes(t *testing.T) {
	deadline := clustertest.Now.Add(time.Minute).UTC().Format(time.RFC3339)
	view := newView(t, basic(), `
		node a spot m/a
		node b on-demand m/a
		node c - m/a label=karpenter.sh/capacity-type=spot
		node d - m/a
		node i - m/a born=10s
		node e typo m/a
		node h 5958825377106311128 m/a label=karpenter.sh/capacity-type=on-demand
		node f spot m/b taint=aws-node-termination-handler/spot-itn annotation=spot-aware-scheduler.io/interruption-deadline=`+deadline+`
		node g spot m/b taint=aws-node-termination-handler/rebalance-recommendation
		deployment web 3 a a b
		deployment one 1 f
		daemonset log f`)
	var lines []string
	for _, n := range view.Nodes(labels.Everything()) {
		line := fmt.Sprintf("%s %s by %s, %s, %s %q, %d", n.Name, n.Capacity, n.CapacitySource, n.Pool, n.Interruption, n.Signals, n.Replicas)
		if !n.Deadline.IsZero() {
			line += " in " + n.Deadline.Sub(clustertest.Now).String()
		}
		lines = append(lines, fmt.Sprintf("%s %v", line, n.WorkloadsBelowFloor))
	}
	want := []string{
		`f spot by node.kubernetes.io/capacity=spot, m/b, reclaim ["taint aws-node-termination-handler/spot-itn"], 1 in 1m0s [deployment/one]`,
		`g spot by node.kubernetes.io/capacity=spot, m/b, advisory ["taint aws-node-termination-handler/rebalance-recommendation"], 0 []`,
		`a spot by node.kubernetes.io/capacity=spot, m/a, none [], 2 []`,
		`b on-demand by node.kubernetes.io/capacity=on-demand, m/a, none [], 1 []`,
		`c spot by karpenter.sh/capacity-type=spot, m/a, none [], 0 []`,
		`d on-demand by no capacity label: unlabeledNodes, m/a, none [], 0 []`,
		`e spot by contradiction: node.kubernetes.io/capacity=typo, m/a, none [], 0 []`,
		`h on-demand by karpenter.sh/capacity-type=on-demand; ignored: node.kubernetes.io/capacity=5958825377106311128, m/a, none [], 0 []`,
		`i spot by no label yet: counts as spot during labelGrace, m/a, none [], 0 []`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// The breaker is open for nodes with the signal, and the report shows it.
func TestUnconfirmedNodes(t *testing.T) {
	var cluster strings.Builder
	for i := range 12 {
		fmt.Fprintf(&cluster, "node a-%d spot m/a taint=aws-node-termination-handler/spot-itn\n", i)
	}
	view := newView(t, basic(), cluster.String()+"node b spot m/a\n")
	for percent, want := range map[int32]int{50: 12, 100: 0} {
		view.Interruption = controller.Default().Interruption
		view.Interruption.Breaker.MaxPercent = percent
		got := 0
		for _, n := range view.Nodes(labels.Everything()) {
			if n.Unconfirmed {
				got++
			}
		}
		if got != want || view.Breaker().Open != (want > 0) {
			t.Errorf("%d %%: %d nodes are unconfirmed, open: %t, want %d", percent, got, view.Breaker().Open, want)
		}
	}
}
