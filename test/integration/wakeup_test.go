package integration

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestWaitingPodWakes has a pod wait for on-demand capacity in an idle cluster. A single change
// then unblocks the pod. Without a wake-up the scheduler would retry it only after an hour.
func TestWaitingPodWakes(t *testing.T) {
	s := start(t, nil, everyVMEvent)
	seen := s.Watch()
	// Each case has spot nodes with room, and a full on-demand node od-1.
	for name, test := range map[string]struct {
		// alone means that od-1 does not exist. Then only ReplicaSafety rejects nodes, and no other
		// plugin's queueing hint can wake the pod.
		alone bool
		// another is an additional on-demand node with room. before makes it reject pods, unless it
		// has a taint.
		another *lab.NodeSpec
		before  func(s *scenario)
		// replicas of the workload; 0 means 1. All except one run on spot.
		replicas int
		unblock  func(s *scenario, waiting string)
		// wantNode is the capacity type of the node that the pod is bound to.
		wantNode string
	}{
		"on-demand node added": {
			unblock:  func(s *scenario, _ string) { s.AddNodes(*additionalOnDemandNode()) },
			wantNode: lab.OnDemand,
		},
		"first on-demand node added": {
			alone:    true,
			unblock:  func(s *scenario, _ string) { s.AddNodes(*additionalOnDemandNode()) },
			wantNode: lab.OnDemand,
		},
		"spot node relabelled": {
			unblock: func(s *scenario, _ string) {
				s.EditNode("spot-1", func(node *v1.Node) { node.Labels[lab.CapacityLabel] = lab.OnDemand })
			},
			wantNode: lab.OnDemand,
		},
		"allocatable raised": {
			unblock: func(s *scenario, _ string) {
				s.editNodeStatus("od-1", func(status *v1.NodeStatus) { status.Allocatable[v1.ResourceCPU] = resource.MustParse("2") })
			},
			wantNode: lab.OnDemand,
		},
		"taint removed": {
			another:  additionalOnDemandNode(v1.Taint{Key: "example.com/reserved", Effect: v1.TaintEffectNoSchedule}),
			unblock:  removeTaints,
			wantNode: lab.OnDemand,
		},
		"signal removed, a taint": {
			// Taints with this effect repel no pod, so only the filter under test does.
			alone:    true,
			another:  additionalOnDemandNode(v1.Taint{Key: "spot-aware-scheduler.io/interruption", Effect: v1.TaintEffectPreferNoSchedule}),
			unblock:  removeTaints,
			wantNode: lab.OnDemand,
		},
		"signal removed, a condition": {
			another: additionalOnDemandNode(),
			before:  func(s *scenario) { s.editNodeStatus("od-2", condition("VMEventScheduled", v1.ConditionTrue)) },
			unblock: func(s *scenario, _ string) {
				s.editNodeStatus("od-2", condition("VMEventScheduled", v1.ConditionFalse))
			},
			wantNode: lab.OnDemand,
		},
		"signal removed, a label": {
			another: additionalOnDemandNode(),
			before: func(s *scenario) {
				s.EditNode("od-2", func(node *v1.Node) { node.Labels["autoscaling.cast.ai/draining"] = "spot-prediction" })
			},
			unblock: func(s *scenario, _ string) {
				s.EditNode("od-2", func(node *v1.Node) { delete(node.Labels, "autoscaling.cast.ai/draining") })
			},
			wantNode: lab.OnDemand,
		},
		"pod of another workload deleted": {
			unblock:  func(s *scenario, _ string) { s.deletePod("fill-od-1-1") },
			wantNode: lab.OnDemand,
		},
		"pod of another workload deleted, after failed attempts": {
			// By then the pod has a backoff of many seconds. A scheduler without other work does
			// not wait until the backoff ends.
			unblock: func(s *scenario, waiting string) {
				for i := range 5 {
					s.patchPod(waiting, annotation("example.com/attempt", fmt.Sprint(i)))
					s.awaitIdleScheduler()
				}
				s.deletePod("fill-od-1-1")
			},
			wantNode: lab.OnDemand,
		},
		"sibling on spot deleted": {
			alone:    true,
			replicas: 2,
			unblock:  func(s *scenario, _ string) { s.deletePod(s.podOnSpot("app").Name) },
			wantNode: lab.Spot,
		},
		"sibling on spot starts to terminate": {
			replicas: 2,
			unblock: func(s *scenario, _ string) {
				sibling := s.podOnSpot("app").Name
				s.patchPod(sibling, `{"metadata":{"finalizers":["example.com/stay"]}}`)
				s.Cleanup(func() { s.patchPod(sibling, `{"metadata":{"finalizers":null}}`) })
				s.awaitIdleScheduler()
				s.deletePod(sibling)
			},
			wantNode: lab.Spot,
		},
		"sibling on spot released by its owner": {
			replicas: 2,
			unblock: func(s *scenario, _ string) {
				s.patchPod(s.podOnSpot("app").Name, `{"metadata":{"labels":{"app":"released"}}}`)
			},
			wantNode: lab.Spot,
		},
		"node of a sibling deleted": {
			alone:    true,
			replicas: 2,
			unblock: func(s *scenario, _ string) {
				s.Must(client.CoreV1().Nodes().Delete(s.Ctx, s.podOnSpot("app").Spec.NodeName, metav1.DeleteOptions{}))
			},
			wantNode: lab.Spot,
		},
		"owner scaled up": {
			unblock:  func(s *scenario, _ string) { s.Scale("app", 3) },
			wantNode: lab.Spot,
		},
		"owner annotated with a lower floor": {
			unblock:  func(s *scenario, _ string) { s.PatchDeployment("app", annotation(minOnDemand, "0")) },
			wantNode: lab.Spot,
		},
		"owner annotated with ScheduleAnyway": {
			unblock:  func(s *scenario, _ string) { s.PatchDeployment("app", annotation(whenUnsatisfiable, "ScheduleAnyway")) },
			wantNode: lab.Spot,
		},
		"owner annotated with a fallback that is already due": {
			unblock:  func(s *scenario, _ string) { s.PatchDeployment("app", annotation(fallbackAfter, "100ms")) },
			wantNode: lab.Spot,
		},
		"pod itself annotated": {
			unblock:  func(s *scenario, waiting string) { s.patchPod(waiting, annotation(minOnDemand, "0")) },
			wantNode: lab.Spot,
		},
	} {
		s.run(name, func(s *scenario) {
			s.Cleanup(s.deleteWorkloadsAndNodes)
			s.AddNodes(live.Spot(3, 5)...)
			if !test.alone {
				s.AddNodes(live.OnDemand(1, 1)...)
				s.fillNode("od-1", 1)
			}
			if test.another != nil {
				s.AddNodes(*test.another)
			}
			if test.before != nil {
				test.before(s)
			}
			replicas := max(test.replicas, 1)
			s.Deploy("app", replicas)
			s.Eventually(soon, s.HasSplit("app", split{Spot: replicas - 1, Waiting: 1}))
			waiting := s.waitingPod("app", fmt.Sprintf("spot budget used up: %d of at most %d replicas of %s/app-", replicas-1, replicas-1, s.Namespace))
			// New pods would use the freed room, and hide that the scheduler did not wake the
			// waiting pod.
			s.Cleanup(s.blockPodCreation())
			s.awaitIdleScheduler()

			test.unblock(s, waiting)
			node := s.requireBoundAtOnce(seen, waiting, time.Now())
			if capacity := s.capacityOf(node); capacity != test.wantNode {
				s.Errorf("the pod is on %s, which is %s, want %s", node, capacity, test.wantNode)
			}
		})
	}
}

// additionalOnDemandNode returns a node od-2 of one slot.
func additionalOnDemandNode(taints ...v1.Taint) *lab.NodeSpec {
	node := live.OnDemand(2, 1)[1]
	node.Taints = taints
	return &node
}

func removeTaints(s *scenario, _ string) {
	s.EditNode("od-2", func(node *v1.Node) { node.Spec.Taints = nil })
}
