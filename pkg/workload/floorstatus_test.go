package workload_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// FloorStatuses judges each pod by itself. The result does not depend on the order of the pods.
func TestStandingsDoNotDependOnOrder(t *testing.T) {
	nodes := evidenceOf(clustertest.NewNode("node", "spot", "m/a"), clustertest.NewNode("od", "on-demand", "m/a"))
	noVolumes := func(*v1.Pod) []*v1.PersistentVolume { return nil }
	pod := func(name, kind, owner string, change func(*v1.Pod)) *v1.Pod {
		p := podOf(name, by(kind, owner))
		p.Spec.SchedulerName, p.Spec.NodeName = "s", "node"
		change(p)
		return p
	}
	asIs := func(*v1.Pod) {}
	for name, test := range map[string]struct {
		owners []runtime.Object
		pods   []*v1.Pod
		want   decision.FloorStatus
	}{
		"an update adds a selector for spot": {
			[]runtime.Object{&appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2)}}},
			[]*v1.Pod{pod("db-0", "StatefulSet", "db", asIs), pod("db-1", "StatefulSet", "db", func(p *v1.Pod) {
				p.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "spot"}
			})},
			decision.FloorStatus{Spot: 2, FloorOnSpot: 1, FloorDeficit: 1, OverBudget: 1, Misplaced: []decision.Position{{}}, Healable: 1},
		},
		"one pod has a wrong owner reference": {
			[]runtime.Object{replicaSet("web", ptr.To[int32](2))},
			[]*v1.Pod{pod("good", "ReplicaSet", "web", asIs), pod("bad", "ReplicaSet", "web", func(p *v1.Pod) { p.OwnerReferences[0].Name = "other" })},
			decision.FloorStatus{Spot: 2, FloorOnSpot: 1, FloorDeficit: 1, OverBudget: 1, Healable: 1},
		},
		"pods that their controller did not create, one of another profile": {
			nil,
			[]*v1.Pod{pod("task-a", "Deployment", "web", asIs), pod("task-b", "Deployment", "web", func(p *v1.Pod) { p.Spec.SchedulerName = "other" })},
			decision.FloorStatus{Spot: 2, FloorOnSpot: 1, FloorDeficit: 1, OverBudget: 1, Healable: 1},
		},
		"a rule gives pods of one group other floors": {
			nil,
			[]*v1.Pod{pod("task-a", "CloneSet", "c", asIs), pod("task-b", "CloneSet", "c", func(p *v1.Pod) { p.Spec.PriorityClassName = "critical" })},
			decision.FloorStatus{Spot: 2, FloorOnSpot: 2, FloorDeficit: 2, OverBudget: 2, Healable: 2},
		},
		"revisions of a Rollout with other counts and floors": {
			[]runtime.Object{
				withFloor(rolloutOf("shop", "stable", 1, "1", "1"), "100%"), // of the larger count
				withFloor(rolloutOf("shop", "canary", 1, "2", "2"), "1"),
			},
			[]*v1.Pod{pod("shop-a", "ReplicaSet", "stable", asIs), pod("shop-b", "ReplicaSet", "canary", asIs)},
			decision.FloorStatus{Spot: 2, FloorOnSpot: 2, FloorDeficit: 2, OverBudget: 2, Healable: 2},
		},
		"pods that admit only spot by the nodes that exist": {
			[]runtime.Object{replicaSet("web", ptr.To[int32](2))},
			[]*v1.Pod{
				pod("web-a", "ReplicaSet", "web", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "node"} }),
				pod("web-b", "ReplicaSet", "web", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "node"} }),
			},
			decision.FloorStatus{Spot: 2},
		},
		"an assigned node selector does not exempt": {
			[]runtime.Object{replicaSet("web", ptr.To[int32](2))},
			[]*v1.Pod{pod("web-a", "ReplicaSet", "web", asIs), pod("web-b", "ReplicaSet", "web", func(p *v1.Pod) {
				p.Spec.NodeSelector, p.Annotations = map[string]string{spot.CapacityLabel: "spot"}, map[string]string{spot.AssignedAnnotation: "spot: x"}
			})},
			decision.FloorStatus{Spot: 2, FloorOnSpot: 1, FloorDeficit: 1, OverBudget: 1, Healable: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := *builtinPolicy
			policy.Defaults.MinOnDemand = decision.Count(1)
			policy.Rules = []decision.Rule{{PriorityClasses: []string{"critical"}, Overrides: clustertest.Overrides("minOnDemand", "100%")}}
			owners := ownersIn(t, informers.NewSharedInformerFactory(fake.NewClientset(), 0), &policy, append(slices.Clone(test.owners), test.pods[0], test.pods[1])...)
			for _, pods := range [][]*v1.Pod{test.pods, {test.pods[1], test.pods[0]}} {
				statuses := owners.FloorStatuses(pods, workload.Scope{Profile: "s"}.Includes, nodes, noVolumes)
				if len(statuses) != 1 {
					t.Fatalf("%d workloads, want 1", len(statuses))
				}
				for _, s := range statuses {
					s.Misplaced = nil // in the order of the pods
					want := test.want
					want.Misplaced = nil
					if diff := cmp.Diff(want, s.FloorStatus); diff != "" {
						t.Errorf("%s first (-want +got):\n%s", pods[0].Name, diff)
					}
				}
			}
		})
	}
}

func withFloor(rs *appsv1.ReplicaSet, floor string) *appsv1.ReplicaSet {
	rs.Annotations[spot.MinOnDemandAnnotation] = floor
	return rs
}
