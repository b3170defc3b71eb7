package simulation_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// A pod without evidence by nodes fits no new spot node if no pool can add one for it.
func TestFitsPools(t *testing.T) {
	in := func(key string, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
	}
	spotOnly, both := in("karpenter.sh/capacity-type", "spot"), in("karpenter.sh/capacity-type", "spot", "on-demand")
	onDemandOnly, zone := in("karpenter.sh/capacity-type", "on-demand"), in(v1.LabelTopologyZone, "a")
	taint := []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}}
	pool := func(taints []v1.Taint, full bool, requirements ...v1.NodeSelectorRequirement) providers.NodePool {
		left := v1.ResourceList{v1.ResourceCPU: resource.MustParse("9"), "nvidia.com/gpu": {}} // no GPUs, which the pod does not need
		if full {
			left[v1.ResourceCPU] = resource.MustParse("500m")
		}
		return providers.NodePool{Taints: taints, Left: left, Requirements: requirements}
	}
	const noSpot = "node o on-demand m/a\ndeployment x 1 o"
	const otherSpot = "node o on-demand m/a\nnode s spot m/a taint=u\ndeployment x 1 o"
	notReady := pool(nil, false, both)
	notReady.NotReady = true
	for name, test := range map[string]struct {
		cluster string
		pools   []providers.NodePool
		want    bool
	}{
		"no pools":                              {noSpot, nil, true},
		"a spot pool":                           {noSpot, []providers.NodePool{pool(nil, false, spotOnly, zone)}, true},
		"a tainted spot pool":                   {noSpot, []providers.NodePool{pool(taint, false, spotOnly)}, false},
		"a soft taint":                          {noSpot, []providers.NodePool{pool([]v1.Taint{{Key: "t", Effect: v1.TaintEffectPreferNoSchedule}}, false, spotOnly)}, true},
		"a tolerated taint":                     {noSpot + " tolerates=t", []providers.NodePool{pool(taint, false, spotOnly)}, true},
		"a full spot pool":                      {noSpot, []providers.NodePool{pool(nil, true, spotOnly)}, false},
		"one of two spot pools is full":         {noSpot, []providers.NodePool{pool(nil, true, spotOnly), pool(nil, false, spotOnly)}, true},
		"a pool of both types":                  {noSpot, []providers.NodePool{pool(nil, true, spotOnly), pool(nil, false, both)}, true},
		"a pool of any type":                    {noSpot, []providers.NodePool{pool(taint, false, spotOnly), pool(nil, false, zone)}, true},
		"pools without spot":                    {noSpot, []providers.NodePool{pool(nil, false, onDemandOnly)}, true},
		"a spot node of another pool":           {"node o on-demand m/a\nnode s spot m/a\ndeployment x 1 o", []providers.NodePool{pool(taint, false, spotOnly)}, true},
		"spot of another kind, no pools":        {otherSpot, nil, false},
		"spot of another kind, a pool":          {otherSpot, []providers.NodePool{pool(nil, false, both, zone)}, true},
		"spot of another kind, a full pool":     {otherSpot, []providers.NodePool{pool(nil, true, both)}, false},
		"spot of another kind, not ready":       {otherSpot, []providers.NodePool{notReady}, false},
		"spot of another kind, a tainted pool":  {otherSpot, []providers.NodePool{pool(taint, false, both)}, false},
		"spot of another kind, without spot":    {otherSpot, []providers.NodePool{pool(nil, false, onDemandOnly)}, false},
		"spot of another kind, in its zone":     {otherSpot + " zone=a", []providers.NodePool{pool(nil, false, both, in(v1.LabelTopologyZone, "b", "a"))}, true},
		"spot of another kind, in another zone": {otherSpot + " zone=a", []providers.NodePool{pool(nil, false, both, in(v1.LabelTopologyZone, "b"))}, false},
		"it could run on no node at all":        {noSpot + " zone=c", []providers.NodePool{pool(taint, false, spotOnly)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			s := w.Snapshot()
			k := &simulation.Provisioning{Policy: &w.Policy}
			k.SetPools(test.pools)
			if got := k.Feasibility(s).FitsNewNode(clustertest.Find(t, s, "x-0"), decision.AssignedSpot); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}

// A pod with GPUs fits no new on-demand node if only spot nodes have GPUs, and no pool may add
// others.
func TestFitsDevices(t *testing.T) {
	in := func(key string, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
	}
	onDemand, general := in("karpenter.sh/capacity-type", "on-demand"), in("karpenter.k8s.aws/instance-category", "c", "m", "r")
	for name, test := range map[string]struct {
		spot, onDemand, vanished string // their GPUs
		pools                    []providers.NodePool
		want                     bool
	}{
		"only spot":                            {spot: "4", want: false},
		"both":                                 {spot: "4", onDemand: "1", want: true},
		"neither":                              {want: true},
		"on-demand existed":                    {spot: "4", vanished: "1", want: true},
		"a pool that may have GPUs":            {spot: "4", pools: []providers.NodePool{{Requirements: []v1.NodeSelectorRequirement{onDemand}}}, want: true},
		"a pool that cannot":                   {spot: "4", pools: []providers.NodePool{{Requirements: []v1.NodeSelectorRequirement{onDemand, general}}}, want: false},
		"a pool that may, but is at its limit": {spot: "4", pools: []providers.NodePool{{Left: v1.ResourceList{"nvidia.com/gpu": {}}}}, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("deployment x 1 s")
			node := func(name, capacity, gpus string) *v1.Node {
				n := clustertest.NewNode(name, capacity, "m/a")
				if gpus != "" {
					n.Status.Capacity = v1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}
					n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse(gpus)
				}
				w.Put(n)
				return n
			}
			node("s", "spot", test.spot)
			node("o", "on-demand", test.onDemand)
			old := node("old", "on-demand", test.vanished)
			w.Pods["x-0"].Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
			k := &simulation.Provisioning{Policy: &w.Policy}
			k.SetPools(test.pools)
			k.Feasibility(w.Snapshot())
			w.Remove(old)
			s := w.Snapshot()
			if got := k.Feasibility(s).FitsLater(clustertest.Find(t, s, "x-0"), decision.AssignedOnDemand); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}

// A pool that refused a revision lately is no evidence for it.
func TestFitsNoPoolThatRefused(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node o on-demand m/a\nnode s spot m/a taint=u\ndeployment x 1 o")
	s := w.Snapshot()
	x := clustertest.Find(t, s, "x-0")
	k := &simulation.Provisioning{Policy: &w.Policy}
	k.SetPools([]providers.NodePool{{}})
	if !k.Feasibility(s).FitsLater(x, decision.AssignedSpot) {
		t.Error("no new node before the refusal")
	}
	k.Refuse(x.Revision.Key, decision.AssignedSpot, s.Now.Add(-time.Minute))
	if k.Feasibility(s).FitsLater(x, decision.AssignedSpot) {
		t.Error("a new node after the refusal")
	}
}

// Nodes that vanished still count, for a limited time.
func TestVanishedNodes(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node o on-demand m/a\nnode s spot m/b\nnode t spot m/a taint=t\ndeployment x 1 o zone=a")
	node := clustertest.NewNode("u", "spot", "m/a")
	w.Put(node)
	k := &simulation.Provisioning{Policy: &w.Policy}
	fits := func(after time.Duration) bool {
		s := w.Snapshot()
		s.Now = clustertest.Now.Add(after)
		return k.Feasibility(s).FitsNewNode(clustertest.Find(t, s, "x-0"), decision.AssignedSpot)
	}
	if !fits(0) {
		t.Error("no new node like u, which exists")
	}
	w.Remove(node)
	if !fits(24 * time.Hour) {
		t.Error("no new node like u, which existed yesterday")
	}
	if fits(8 * 24 * time.Hour) {
		t.Error("a new node like u, which vanished more than a week ago")
	}
	// The number of kinds is limited: the oldest one is forgotten.
	w.Put(node)
	fits(8 * 24 * time.Hour)
	for i := range 400 {
		w.Remove(node)
		node = clustertest.NewNode("v", "spot", fmt.Sprintf("m%d/b", i))
		w.Put(node)
		fits(8*24*time.Hour + time.Duration(i)*time.Minute)
	}
	if fits(8*24*time.Hour + 400*time.Minute) {
		t.Error("u counts after 400 other kinds")
	}
}

// A node gets the taints of its pool when Karpenter registers it. Before, it is no evidence.
func TestUnregisteredNode(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node o on-demand m/a\ndeployment x 1 o")
	k := &simulation.Provisioning{Policy: &w.Policy}
	for _, taint := range []string{"karpenter.sh/unregistered", "dedicated"} {
		node := clustertest.NewNode("s", "spot", "m/a", "taint="+taint)
		w.Put(node)
		s := w.Snapshot()
		fits := k.Feasibility(s).FitsNewNode(clustertest.Find(t, s, "x-0"), decision.AssignedSpot)
		if taint == "dedicated" && fits {
			t.Error("a new spot node without the taint, which no registered node lacked")
		}
		w.Remove(node)
	}
}

// A refusal ends, and concerns one revision and one capacity type.
func TestRefusals(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node o on-demand m/a\nnode s spot m/a\ndeployment x 1 o\ndeployment y 1 o")
	k, s := &simulation.Provisioning{}, w.Snapshot()
	x, y := clustertest.Find(t, s, "x-0"), clustertest.Find(t, s, "y-0")
	k.Refuse(x.Revision.Key, decision.AssignedSpot, s.Now)
	f := k.Feasibility(s)
	if f.FitsNewNode(x, decision.AssignedSpot) || !f.FitsNewNode(x, decision.AssignedOnDemand) || !f.FitsNewNode(y, decision.AssignedSpot) {
		t.Error("the refusal does not concern exactly x on spot")
	}
	s.Now = s.Now.Add(time.Hour)
	if !f.FitsNewNode(x, decision.AssignedSpot) {
		t.Error("the refusal does not end")
	}
}

// A refusal ends if a pod of the revision runs on a younger node of the capacity type.
func TestRevisedRefusal(t *testing.T) {
	for name, test := range map[string]struct {
		node string
		ends bool
	}{
		"younger spot node":      {"node n spot m/a born=1m", true},
		"older spot node":        {"node n spot m/a born=10m", false},
		"younger on-demand node": {"node n on-demand m/a born=1m", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("node o on-demand m/a\n" + test.node + "\ndeployment x 2 o n\ndeployment y 2 o o")
			k, s := &simulation.Provisioning{}, w.Snapshot()
			x, y := clustertest.Find(t, s, "x-0"), clustertest.Find(t, s, "y-0")
			for _, p := range []*snapshot.Pod{x, y} {
				k.Refuse(p.Revision.Key, decision.AssignedSpot, s.Now.Add(-5*time.Minute))
			}
			k.Feasibility(s)
			if ends := !k.Refused(x.Revision.Key, decision.AssignedSpot, s.Now); ends != test.ends {
				t.Errorf("the refusal ends: %t, want %t", ends, test.ends)
			}
			if !k.Refused(y.Revision.Key, decision.AssignedSpot, s.Now) {
				t.Error("the refusal of another revision ends")
			}
		})
	}
}

// A new leader knows the refusals and the vanished nodes that the old one knew. It reads what it
// must know about the nodes of NodePools from the NodePools.
func TestNewLeader(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node o on-demand m/a\nnode s spot m/a taint=t\ndeployment x 1 o")
	gone, pooled := clustertest.NewNode("u", "spot", "m/a"), clustertest.NewNode("v", "spot", "m/a", "label=karpenter.sh/nodepool=p")
	w.Put(gone)
	w.Put(pooled)
	memory := &leader.Memory{}
	newLeader := func() *simulation.Provisioning { return &simulation.Provisioning{Policy: &w.Policy, Memory: memory} }
	old := newLeader()
	old.Feasibility(w.Snapshot())
	w.Remove(gone)
	w.Remove(pooled)
	s := w.Snapshot()
	s.Now = s.Now.Add(time.Minute)
	old.Feasibility(s)
	x := clustertest.Find(t, s, "x-0")
	fits := func(k *simulation.Provisioning) bool { return k.Feasibility(s).FitsNewNode(x, decision.AssignedSpot) }
	if !fits(newLeader()) || fits(&simulation.Provisioning{Policy: &w.Policy}) {
		t.Error("the new leader does not know u, which vanished")
	}
	var passedOn struct{ Vanished []any }
	if memory.Load(&passedOn); len(passedOn.Vanished) != 1 {
		t.Errorf("%d kinds are passed on, want u: %v", len(passedOn.Vanished), passedOn.Vanished)
	}
	old.Refuse(x.Revision.Key, decision.AssignedSpot, s.Now)
	old.Feasibility(s)
	if fits(newLeader()) {
		t.Error("the new leader does not know the refusal")
	}
}

// Hard topology spread may admit one zone of a pool only. These are the zones that the pool
// requires, or the zones of its nodes.
func TestPoolZones(t *testing.T) {
	const nodes = "node o on-demand m/a\nnode r on-demand m/b\n" +
		"node s spot m/a taint=u label=karpenter.sh/nodepool=p\nnode t spot m/b taint=u label=karpenter.sh/nodepool=p\n"
	for name, test := range map[string]struct {
		pool  string
		zones []string
		want  bool
	}{
		"zones of its nodes":       {"p", nil, true},
		"without a node":           {"q", nil, false},
		"requires both zones":      {"q", []string{"a", "b"}, true},
		"requires a full zone":     {"p", []string{"a"}, false},
		"requires an unknown zone": {"p", []string{"c"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(nodes + "deployment x 2 o o spread=topology.kubernetes.io/zone")
			pool := providers.NodePool{Name: test.pool}
			if test.zones != nil {
				pool.Requirements = []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: test.zones}}
			}
			k, s := &simulation.Provisioning{Policy: &w.Policy}, w.Snapshot()
			k.SetPools([]providers.NodePool{pool})
			if got := k.Feasibility(s).FitsNewNode(clustertest.Find(t, s, "x-0"), decision.AssignedSpot); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}
