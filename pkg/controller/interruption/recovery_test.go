package interruption_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// A panic about one node does not stop the planning for others.
func TestPlanAroundAPanic(t *testing.T) {
	w := newWorld(t)
	w.taint(awsReclaim, "", nil)
	s := w.snapshot()
	bad := newNode("bad", v1.ConditionTrue)
	bad.Spec.Taints = w.node.Spec.Taints
	s.Nodes = append([]*snapshot.Node{{
		Node: bad, Facts: decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}, Pods: []*snapshot.Pod{nil},
	}}, s.Nodes...)
	marks, moves, _ := interruption.Plan(s, w.settings)
	var got []string
	for _, m := range marks {
		got = append(got, "mark "+m.Node.Name)
	}
	for _, m := range moves {
		got = append(got, "move "+m.Pod.Name+" by "+m.Deadline.Sub(start).Truncate(time.Second).String())
	}
	clustertest.Equal(t, "plan", []string{"mark n", "move web-0 by 2m0s", "move web-1 by 2m0s"}, got)
}
