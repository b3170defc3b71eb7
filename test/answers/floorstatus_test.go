package answers_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// state is one component's view of a workload. A field that a component does not report has the
// expected value.
type state struct {
	Deficit, OverBudget, Surplus, Misplaced int
	Heals                                   bool
	State                                   report.State
}

// TestFloorStatuses shows that all components report the same about whole workloads: the metrics of
// scheduler and extender (workload.FloorStatuses), kubectl spot status, and the rebalancer.
func TestFloorStatuses(t *testing.T) {
	nodes := objects(onDemand("od"), spotNode("sp"))
	db := func(replicas int32, nodes ...string) []runtime.Object {
		all := []runtime.Object{statefulSet("db", replicas)}
		for ordinal, name := range nodes {
			all = append(all, podOf(by("StatefulSet", "db"), fmt.Sprint(ordinal), on(name)))
		}
		return all
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		want    state
	}{
		"floor met":                   {objects(nodes, web(3, "od", "sp", "sp")), state{State: report.OK}},
		"over budget":                 {objects(nodes, web(3, "sp", "sp", "sp")), state{Deficit: 1, OverBudget: 1, Heals: true, State: report.BelowFloor}},
		"surplus":                     {objects(nodes, web(3, "od", "od", "sp")), state{Surplus: 1, State: report.Surplus}},
		"floor met by its ordinals":   {objects(nodes, db(3, "od", "sp", "sp")), state{State: report.OK}},
		"an ordinal beyond the floor": {objects(nodes, db(3, "od", "od", "sp")), state{Surplus: 1, State: report.Surplus}},
		"floor on the wrong ordinal":  {objects(nodes, db(3, "sp", "od", "sp")), state{Deficit: 1, OverBudget: 1, Surplus: 1, Misplaced: 1, Heals: true, State: report.BelowFloor}},
		"all ordinals on spot":        {objects(nodes, db(2, "sp", "sp")), state{Deficit: 1, OverBudget: 1, Misplaced: 1, Heals: true, State: report.BelowFloor}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// All pods are ready and old, so only its node can be a reason to move a pod.
				for _, object := range test.objects {
					if pod, ok := object.(*v1.Pod); ok {
						pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
					}
				}
				c := &scenario{objects: test.objects}
				policy, signals := c.readPolicy(t)
				factory := informers.NewSharedInformerFactory(fake.NewClientset(test.objects...), 0)
				reader, err := snapshot.NewReader(factory, policy, signals, workload.Scope{Profile: profile}, 0)
				if err != nil {
					t.Fatal(err)
				}
				owners, err := workload.NewOwners(factory, policy)
				if err != nil {
					t.Fatal(err)
				}
				start(t, factory)

				snapshot, err := reader.Snapshot(time.Now())
				if err != nil {
					t.Fatal(err)
				}
				requireEqual(t, "the metrics", test.want, ofMetrics(t, owners, policy, snapshot, test.want))
				all, _ := (&report.View{Snapshot: snapshot, Policy: policy, Signals: signals, Scope: workload.Scope{Profile: profile}, Owners: owners}).Statuses()
				if len(all) != 1 {
					t.Fatalf("%d workloads are reported, want 1", len(all))
				}
				shown := test.want
				shown.State = all[0].State
				requireEqual(t, "kubectl spot status", test.want, shown)
				w := snapshot.Workloads[0]
				at := w.FloorStatus()
				requireEqual(t, "the controller's snapshot", test.want, state{at.FloorDeficit, at.OverBudget, at.Surplus, len(at.Misplaced), at.Healable > 0, test.want.State})
				moves := rebalance.NewPlanner(rebalance.Settings{Rebalance: controller.Rebalance{Heal: true, MaxMoves: 1}}).Plan(snapshot, simulation.NewRoom(snapshot))
				moved := test.want
				moved.Heals = len(moves) > 0
				requireEqual(t, "the rebalancer", test.want, moved)
			})
		})
	}
}

// ofMetrics returns the state that the metrics report for the only workload.
func ofMetrics(t *testing.T, owners *workload.Owners, policy *decision.Policy, s *snapshot.Snapshot, want state) state {
	t.Helper()
	var pods []*v1.Pod
	for _, p := range s.Pods {
		pods = append(pods, p.Pod)
	}
	nodes := workload.NewNodeEvidence(policy)
	for _, n := range s.Nodes {
		nodes.Set(n.Node, n.Facts.Capacity, s.Now)
	}
	standings := owners.FloorStatuses(pods, workload.Scope{Profile: profile}.Includes, nodes, func(*v1.Pod) []*v1.PersistentVolume { return nil })
	if len(standings) != 1 {
		t.Fatalf("%d workloads are measured, want 1", len(standings))
	}
	for _, s := range standings {
		want.Deficit, want.OverBudget, want.Surplus, want.Misplaced, want.Heals = s.FloorDeficit, s.OverBudget, s.Surplus, len(s.Misplaced), s.Healable > 0
	}
	return want
}
