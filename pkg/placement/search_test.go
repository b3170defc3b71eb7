package placement

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// cycleState implements the methods of CycleState that this package uses.
type cycleState struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func newCycle() cycleState { return cycleState{data: map[fwk.StateKey]fwk.StateData{}} }

func (c cycleState) Write(key fwk.StateKey, data fwk.StateData) { c.data[key] = data }

func (c cycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	if data, ok := c.data[key]; ok {
		return data, nil
	}
	return nil, fwk.ErrNotFound
}

// narrowed returns a cycle whose search may be narrow.
func narrowed() cycleState {
	cycle := newCycle()
	Narrow(cycle)
	return cycle
}

// requestingPod returns a pod that requests one CPU and one GiB.
func requestingPod() *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi"),
	}}}}}}
}

// group describes nodes of one capacity type in one zone. They are named after both.
type group struct {
	capacity, zone string
	n              int
	each           func(*nodeInfo)
}

func cluster(groups ...group) []*nodeInfo {
	var infos []*nodeInfo
	for _, g := range groups {
		for i := range g.n {
			info := nodeOf(fmt.Sprintf("%s-%s-%d", g.capacity, g.zone, i), g.capacity, g.zone)
			if g.each != nil {
				g.each(info)
			}
			infos = append(infos, info)
		}
	}
	return infos
}

// stateFor returns the state of a pod of the ReplicaSet "rs". All but one of desired may run on
// spot.
func stateFor(desired int, infos []*nodeInfo) *State {
	c := NewCounter(testReader())
	c.Update(snapshot(infos...), now)
	subject := &workload.Subject{RevisionKey: replicaSetKey("rs"), Pod: decision.Pod{Workload: decision.Workload{Desired: desired}}}
	state := NewState(subject, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}, decision.WaitTime{}, c)
	state.Pod = requestingPod()
	return state
}

// byGroup counts the nodes of a search result by group; nil if the search was not narrow.
func byGroup(result *fwk.PreFilterResult, infos []*nodeInfo) map[string]int {
	if result == nil {
		return nil
	}
	counts := map[string]int{}
	for _, info := range infos {
		if result.NodeNames.Has(info.node.Name) {
			counts[info.node.Labels[spot.CapacityLabel]+"-"+info.node.Labels[v1.LabelTopologyZone]]++
		}
	}
	return counts
}

