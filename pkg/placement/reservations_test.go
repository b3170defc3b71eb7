package placement

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// These unlabeled nodes are reserved for these waiting pods, and these other pods may not use them.
func TestReserveUnlabeled(t *testing.T) {
	young := func(name string, edits ...func(*nodeInfo)) *nodeInfo {
		info := nodeOf(name, "", "a")
		info.node.CreationTimestamp = metav1.NewTime(now)
		for _, edit := range edits {
			edit(info)
		}
		return info
	}
	full := func(info *nodeInfo) { info.used.cpu = info.has.cpu }
	tainted := func(info *nodeInfo) {
		info.node.Spec.Taints = []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}}
	}
	waits := func(name string, edits ...func(*v1.Pod)) *v1.Pod {
		pod := requestingPod()
		pod.Name, pod.UID = name, types.UID(name)
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	inZone := func(zone string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: zone} }
	}
	tolerates := func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} }
	byName := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"young"}}}}},
		}}}
	}
	old := nodeOf("old", "", "a")
	cases := map[string]struct {
		node    *nodeInfo
		desired int // default 3, two may run on spot
		pod     *v1.Pod
		waiting []*v1.Pod
		want    decision.Verdict
	}{
		"no pod waits":                {node: young("young"), want: decision.Admitted},
		"a fitting pod waits":         {node: young("young"), waiting: []*v1.Pod{waits("w")}, want: decision.NodeReserved},
		"the second waiting pod fits": {node: young("young"), waiting: []*v1.Pod{waits("v", inZone("b")), waits("w")}, want: decision.NodeReserved},
		"the node is full":            {node: young("young", full), waiting: []*v1.Pod{waits("w")}, want: decision.Admitted},
		"the node is in another zone": {node: young("young"), waiting: []*v1.Pod{waits("w", inZone("b"))}, want: decision.Admitted},
		"the taint is not tolerated":  {node: young("young", tainted), waiting: []*v1.Pod{waits("w")}, want: decision.Admitted},
		"the taint is tolerated":      {node: young("young", tainted), waiting: []*v1.Pod{waits("w", tolerates)}, want: decision.NodeReserved},
		"the pod itself waits":        {node: young("young"), pod: waits("w"), waiting: []*v1.Pod{waits("w")}, want: decision.Admitted},
		"the pod names its nodes":     {node: young("young"), pod: waits("p", byName), waiting: []*v1.Pod{waits("w")}, want: decision.Admitted},
		"the pod needs on-demand too": {node: young("young"), desired: 1, waiting: []*v1.Pod{waits("w")}, want: decision.NodeSettling},
		"the node is old":             {node: old, waiting: []*v1.Pod{waits("w")}, want: decision.Admitted},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if test.desired == 0 {
				test.desired = 3
			}
			if test.pod == nil {
				test.pod = waits("p")
			}
			w, _, _ := newWaiting()
			for _, pod := range test.waiting {
				w.AddUnschedulable(pod, Wait{ForOnDemand: true})
			}
			w.AddUnschedulable(waits("indifferent"), Wait{})
			state := stateFor(test.desired, []*nodeInfo{nodeOf("spot", "spot", "a"), test.node})
			state.Pod = test.pod
			state.reserveUnlabeled(w.View(test.pod, Gang{}, false, state.Counter).onDemandFits)
			if got := state.Admit(test.node.node.Name); got != test.want {
				t.Errorf("verdict %d (%s), want %d", got, state.Plan.Reason(got), test.want)
			}
			if got, want := state.HasReserved(), test.want == decision.NodeReserved; got != want {
				t.Errorf("HasReserved = %t, want %t", got, want)
			}
		})
	}
}

// A narrow search omits nodes without a capacity label, like nodes with an advisory.
func TestSearchOmitsUnlabeledNodes(t *testing.T) {
	infos := cluster(group{"spot", "a", 150, nil}, group{"", "b", 150, func(info *nodeInfo) { info.node.CreationTimestamp = metav1.NewTime(now) }})
	state := stateFor(1000, infos)
	result, scope := state.Search(narrowed())
	if scope != FewNodes {
		t.Fatalf("scope %s, want %s", scope, FewNodes)
	}
	if diff := cmp.Diff(map[string]int{"spot-a": narrowNodes}, byGroup(result, infos)); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// A node is no longer reserved after its label grace.
func TestReservationEndsWithTheGrace(t *testing.T) {
	info := nodeOf("young", "", "a")
	info.node.CreationTimestamp = metav1.NewTime(now)
	infos := snapshot(nodeOf("spot", "spot", "a"), info)
	state := stateFor(3, []*nodeInfo{nodeOf("spot", "spot", "a"), info})
	state.Counter.Update(infos, now.Add(30*time.Second))
	w, _, _ := newWaiting()
	floor := requestingPod()
	floor.UID = "floor"
	w.AddUnschedulable(floor, Wait{ForOnDemand: true})
	after := NewState(state.Subject, state.Settings, decision.WaitTime{}, state.Counter)
	after.Pod = requestingPod()
	after.reserveUnlabeled(w.View(after.Pod, Gang{}, false, after.Counter).onDemandFits)
	if after.HasReserved() || after.Admit("young") != decision.Admitted {
		t.Errorf("the node is still reserved: verdict %d", after.Admit("young"))
	}
}
