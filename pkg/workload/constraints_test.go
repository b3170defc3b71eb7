package workload_test

import (
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The nodes decide which capacity types a selector, a toleration or a volume admits.
func TestAdmitsOnly(t *testing.T) {
	node := clustertest.NewNode
	od, sp := node("od", "on-demand", "m/a", "label=pool=od"), node("sp", "spot", "m/a", "label=pool=sp")
	selects := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
	}
	affinity := func(terms ...v1.NodeSelectorTerm) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
		}
	}
	in := func(values ...string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "pool", Operator: v1.NodeSelectorOpIn, Values: values}}}
	}
	volumeIn := func(zone string) []*v1.PersistentVolume {
		required := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}}}
		return []*v1.PersistentVolume{{Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{Required: required}}}}
	}
	many := make([]v1.NodeSelectorTerm, workload.MaxTerms)
	for i := range many {
		many[i] = in("sp" + strconv.Itoa(i))
	}
	cases := map[string]struct {
		nodes          []*v1.Node
		pod            func(*v1.Pod)
		volumes        []*v1.PersistentVolume
		spot, onDemand bool
	}{
		"no constraints":                    {nodes: []*v1.Node{od, sp}},
		"a pool of spot nodes":              {nodes: []*v1.Node{od, sp}, pod: selects("pool", "sp"), spot: true},
		"a pool of on-demand nodes":         {nodes: []*v1.Node{od, sp}, pod: selects("pool", "od"), onDemand: true},
		"a pool without nodes":              {nodes: []*v1.Node{od, sp}, pod: selects("pool", "x")},
		"a pool of both":                    {nodes: []*v1.Node{od, sp, node("sp2", "spot", "m/a", "label=pool=od")}, pod: selects("pool", "od")},
		"affinity":                          {nodes: []*v1.Node{od, sp}, pod: affinity(in("sp", "x")), spot: true},
		"affinity to both":                  {nodes: []*v1.Node{od, sp}, pod: affinity(in("sp"), in("od"))},
		"a host":                            {nodes: []*v1.Node{od, sp}, pod: selects(v1.LabelHostname, "sp"), spot: true},
		"a zone":                            {nodes: []*v1.Node{od, node("sp", "spot", "m/b")}, pod: selects(v1.LabelTopologyZone, "a"), onDemand: true},
		"a volume in a zone":                {nodes: []*v1.Node{od, node("sp", "spot", "m/b")}, volumes: volumeIn("b"), spot: true},
		"a volume in a zone of both":        {nodes: []*v1.Node{od, sp}, volumes: volumeIn("a")},
		"on-demand is tainted":              {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=team"), sp}, spot: true},
		"spot is tainted":                   {nodes: []*v1.Node{od, node("sp", "spot", "m/a", "taint=spot")}, onDemand: true},
		"a tolerated taint":                 {nodes: []*v1.Node{od, node("sp", "spot", "m/a", "taint=spot")}, pod: func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "spot", Operator: v1.TolerationOpExists}} }},
		"on-demand is drained":              {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=karpenter.sh/disrupted"), sp}},
		"on-demand is not ready":            {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=node.kubernetes.io/not-ready", "cordoned"), sp}},
		"no on-demand":                      {nodes: []*v1.Node{sp}, pod: selects("pool", "sp")},
		"no spot":                           {nodes: []*v1.Node{od}, pod: selects("pool", "od")},
		"on-demand of the control plane":    {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=node-role.kubernetes.io/control-plane"), sp}},
		"on-demand for add-ons":             {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=CriticalAddonsOnly"), sp}, pod: selects("pool", "sp")},
		"on-demand also for the rest":       {nodes: []*v1.Node{node("system", "on-demand", "m/a", "taint=CriticalAddonsOnly"), od, sp}, pod: selects("pool", "sp"), spot: true},
		"a node without a label yet":        {nodes: []*v1.Node{od, sp, node("new", "", "m/a", "born=0s", "label=pool=sp")}, pod: selects("pool", "sp"), spot: true},
		"a matching node without a label":   {nodes: []*v1.Node{od, sp, node("new", "", "m/a", "born=0s", "label=pool=od")}, pod: selects("pool", "od")},
		"no on-demand, one without a label": {nodes: []*v1.Node{sp, node("new", "", "m/a", "born=0s")}, pod: selects("pool", "sp")},
		"too many terms":                    {nodes: []*v1.Node{od, sp}, pod: affinity(append(many, in("sp"))...)},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var nodes workload.Nodes
			for _, n := range test.nodes {
				nodes.Add(n, builtinPolicy.Capacity(n.Labels, clustertest.Now.Sub(n.CreationTimestamp.Time)).Type)
			}
			pod := clustertest.NewPod("p")
			if test.pod != nil {
				test.pod(pod)
			}
			judge := workload.NewJudge(nodes.Of)
			for only, want := range map[decision.CapacityType]bool{decision.Spot: test.spot, decision.OnDemand: test.onDemand} {
				if got := workload.AdmitsOnly(pod, test.volumes, only, nodes.Of); got != want {
					t.Errorf("admits only %s: %t, want %t", only, got, want)
				}
				for range 2 { // the second answer is from the cache
					if got := judge(pod, test.volumes, only); got != want {
						t.Errorf("judged: admits only %s: %t, want %t", only, got, want)
					}
				}
			}
		})
	}
}

// Pods are judged only if the plan keeps them off a capacity type, and never after an assignment of
// spot.
func TestJudge(t *testing.T) {
	three := decision.Workload{Desired: 3}
	one, never := decision.WorkloadSettings{MinOnDemand: decision.Count(1)}, decision.WorkloadSettings{Overflow: decision.NeverOverflow}
	cases := map[string]struct {
		pod      decision.Pod
		settings decision.WorkloadSettings
		placed   decision.PlacedPods
		admits   decision.CapacityType
		asked    int
		want     bool
	}{
		"within the budget":         {pod: decision.Pod{Workload: three}, settings: one, admits: decision.Spot},
		"budget used up":            {pod: decision.Pod{Workload: three}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.Spot, asked: 1, want: true},
		"budget used up, on-demand": {pod: decision.Pod{Workload: three}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.OnDemand, asked: 1},
		"overflow Never":            {pod: decision.Pod{Workload: three}, settings: never, admits: decision.OnDemand, asked: 1, want: true},
		"overflow Never, spot":      {pod: decision.Pod{Workload: three}, settings: never, admits: decision.Spot, asked: 1},
		"by its own label":          {pod: decision.Pod{Workload: three, OnlyOnDemand: true}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.Spot},
		"assigned spot":             {pod: decision.Pod{Workload: three, Assigned: decision.AssignedSpot}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.Spot},
		"neither type, on-demand":   {pod: decision.Pod{Workload: three}, settings: never, placed: decision.PlacedPods{Spot: 3}, admits: decision.OnDemand, asked: 2, want: true},
		"granted":                   {pod: decision.Pod{Workload: three, Granted: decision.GrantFallback}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.Spot, asked: 1, want: true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			plan, asked := decision.NewPlan(&test.pod, test.settings, test.placed, decision.WaitTime{}), 0
			before := test.pod
			got := workload.Judge(&test.pod, &plan, func(only decision.CapacityType) bool { asked++; return only == test.admits })
			set := test.pod.OnlySpot != before.OnlySpot || test.pod.OnlyOnDemand != before.OnlyOnDemand
			if got != test.want || set != test.want || asked != test.asked {
				t.Errorf("Judge = %t, set %t after %d questions; want %t after %d", got, set, asked, test.want, test.asked)
			}
		})
	}
}