// A search returns these numbers of nodes by capacity type and zone.
func TestSearch(t *testing.T) {
	full := func(info *nodeInfo) { info.used.cpu = info.has.cpu }
	sibling := func(info *nodeInfo) { info.pods = []fwk.PodInfo{podInfo{pod: podOf("on-"+info.node.Name, "rs")}} }
	advised := func(info *nodeInfo) {
		info.node.Spec.Taints = []v1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Effect: v1.TaintEffectPreferNoSchedule}}
	}
	onFloor := group{"on-demand", "f", 1, sibling} // meets the floor, so spot is preferred
	type search struct {
		desired int
		groups  []group
		pod     func(*v1.Pod)
		plan    func(*State)
	}
	noOverflow := func(s *State) {
		settings := s.Settings
		settings.Overflow = decision.NeverOverflow
		s.Plan = decision.NewPlan(&s.Subject.Pod, settings, s.Plan.Placed(), decision.WaitTime{})
	}
	cases := map[string]struct {
		search
		want map[string]int
	}{
		"the floor needs on-demand": {search{desired: 3, groups: []group{{"on-demand", "a", 200, nil}, {"spot", "a", 200, nil}}}, map[string]int{"on-demand-a": 16}},
		"spot is full: on-demand": {search{desired: 3, groups: []group{onFloor, {"on-demand", "a", 200, nil}, {"spot", "a", 200, full}}},
			map[string]int{"on-demand-a": 8, "on-demand-f": 1}},
		"spot is full, overflow Never: no on-demand": {search{desired: 3, groups: []group{onFloor, {"on-demand", "a", 200, nil}, {"spot", "a", 200, full}}, plan: noOverflow}, nil},
		"spot, overflow Never": {search{desired: 3, groups: []group{onFloor, {"on-demand", "a", 200, nil}, {"spot", "a", 200, nil}}, plan: noOverflow},
			map[string]int{"spot-a": 16}},
		"equal shares of the pools": {search{desired: 3, groups: []group{onFloor, {"spot", "a", 400, nil}, {"spot", "b", 60, nil}, {"spot", "c", 3, nil}}},
			map[string]int{"spot-a": 5, "spot-b": 5, "spot-c": 3}},
		"equal shares, small pool first": {search{desired: 3, groups: []group{onFloor, {"spot", "c", 3, nil}, {"spot", "b", 60, nil}, {"spot", "a", 400, nil}}},
			map[string]int{"spot-a": 7, "spot-b": 6, "spot-c": 3}},
		"pods that name their node": {search{desired: 3, groups: []group{{"on-demand", "a", 200, nil}}, pod: func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"on-demand-a-1"}}}}},
			}}}
		}}, nil},
		"a rare pool, listed last": {search{desired: 3, groups: []group{onFloor, {"on-demand", "a", 900, nil}, {"spot", "c", 10, nil}}}, map[string]int{"spot-c": 10}},
		"spot is full":             {search{desired: 3, groups: []group{onFloor, {"on-demand", "a", 200, nil}, {"spot", "a", 200, full}}}, map[string]int{"on-demand-a": 8, "on-demand-f": 1}},
		"one spot node has room": {search{desired: 3, groups: []group{onFloor, {"on-demand", "a", 200, nil}, {"spot", "a", 200, full}, {"spot", "b", 1, nil}}},
			map[string]int{"spot-b": 1}},
		"on-demand is full, no budget": {search{desired: 1, groups: []group{{"on-demand", "a", 200, full}, {"spot", "a", 200, nil}}}, nil},
		"all is full":                  {search{desired: 3, groups: []group{{"on-demand", "a", 200, full}, {"spot", "a", 200, full}}}, nil},
		"a small cluster":              {search{desired: 3, groups: []group{{"on-demand", "a", 100, nil}}}, nil},
		"memory":                       {search{desired: 3, groups: []group{{"on-demand", "a", 150, func(i *nodeInfo) { i.used.memory = i.has.memory }}, {"on-demand", "b", 3, nil}}}, map[string]int{"on-demand-b": 3}},
		"number of pods":               {search{desired: 3, groups: []group{{"on-demand", "a", 150, func(i *nodeInfo) { i.has.pods = 0 }}, {"on-demand", "b", 3, nil}}}, map[string]int{"on-demand-b": 3}},
		"unschedulable":                {search{desired: 3, groups: []group{{"on-demand", "a", 150, func(i *nodeInfo) { i.node.Spec.Unschedulable = true }}, {"on-demand", "b", 3, nil}}}, map[string]int{"on-demand-b": 3}},
		"taints":                       {search{desired: 3, groups: []group{{"on-demand", "a", 150, tainted(v1.TaintEffectNoSchedule)}, {"on-demand", "b", 3, nil}}}, map[string]int{"on-demand-b": 3}},
		"PreferNoSchedule taints":      {search{desired: 3, groups: []group{{"on-demand", "a", 150, tainted(v1.TaintEffectPreferNoSchedule)}}}, map[string]int{"on-demand-a": 16}},
		"tolerated taints":             {search{desired: 3, groups: []group{{"on-demand", "a", 150, tainted(v1.TaintEffectNoExecute)}}, pod: func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "team", Operator: v1.TolerationOpExists}} }}, map[string]int{"on-demand-a": 16}},
		"node selector":                {search{desired: 3, groups: []group{{"on-demand", "a", 150, nil}, {"on-demand", "b", 150, nil}}, pod: func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "b"} }}, map[string]int{"on-demand-b": 8}},
		"an extended resource of few nodes": {search{desired: 3, groups: []group{{"on-demand", "a", 150, nil}, {"on-demand", "b", 3, func(i *nodeInfo) { i.has.scalar = map[v1.ResourceName]int64{"example.com/gpu": 1} }}},
			pod: func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1") }}, map[string]int{"on-demand-b": 3}},
		"ephemeral storage of few nodes": {search{desired: 3, groups: []group{{"on-demand", "a", 150, nil}, {"on-demand", "b", 3, func(i *nodeInfo) { i.has.ephemeral = 1 << 30 }}},
			pod: func(p *v1.Pod) {
				p.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
			}}, map[string]int{"on-demand-b": 3}},
		"an advisory signal": {search{desired: 3, groups: []group{{"on-demand", "a", 150, advised}, {"on-demand", "b", 3, nil}}}, map[string]int{"on-demand-b": 3}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			infos := cluster(test.groups...)
			pod := requestingPod()
			if test.pod != nil {
				test.pod(pod)
			}
			s := stateFor(test.desired, infos)
			if test.plan != nil {
				test.plan(s)
			}
			s.Pod = pod
			result, scope := s.Search(narrowed())
			if diff := cmp.Diff(test.want, byGroup(result, infos)); diff != "" {
				t.Errorf("nodes to search (-want +got):\n%s", diff)
			}
			if want := map[bool]Scope{true: AllNodes, false: FewNodes}[test.want == nil]; scope != want {
				t.Errorf("scope %q, want %q", scope, want)
			}
		})
	}
}

