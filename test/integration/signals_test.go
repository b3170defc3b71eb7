package integration

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// everyVMEvent configures a rule of the user. By default this condition is advisory unless it names
// the kind of event.
var everyVMEvent = live.Settings{"signals": rules(map[string]any{"condition": "VMEventScheduled", "class": "reclaim"})}.EditSafety

// TestPlacementInterruptedNodes sets signals on nodes of both capacity types while pods run there.
// Those pods stay, and no new pod is bound there. unit tests of packages node and providers cover
// all rows of the table of signals; this test covers one of each kind.
func TestPlacementInterruptedNodes(t *testing.T) {
	// Taints with this effect repel no pod, so only the filter under test rejects the node.
	const effect = v1.TaintEffectPreferNoSchedule
	signals := []struct {
		name string
		set  func(s *scenario, node string)
		why  string
	}{
		{"reclaim taint", func(s *scenario, node string) {
			s.EditNode(node, func(n *v1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "aws-node-termination-handler/scheduled-maintenance", Effect: effect})
			})
		}, "being reclaimed"},
		{"drain taint", func(s *scenario, node string) {
			s.EditNode(node, func(n *v1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1700000000", Effect: effect})
			})
		}, "being drained"},
		{"reclaim condition", func(s *scenario, node string) {
			s.editNodeStatus(node, condition("VMEventScheduled", v1.ConditionTrue))
		}, "being reclaimed"},
		{"drain label", func(s *scenario, node string) {
			s.EditNode(node, func(n *v1.Node) { n.Labels["autoscaling.cast.ai/draining"] = "spot-interruption" })
		}, "being drained"},
	}
	// od-1 and spot-1 get the first signal, and so on. The last node of each type gets none.
	s := start(t, slices.Concat(live.OnDemand(len(signals)+1, 20), live.Spot(len(signals)+1, 20)), everyVMEvent)
	half := live.Annotated(minOnDemand, "50%")
	s.Deploy("app", 20, half)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 10, Spot: 10}))
	before := s.perNode("app")
	pinned := func(name, node string) {
		s.Deploy(name+node, 1, live.Annotated(minOnDemand, "0"), func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
		})
	}
	for i, signal := range signals {
		for _, node := range []string{fmt.Sprintf("od-%d", i+1), fmt.Sprintf("spot-%d", i+1)} {
			// A pod that runs there now proves that the node is rejected later because of the
			// signal.
			pinned("before-", node)
			s.Eventually(soon, func() error {
				if s.perNode("before-" + node)[node] != 1 {
					return fmt.Errorf("no pod on %s, which has no signal yet", node)
				}
				return nil
			})
			signal.set(s, node)
		}
	}
	s.awaitIdleScheduler()

	s.Scale("app", 40)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 20, Spot: 20}))
	after := s.perNode("app")
	for i, signal := range signals {
		for _, node := range []string{fmt.Sprintf("od-%d", i+1), fmt.Sprintf("spot-%d", i+1)} {
			if after[node] != before[node] {
				s.Errorf("%s with a %s has %d pods, want %d as before", node, signal.name, after[node], before[node])
			}
		}
	}

	// If only signalled nodes remain, a pod waits regardless of its floor, and its events name the
	// signal.
	for i := range signals {
		for _, node := range []string{fmt.Sprintf("od-%d", i+1), fmt.Sprintf("spot-%d", i+1)} {
			pinned("only-", node)
		}
	}
	for i, signal := range signals {
		s.waitingPod(fmt.Sprintf("only-od-%d", i+1), "1 node is "+signal.why)
		s.waitingPod(fmt.Sprintf("only-spot-%d", i+1), "1 node is "+signal.why)
	}
}

// TestPlacementAdvisoryNodesLast shows that a node of the preferred capacity type with an advisory
// signal ranks after nodes of the other type.
func TestPlacementAdvisoryNodesLast(t *testing.T) {
	advised := live.Nodes("advised", lab.Spot, "c5.xlarge", 1, 10)[0]
	advised.Taints = []v1.Taint{{Key: "aws-node-termination-handler/rebalance-recommendation", Effect: v1.TaintEffectPreferNoSchedule}}
	s := start(t, append(slices.Concat(live.OnDemand(1, 2), live.Spot(2, 1)), advised))
	// Each step scales by the slots of the next best nodes.
	s.Deploy("app", 2, live.Annotated(minOnDemand, "0"))
	s.Eventually(soon, s.HasSplit("app", split{Spot: 2}))
	s.Scale("app", 4)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 2, Spot: 2}))
	if on := s.perNode("app"); on["advised-1"] != 0 {
		s.Fatalf("pods per node: %v, want none on advised-1 while other nodes have room", on)
	}
	s.Scale("app", 6)
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 2, Spot: 4}))
	if on := s.perNode("app"); on["advised-1"] != 2 {
		s.Fatalf("pods per node: %v, want 2 on advised-1", on)
	}
}

// perNode returns the number of live pods with the label app on each node.
func (s *scenario) perNode(app string) map[string]int {
	s.Helper()
	pods, err := s.Pods(app)
	s.Must(err)
	on := map[string]int{}
	for _, pod := range pods {
		on[pod.Spec.NodeName]++
	}
	return on
}
