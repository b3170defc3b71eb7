package main

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// The warning about the breaker is repeated only if the number of nodes changes, and the output for
// programs has this number.
func TestReportBreaker(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &options{IOStreams: streams}
	view := func(nodes int) *report.View {
		s := &snapshot.Snapshot{Now: clustertest.Now}
		for i := range nodes {
			n := clustertest.NewNode(fmt.Sprint("n-", i), "spot", "m/a")
			n.Spec.Taints = []v1.Taint{{Key: "aws-node-termination-handler/spot-itn"}}
			s.Nodes = append(s.Nodes, &snapshot.Node{Node: n, Facts: decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}})
		}
		return &report.View{Snapshot: s, Signals: providers.Signals(), Interruption: controller.Default().Interruption}
	}
	for i, test := range []struct {
		nodes, want, warnings int
	}{{10, 0, 0}, {12, 12, 1}, {12, 12, 1}, {20, 20, 2}, {0, 0, 2}} {
		o.reportBreaker(view(test.nodes))
		warnings := strings.Count(errOut.String(), "warning: the breaker for reclaim signals is open")
		if o.source.UnconfirmedNodes != test.want || warnings != test.warnings {
			t.Errorf("%d: %d nodes, %d warnings, want %d and %d", i, o.source.UnconfirmedNodes, warnings, test.want, test.warnings)
		}
	}
}