func tainted(effect v1.TaintEffect) func(*nodeInfo) {
	return func(info *nodeInfo) { info.node.Spec.Taints = []v1.Taint{{Key: "team", Value: "a", Effect: effect}} }
}

// Nodes without siblings and without taints PreferNoSchedule are preferred. Other nodes fill the
// rest.
func TestSearchAvoids(t *testing.T) {
	for name, each := range map[string]func(*nodeInfo){
		"siblings": func(i *nodeInfo) { i.pods = []fwk.PodInfo{podInfo{pod: podOf("p-"+i.node.Name, "rs")}} },
		"taints":   tainted(v1.TaintEffectPreferNoSchedule),
	} {
		infos := cluster(group{"on-demand", "a", 300, nil})
		for i, info := range infos {
			if i != 7 && i != 250 {
				each(info)
			}
		}
		s := stateFor(1, infos)
		for range 3 {
			result, _ := s.Search(narrowed())
			if !result.NodeNames.HasAll("on-demand-a-7", "on-demand-a-250") || len(result.NodeNames) != 16 {
				t.Errorf("%s: %d nodes to search; want 16, including both without them", name, len(result.NodeNames))
			}
		}
	}
}

// If every node with room has siblings, nodes with the fewest siblings are preferred.
func TestSearchPrefersFewerSiblings(t *testing.T) {
	infos := cluster(group{"on-demand", "a", 300, nil})
	for i, info := range infos {
		siblings := 3
		switch {
		case i < 190:
			info.used.cpu, siblings = info.has.cpu, 0
		case i%10 == 0:
			siblings = 2
		}
		for j := range siblings {
			info.pods = append(info.pods, podInfo{pod: podOf(fmt.Sprintf("p-%d-%d", i, j), "rs")})
		}
	}
	result, _ := stateFor(1, infos).Search(narrowed())
	got := map[int]int{}
	for _, info := range infos {
		if result.NodeNames.Has(info.node.Name) {
			got[len(info.pods)]++
		}
	}
	if diff := cmp.Diff(map[int]int{2: 11, 3: 5}, got); diff != "" {
		t.Errorf("nodes to search by their siblings (-want +got):\n%s", diff)
	}
}

// If there are more pools than nodes in a search, pools with the fewest siblings in their zone are
// preferred. Equal pools take turns.
func TestSearchOfManyPools(t *testing.T) {
	var groups []group
	for i := range 75 {
		groups = append(groups, group{"on-demand", fmt.Sprint(i), 2, nil}, group{"on-demand", fmt.Sprint(i), 2, func(info *nodeInfo) {
			info.node.Name += "-large"
			info.node.Labels[v1.LabelInstanceTypeStable] = "l"
		}})
	}
	infos := cluster(groups...)
	s, turns := stateFor(1, infos), map[string]int{}
	for range 150 {
		result, _ := s.Search(narrowed())
		for name := range result.NodeNames {
			turns[name]++
		}
	}
	for _, info := range infos {
		if got := turns[info.node.Name]; got != 50 {
			t.Errorf("%s was in %d of 150 searches, want 50: 100 of 150 pools each time, and one of their two nodes", info.node.Name, got)
		}
	}

	for _, info := range infos[:100] { // a sibling in one of the two pools of the first 25 zones
		if info.node.Labels[v1.LabelInstanceTypeStable] == "m" {
			info.pods = []fwk.PodInfo{podInfo{pod: podOf("on-"+info.node.Name, "rs")}}
		}
	}
	result, _ := stateFor(1, infos).Search(narrowed())
	got := byGroup(result, infos)
	for zone := range 75 {
		if want := 2 * min(zone/25, 1); got[fmt.Sprintf("on-demand-%d", zone)] != want {
			t.Errorf("%d nodes of zone %d, want %d", got[fmt.Sprintf("on-demand-%d", zone)], zone, want)
		}
	}

	for _, info := range infos[4:] { // one zone has room, and its pools are last
		info.used.cpu = info.has.cpu
	}
	result, _ = stateFor(1, infos).Search(narrowed())
	if diff := cmp.Diff(map[string]int{"on-demand-0": 3}, byGroup(result, infos)); diff != "" {
		t.Errorf("nodes to search if most are full (-want +got):\n%s", diff)
	}
}

