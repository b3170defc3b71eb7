package workload_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
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
	const gpu, pages = "nvidia.com/gpu", "hugepages-2Mi"
	has := func(n *v1.Node, resources ...string) *v1.Node {
		for pair := range slices.Chunk(resources, 2) {
			n.Status.Allocatable[v1.ResourceName(pair[0])] = resource.MustParse(pair[1])
		}
		return n
	}
	needs := func(name v1.ResourceName) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1") }
	}
	broken := node("od", "on-demand", "m/a")
	broken.Status.Capacity = v1.ResourceList{gpu: resource.MustParse("4")}
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
		"no constraints":                  {nodes: []*v1.Node{od, sp}},
		"a pool of spot nodes":            {nodes: []*v1.Node{od, sp}, pod: selects("pool", "sp"), spot: true},
		"a pool of on-demand nodes":       {nodes: []*v1.Node{od, sp}, pod: selects("pool", "od"), onDemand: true},
		"a pool without nodes":            {nodes: []*v1.Node{od, sp}, pod: selects("pool", "x")},
		"a pool of both":                  {nodes: []*v1.Node{od, sp, node("sp2", "spot", "m/a", "label=pool=od")}, pod: selects("pool", "od")},
		"affinity":                        {nodes: []*v1.Node{od, sp}, pod: affinity(in("sp", "x")), spot: true},
		"affinity to both":                {nodes: []*v1.Node{od, sp}, pod: affinity(in("sp"), in("od"))},
		"a host":                          {nodes: []*v1.Node{od, sp}, pod: selects(v1.LabelHostname, "sp"), spot: true},
		"a zone":                          {nodes: []*v1.Node{od, node("sp", "spot", "m/b")}, pod: selects(v1.LabelTopologyZone, "a"), onDemand: true},
		"a volume in a zone":              {nodes: []*v1.Node{od, node("sp", "spot", "m/b")}, volumes: volumeIn("b"), spot: true},
		"a volume in a zone of both":      {nodes: []*v1.Node{od, sp}, volumes: volumeIn("a")},
		"on-demand is tainted":            {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=team"), sp}, spot: true},
		"spot is tainted":                 {nodes: []*v1.Node{od, node("sp", "spot", "m/a", "taint=spot")}, onDemand: true},
		"a tolerated taint":               {nodes: []*v1.Node{od, node("sp", "spot", "m/a", "taint=spot")}, pod: func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "spot", Operator: v1.TolerationOpExists}} }},
		"on-demand of the control plane":  {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=node-role.kubernetes.io/control-plane"), sp}},
		"on-demand for add-ons":           {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=CriticalAddonsOnly"), sp}, pod: selects("pool", "sp")},
		"on-demand also for the rest":     {nodes: []*v1.Node{node("system", "on-demand", "m/a", "taint=CriticalAddonsOnly"), od, sp}, pod: selects("pool", "sp"), spot: true},
		"a node without a label yet":      {nodes: []*v1.Node{od, sp, node("new", "", "m/a", "born=0s", "label=pool=od2")}, pod: selects("pool", "sp"), spot: true},
		"a matching node without a label": {nodes: []*v1.Node{od, sp, node("new", "", "m/a", "born=0s", "label=pool=od")}, pod: selects("pool", "od")},
		"only such a node":                {nodes: []*v1.Node{od, node("new", "", "m/a", "born=0s", "label=pool=sp")}, pod: selects("pool", "sp")},
		"too many terms":                  {nodes: []*v1.Node{od, sp}, pod: affinity(append(many, in("sp"))...)},
		// Without nodes of the other type, only the name of a group is proof.
		"no on-demand":                      {nodes: []*v1.Node{sp}, pod: selects("pool", "sp")},
		"no spot":                           {nodes: []*v1.Node{od}, pod: selects("pool", "od")},
		"no on-demand, a zone":              {nodes: []*v1.Node{sp}, pod: selects(v1.LabelTopologyZone, "a")},
		"no on-demand, a volume in a zone":  {nodes: []*v1.Node{sp}, volumes: volumeIn("a")},
		"no on-demand, no constraints":      {nodes: []*v1.Node{sp}},
		"no on-demand, a host":              {nodes: []*v1.Node{sp}, pod: selects(v1.LabelHostname, "sp"), spot: true},
		"no on-demand, a node pool":         {nodes: []*v1.Node{node("sp", "spot", "m/a", "label=karpenter.sh/nodepool=x")}, pod: selects("karpenter.sh/nodepool", "x"), spot: true},
		"no nodes of the node pool":         {nodes: []*v1.Node{sp}, pod: selects("karpenter.sh/nodepool", "x")},
		"no on-demand, one without a label": {nodes: []*v1.Node{sp, node("new", "", "m/a", "born=0s")}, pod: selects("pool", "sp")},
		// A state that passes is no evidence.
		"on-demand is drained":            {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=karpenter.sh/disrupted"), sp}},
		"on-demand is interrupted":        {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=spot-aware-scheduler.io/interruption"), sp}},
		"on-demand is under pressure":     {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=node.kubernetes.io/memory-pressure"), sp}},
		"on-demand is cordoned":           {nodes: []*v1.Node{node("od", "on-demand", "m/a", "cordoned"), sp}},
		"on-demand is not ready":          {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=node.kubernetes.io/not-ready", "notready"), sp}},
		"on-demand is unregistered":       {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=karpenter.sh/unregistered"), sp}},
		"on-demand is uninitialized":      {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=node.cloudprovider.kubernetes.io/uninitialized"), sp}},
		"on-demand has no network yet":    {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=node.cilium.io/agent-not-ready"), sp}},
		"on-demand awaits its readiness":  {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=readiness.k8s.io/example.com/gpu-driver"), sp}},
		"on-demand, a marked start-up":    {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=startup-taint.cluster-autoscaler.kubernetes.io/x"), sp}},
		"on-demand, a start-up of a pool": {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x", "label=karpenter.sh/registered=true"), sp}},
		"young on-demand is tainted":      {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x", "born=29s"), sp}},
		"old enough on-demand is tainted": {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x", "born=30s"), sp}, spot: true},
		"tainted on-demand is cordoned":   {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x", "cordoned"), sp}},
		"tainted on-demand is not ready":  {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x", "notready"), sp}},
		"young spot is tainted":           {nodes: []*v1.Node{od, node("sp", "spot", "m/a", "taint=x", "born=29s")}},
		"another starts with the taint":   {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x"), node("new", "on-demand", "m/a", "taint=x", "born=0s"), sp}, spot: true},
		"another starts with its own":     {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x"), node("new", "on-demand", "m/a", "taint=y", "born=0s"), sp}},
		"another starts without a taint":  {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=x"), node("new", "on-demand", "m/a", "born=0s", "notready"), sp}},
		"another starts in another pool":  {nodes: []*v1.Node{od, node("new", "on-demand", "m/a", "born=0s", "label=pool=od"), sp}, pod: selects("pool", "sp"), spot: true},
		"another starts without a pool":   {nodes: []*v1.Node{od, node("new", "on-demand", "m/a", "born=0s"), sp}, pod: selects("pool", "sp")},
		"another remains without a pool":  {nodes: []*v1.Node{od, node("new", "on-demand", "m/a"), sp}, pod: selects("pool", "sp"), spot: true},
		"another starts without a zone":   {nodes: []*v1.Node{node("od", "on-demand", "m/b"), node("new", "on-demand", "m/b", "born=0s", "without="+v1.LabelTopologyZone), sp}, volumes: volumeIn("a")},
		"another starts in another zone":  {nodes: []*v1.Node{node("od", "on-demand", "m/b"), node("new", "on-demand", "m/b", "born=0s"), sp}, volumes: volumeIn("a"), spot: true},
		// A node excludes a pod whose extended resource it does not have.
		"GPUs on spot":                       {nodes: []*v1.Node{od, has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu), spot: true},
		"GPUs on on-demand":                  {nodes: []*v1.Node{has(node("od", "on-demand", "g/a"), gpu, "4"), sp}, pod: needs(gpu), onDemand: true},
		"GPUs on both":                       {nodes: []*v1.Node{has(node("od", "on-demand", "g/a"), gpu, "1"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"GPUs nowhere":                       {nodes: []*v1.Node{od, sp}, pod: needs(gpu)},
		"GPUs on spot, none needed":          {nodes: []*v1.Node{od, has(node("sp", "spot", "g/a"), gpu, "4")}},
		"GPUs of an init container":          {nodes: []*v1.Node{od, has(node("sp", "spot", "g/a"), gpu, "4")}, pod: func(p *v1.Pod) { needs(gpu)(p); p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil }, spot: true},
		"other GPUs on on-demand":            {nodes: []*v1.Node{has(node("od", "on-demand", "g/a"), "amd.com/gpu", "4"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu), spot: true},
		"huge pages, 0 on on-demand":         {nodes: []*v1.Node{has(node("od", "on-demand", "m/a"), pages, "0"), has(node("sp", "spot", "m/a"), pages, "1Gi")}, pod: needs(pages), spot: true},
		"unhealthy GPUs on on-demand":        {nodes: []*v1.Node{has(broken, gpu, "0"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"a device plugin may start":          {nodes: []*v1.Node{has(node("od", "on-demand", "g/a", "born=29s"), gpu, "0"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"a device plugin did not start":      {nodes: []*v1.Node{has(node("od", "on-demand", "g/a", "born=30s"), gpu, "0"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu), spot: true},
		"a device plugin may start again":    {nodes: []*v1.Node{od, node("od2", "on-demand", "g/a", "notready"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"Karpenter awaits its device":        {nodes: []*v1.Node{node("od", "on-demand", "g/a", "label=karpenter.sh/registered=true"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"another starts of the same type":    {nodes: []*v1.Node{od, node("new", "on-demand", "m/a", "born=0s"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu), spot: true},
		"another starts of another type":     {nodes: []*v1.Node{od, node("new", "on-demand", "g/a", "born=0s"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"another starts of an unknown type":  {nodes: []*v1.Node{node("od", "on-demand", "/a"), node("new", "on-demand", "/a", "born=0s"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"GPUs on spot, on-demand for system": {nodes: []*v1.Node{node("od", "on-demand", "m/a", "taint=CriticalAddonsOnly"), has(node("sp", "spot", "g/a"), gpu, "4")}, pod: needs(gpu)},
		"the first in another pool":          {nodes: []*v1.Node{node("od", "on-demand", "m/a", "born=0s", "label=pool=od"), sp}, pod: selects("pool", "sp"), spot: true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			pod := clustertest.NewPod("p")
			if test.pod != nil {
				test.pod(pod)
			}
			for _, reverse := range []bool{false, true} {
				if reverse {
					slices.Reverse(test.nodes)
				}
				evidence := evidenceOf(test.nodes...)
				for only, want := range map[decision.CapacityType]bool{decision.Spot: test.spot, decision.OnDemand: test.onDemand} {
					for range 2 { // the second answer is remembered
						if got := evidence.AdmitsOnly(pod, test.volumes, only); got != want {
							t.Errorf("admits only %s: %t, want %t", only, got, want)
						}
					}
				}
			}
		})
	}
}

func evidenceOf(nodes ...*v1.Node) *workload.NodeEvidence {
	evidence := workload.NewNodeEvidence(builtinPolicy)
	for _, n := range nodes {
		setNode(evidence, n, clustertest.Now)
	}
	return evidence
}

func setNode(evidence *workload.NodeEvidence, n *v1.Node, now time.Time) time.Time {
	return evidence.Set(n, builtinPolicy.Capacity(n.Labels, now.Sub(n.CreationTimestamp.Time)), now)
}

// An answer changes with the nodes, and not with their heartbeats or pods.
func TestEvidenceChanges(t *testing.T) {
	evidence := evidenceOf()
	pod := clustertest.NewPod("p")
	step := func(what string, want bool, nodes ...*v1.Node) {
		t.Helper()
		for _, n := range nodes {
			setNode(evidence, n, clustertest.Now)
		}
		if got := evidence.AdmitsOnly(pod, nil, decision.Spot); got != want {
			t.Errorf("%s: admits only spot: %t, want %t", what, got, want)
		}
	}
	node := clustertest.NewNode
	young := node("od", "on-demand", "m/a", "taint=x", "born=10s")
	step("only spot nodes exist", false, node("sp", "spot", "m/a"))
	step("a node starts", false, young)
	if until, want := setNode(evidence, young, clustertest.Now), clustertest.Now.Add(20*time.Second); !until.Equal(want) {
		t.Errorf("a young node is evidence at %v, want %v", until, want)
	}
	if until := setNode(evidence, young, clustertest.Now.Add(20*time.Second)); !until.IsZero() {
		t.Errorf("the node becomes evidence at %v, but it is now", until)
	}
	step("it still has its taint", true)
	step("it loses its taint", false, node("od", "on-demand", "m/a"))
	step("it is tainted again", true, node("od", "on-demand", "m/a", "taint=x"))
	step("it gets another label", true, node("od", "on-demand", "m/a", "taint=x", "label=a=b"))
	step("it is cordoned", false, node("od", "on-demand", "m/a", "taint=x", "cordoned"))
	step("it is uncordoned", true, node("od", "on-demand", "m/a", "taint=x"))
	pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	gpus := node("sp", "spot", "m/a")
	gpus.Status.Capacity = v1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	step("the pod needs a GPU", false, node("od", "on-demand", "m/a"))
	step("spot has GPUs", true, gpus)
	all := node("od", "on-demand", "m/a")
	all.Status.Capacity = gpus.Status.Capacity
	step("on-demand has GPUs too", false, all)
	step("it has none any more", true, node("od", "on-demand", "m/a", "taint=x"))
	step("it becomes spot", false, node("od", "spot", "m/a", "taint=x"))
	step("it becomes on-demand", true, node("od", "on-demand", "m/a", "taint=x"))
	evidence.Delete("od")
	step("it is deleted", false)
}

// Judge considers pods only if the plan keeps them off a capacity type.
func TestJudge(t *testing.T) {
	three := decision.Workload{Desired: 3}
	one, never := decision.WorkloadSettings{MinOnDemand: decision.Count(1)}, decision.WorkloadSettings{Overflow: decision.NeverOverflow}
	cases := map[string]struct {
		pod                        decision.Pod
		settings                   decision.WorkloadSettings
		placed                     decision.PlacedPods
		admits                     decision.CapacityType
		want, wantSpot, wantDemand bool
	}{
		"within the budget":         {pod: decision.Pod{Workload: three}, settings: one, admits: decision.Spot},
		"budget used up":            {pod: decision.Pod{Workload: three}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.Spot, want: true, wantSpot: true},
		"budget used up, on-demand": {pod: decision.Pod{Workload: three}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.OnDemand},
		"overflow Never":            {pod: decision.Pod{Workload: three}, settings: never, admits: decision.OnDemand, want: true, wantDemand: true},
		"overflow Never, spot":      {pod: decision.Pod{Workload: three}, settings: never, admits: decision.Spot},
		"by its own label":          {pod: decision.Pod{Workload: three, OnlyOnDemand: true}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.Spot, wantDemand: true},
		"neither type, on-demand":   {pod: decision.Pod{Workload: three}, settings: never, placed: decision.PlacedPods{Spot: 3}, admits: decision.OnDemand, want: true, wantDemand: true},
		"granted":                   {pod: decision.Pod{Workload: three, Granted: decision.GrantFallback}, settings: one, placed: decision.PlacedPods{Spot: 2}, admits: decision.Spot, want: true, wantSpot: true},
	}
	nodes := evidenceOf(clustertest.NewNode("od", "on-demand", "m/a"), clustertest.NewNode("sp", "spot", "m/b"))
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			plan := decision.NewPlan(&test.pod, test.settings, test.placed, decision.WaitTime{})
			pod := clustertest.NewPod("p")
			pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: map[decision.CapacityType]string{decision.OnDemand: "od", decision.Spot: "sp"}[test.admits]}
			got := nodes.Judge(pod, func(*v1.Pod) []*v1.PersistentVolume { return nil }, &test.pod, &plan)
			if got != test.want || test.pod.OnlySpot != test.wantSpot || test.pod.OnlyOnDemand != test.wantDemand {
				t.Errorf("Judge = %t, OnlySpot %t, OnlyOnDemand %t; want %t, %t, %t", got, test.pod.OnlySpot, test.pod.OnlyOnDemand, test.want, test.wantSpot, test.wantDemand)
			}
		})
	}
}

// A pod that was assigned to spot is not judged: the requirement is not its own.
func TestAssignedSpotIsNotJudged(t *testing.T) {
	pod := clustertest.NewPod("p")
	pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: "sp"}
	nodes := evidenceOf(clustertest.NewNode("od", "on-demand", "m/a"), clustertest.NewNode("sp", "spot", "m/b"))
	if !nodes.AdmitsOnly(pod, nil, decision.Spot) {
		t.Error("the pod does not admit only spot")
	}
	pod.Annotations = map[string]string{spot.AssignedAnnotation: "spot: test"}
	if nodes.AdmitsOnly(pod, nil, decision.Spot) {
		t.Error("the assigned pod admits only spot")
	}
}

// A pool that can add a node of the other type now is better evidence than nodes of another kind.
func TestPoolsBesideNodes(t *testing.T) {
	in := func(key string, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
	}
	both, team := in("karpenter.sh/capacity-type", "spot", "on-demand"), in("team", "apps")
	pool := func(requirements ...v1.NodeSelectorRequirement) *providers.NodePool {
		return &providers.NodePool{Requirements: requirements}
	}
	full, notReady, tainted, unused, small := pool(both, team), pool(both, team), pool(both, team), pool(both, team), pool(both, team)
	unused.Left, small.Left = v1.ResourceList{"nvidia.com/gpu": {}}, v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	full.Left, notReady.NotReady = v1.ResourceList{v1.ResourceCPU: {}}, true
	tainted.Taints = []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}}
	evidence := evidenceOf(clustertest.NewNode("od", "on-demand", "m/a"), clustertest.NewNode("sp", "spot", "m/a", "label=team=apps"))
	evidence.Pools = &workload.Pools{}
	pod := clustertest.NewPod("p")
	pod.Spec.NodeSelector = map[string]string{"team": "apps"}
	for _, test := range []struct {
		name         string
		pool         *providers.NodePool
		wantOnlySpot bool
	}{
		{"no pool", pool(both), true},
		{"a pool of both types", pool(both, team), false},
		{"at its limit", full, true},
		{"below its limit again", pool(both, team), false},
		{"at the limit of what the pod does not request", unused, false},
		{"at the limit of what the pod requests in part", small, true},
		{"not ready", notReady, true},
		{"tainted", tainted, true},
		{"of spot only", pool(in("karpenter.sh/capacity-type", "spot"), team), true},
		{"of another team", pool(both, in("team", "ads")), true},
		{"impossible requirements", pool(both, team, in(v1.LabelTopologyZone, "a"), in(v1.LabelTopologyZone, "b")), true},
		{"contradicting labels of two provisioners", pool(in("karpenter.sh/capacity-type", "on-demand"), in(spot.CapacityLabel, "spot"), team), true},
	} {
		impossible := pool(in("x", "1"), in("x", "2")) // it harms no other pool
		evidence.Pools.SetPools([]providers.NodePool{*impossible, *test.pool})
		for range 2 { // the second answer is remembered
			if got := evidence.AdmitsOnly(pod, nil, decision.Spot); got != test.wantOnlySpot {
				t.Errorf("%s: admits only spot: %t, want %t", test.name, got, test.wantOnlySpot)
			}
		}
	}
}

// An unbound claim counts as a volume in the topologies that its class allows, and a bound claim as
// its volume.
func TestVolumesOf(t *testing.T) {
	zones := func(values ...string) v1.TopologySelectorTerm {
		return v1.TopologySelectorTerm{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: v1.LabelTopologyZone, Values: values}}}
	}
	for name, test := range map[string]struct {
		class     string
		bound     bool // in zone b
		ephemeral bool
		allowed   []v1.TopologySelectorTerm
		want      bool // only on-demand, which is in zone a, has the volume
	}{
		"a zone of on-demand":         {class: "c", allowed: []v1.TopologySelectorTerm{zones("a")}, want: true},
		"an ephemeral volume":         {class: "c", ephemeral: true, allowed: []v1.TopologySelectorTerm{zones("a")}, want: true},
		"another zone too":            {class: "c", allowed: []v1.TopologySelectorTerm{zones("a", "b")}},
		"another term too":            {class: "c", allowed: []v1.TopologySelectorTerm{zones("a"), zones("b")}},
		"a term that no node matches": {class: "c", allowed: []v1.TopologySelectorTerm{zones("a"), {}}, want: true},
		"any zone":                    {class: "c"},
		"no class":                    {},
		"an unknown class":            {class: "other", allowed: []v1.TopologySelectorTerm{zones("a")}},
		"bound in another zone":       {class: "c", bound: true, allowed: []v1.TopologySelectorTerm{zones("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			volumesOf := workload.VolumesOf(factory)
			in := []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{"b"}}}
			clustertest.Fill(t, factory, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, AllowedTopologies: test.allowed},
				&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{
					Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: in}}}}}})
			claim := &v1.PersistentVolumeClaim{ObjectMeta: clustertest.Meta("p-data")}
			if test.class != "" {
				claim.Spec.StorageClassName = &test.class
			}
			if test.bound {
				claim.Spec.VolumeName = "pv"
			}
			clustertest.Fill(t, factory, claim)
			pod := clustertest.NewPod("p")
			volume := v1.Volume{Name: "data"}
			if volume.PersistentVolumeClaim = (&v1.PersistentVolumeClaimVolumeSource{ClaimName: "p-data"}); test.ephemeral {
				volume.VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
			}
			pod.Spec.Volumes = []v1.Volume{{Name: "tmp"}, volume}
			volumes := volumesOf(pod)
			nodes := evidenceOf(clustertest.NewNode("od", "on-demand", "m/a"), clustertest.NewNode("sp", "spot", "m/b"))
			if got := nodes.AdmitsOnly(pod, volumes, decision.OnDemand); got != test.want {
				t.Errorf("admits only on-demand: %t, want %t", got, test.want)
			}
			if again := volumesOf(pod); !slices.Equal(volumes, again) {
				t.Error("equal pods have other volumes")
			}
		})
	}
}
