package round

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/protection"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Writes of budgets have the namespace, which limits them, and the rank of the change.
func TestBudgetWrites(t *testing.T) {
	node := &snapshot.Node{Node: clustertest.NewNode("n", "spot", "m/a")}
	pod := clustertest.NewReplica("web", node)
	pod.Workload.InScope, pod.Workload.Settings.Protect = true, true
	leftover := clustertest.NewBudget("gone-protected", 1)
	leftover.Labels = map[string]string{spot.ProtectLabel: "true"}
	s := &snapshot.Snapshot{
		Now: clustertest.Now, Nodes: []*snapshot.Node{node}, Pods: []*snapshot.Pod{pod}, Workloads: []*snapshot.Workload{pod.Workload},
		Budgets: map[string][]*policyv1.PodDisruptionBudget{clustertest.Namespace: {leftover}},
	}
	p := &Planner{clients: Clients{Recorder: &events.FakeRecorder{}},
		protector: protection.NewPlanner(protection.Settings{Interruption: interruption.Settings{Drain: controller.Drain{Assist: true}}})}
	got := map[string]int{}
	for _, w := range p.budgetWrites(s) {
		got[w.Name.Namespace+"/"+w.Name.Name] = w.Rank
	}
	if len(got) != 2 || got["shop/gone-protected"] != 0 || got["shop/web-protected"] != 1 {
		t.Errorf("ranks %v, want 0 of gone-protected and 1 of web-protected", got)
	}
}