// All nodes take turns, and so do all equal pools.
func TestSearchesTakeTurns(t *testing.T) {
	infos := cluster(group{"on-demand", "a", 32, nil}, group{"on-demand", "b", 80, nil})
	s := stateFor(1, infos)
	turns := map[string]int{}
	for range 20 {
		result, _ := s.Search(narrowed())
		for name := range result.NodeNames {
			turns[name]++
		}
	}
	for _, info := range infos {
		want := map[string]int{"a": 20 * 8 / 32, "b": 20 * 8 / 80}[info.node.Labels[v1.LabelTopologyZone]]
		if turns[info.node.Name] != want {
			t.Errorf("%s was in %d of 20 searches, want %d", info.node.Name, turns[info.node.Name], want)
		}
	}
}

// A search has one node of each pool if there are many, and more nodes for a pod that other plugins
// may have preferences or further requirements for.
func TestNodesToSearch(t *testing.T) {
	prefers := func(expressions ...v1.NodeSelectorRequirement) v1.PodSpec {
		terms := make([]v1.PreferredSchedulingTerm, len(expressions))
		for i, e := range expressions {
			terms[i].Preference.MatchExpressions = []v1.NodeSelectorRequirement{e}
		}
		return v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}}
	}
	in := func(key string, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
	}
	const karpenter = "karpenter.sh/capacity-type"
	named := prefers(v1.NodeSelectorRequirement{})
	named.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Preference = v1.NodeSelectorTerm{
		MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{"n"}}},
	}
	required := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpExists},
	}}}}
	cases := map[string]struct {
		pools int
		spec  v1.PodSpec
		want  int
	}{
		"one pool":                {1, v1.PodSpec{}, 16},
		"12 pools":                {12, v1.PodSpec{}, 16},
		"60 pools":                {60, v1.PodSpec{}, 60},
		"120 pools":               {120, v1.PodSpec{}, 100},
		"preferred node affinity": {12, prefers(in(spot.CapacityLabel, "spot"), in(v1.LabelTopologyZone, "a")), 100},
		"preferred node name":     {12, named, 100},
		"preferred capacity type": {12, prefers(in(spot.CapacityLabel, "spot"), in(karpenter, "on-demand", "reserved")), 16},
		"preferred reservations":  {12, prefers(in(karpenter, "reserved")), 100},
		"required node affinity":  {12, v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}}, 16},
		"pod affinity":            {12, v1.PodSpec{Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{}}}, 100},
		"pod anti-affinity":       {12, v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}}}, 100},
		"spread constraint":       {12, v1.PodSpec{TopologySpreadConstraints: make([]v1.TopologySpreadConstraint, 1)}, 100},
		"resource claim":          {12, v1.PodSpec{ResourceClaims: make([]v1.PodResourceClaim, 1)}, 100},
		"volume claim":            {12, v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}}}, 100},
		"ephemeral volume":        {12, v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}}, 100},
		"configuration":           {12, v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}}}, 16},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			groups := make([]group, test.pools)
			for i := range groups {
				groups[i] = group{"on-demand", fmt.Sprint("z", i), 1200 / test.pools, nil}
			}
			infos := cluster(groups...)
			s := stateFor(1, infos)
			s.Pod = &v1.Pod{Spec: test.spec}
			result, _ := s.Search(narrowed())
			if zones := byGroup(result, infos); len(result.NodeNames) != test.want || len(zones) != min(test.pools, maxNarrowNodes) {
				t.Errorf("%d nodes of %d pools, want %d of %d", len(result.NodeNames), len(zones), test.want, min(test.pools, maxNarrowNodes))
			}
		})
	}
}

// Narrow and Widen change a cycle as follows.
func TestNarrowAndWiden(t *testing.T) {
	infos := cluster(group{"on-demand", "a", 200, nil})
	s, cycle := stateFor(1, infos), newCycle()
	expect := func(step string, want Scope, wantWiden bool) {
		t.Helper()
		result, scope := s.Search(cycle)
		if scope != want || (result == nil) != (want != FewNodes) {
			t.Errorf("%s: scope %q and %v, want %q", step, scope, result, want)
		}
		if got := Widen(cycle); got != wantWiden {
			t.Errorf("%s: Widen = %t, want %t", step, got, wantWiden)
		}
	}
	expect("not narrowed", AllNodes, false)
	Narrow(cycle)
	expect("narrowed", FewNodes, true)
	expect("widened", AllAfterFew, false)
	Narrow(cycle)
	expect("narrowed again", FewNodes, true)
}
