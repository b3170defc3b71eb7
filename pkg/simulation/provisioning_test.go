package simulation_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// The pod x-0 fits a node that an autoscaler may add, judged by the nodes that exist.
func TestFitsNewNode(t *testing.T) {
	const zone, host, capacity = v1.LabelTopologyZone, v1.LabelHostname, "node.kubernetes.io/capacity"
	for name, test := range map[string]struct {
		cluster  string
		change   func(*v1.Pod)
		onDemand bool
		spot     bool
		any      bool
	}{
		"no nodes":                         {cluster: "job x 1 -", onDemand: true, spot: true, any: true},
		"no spot node was ever seen":       {cluster: "node o on-demand m/a\ndeployment x 1 o", onDemand: true, spot: true, any: true},
		"both kinds":                       {cluster: "node o on-demand m/a\nnode s spot m/a\ndeployment x 1 o", onDemand: true, spot: true, any: true},
		"full nodes":                       {cluster: "node o on-demand m/a cpu=1\nnode s spot m/a cpu=1\ndeployment x 2 o s", onDemand: true, spot: true, any: true},
		"spot is tainted":                  {cluster: "node o on-demand m/a\nnode s spot m/a taint=t\ndeployment x 1 o", onDemand: true, any: true},
		"spot has a tolerated taint":       {cluster: "node o on-demand m/a\nnode s spot m/a taint=t\ndeployment x 1 o tolerates=t", onDemand: true, spot: true, any: true},
		"spot is not ready":                {cluster: "node o on-demand m/a\nnode s spot m/a taint=node.kubernetes.io/not-ready\ndeployment x 1 o", onDemand: true, spot: true, any: true},
		"spot is being drained":            {cluster: "node o on-demand m/a\nnode s spot m/a taint=karpenter.sh/disrupted\ndeployment x 1 o", onDemand: true, spot: true, any: true},
		"spot has our taint":               {cluster: "node o on-demand m/a\nnode s spot m/a taint=spot-aware-scheduler.io/interruption\ndeployment x 1 o", onDemand: true, spot: true, any: true},
		"a zone without on-demand":         {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment x 1 s zone=b", spot: true, any: true},
		"a zone without any node":          {cluster: "node o on-demand m/a\nnode s spot m/b\njob x 1 - zone=c", onDemand: true, spot: true, any: true},
		"a volume in a zone without spot":  {cluster: "node o on-demand m/a\nnode s spot m/b\nstatefulset x 1 o volume=a", onDemand: true, any: true},
		"larger spot nodes may exist":      {cluster: "node o on-demand m/a cpu=8\nnode s spot m/a cpu=2\ndeployment x 1 o cpu=4", onDemand: true, spot: true, any: true},
		"its own node":                     {cluster: "node o on-demand m/a\nnode s spot m/a\ndeployment x 1 s", change: func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: "s"} }},
		"every node except one":            {cluster: "node o on-demand m/a\nnode s spot m/a\ndeployment x 1 s", change: notOn("s"), onDemand: true, spot: true, any: true},
		"near a pod of a zone with spot":   {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment db 1 s\ndeployment x 1 s near=db/" + zone, spot: true, any: true},
		"near a pod on its node":           {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment db 1 s\ndeployment x 1 s near=db/" + host},
		"anti-affinity by node":            {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment x 2 s o anti=" + host, onDemand: true, spot: true, any: true},
		"anti-affinity by zone":            {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment x 2 s o anti=" + zone, spot: true, any: true},
		"spread over the capacity type":    {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment x 4 o o s s spread=" + capacity, onDemand: true, any: true},
		"unequal over the capacity type":   {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment x 4 o o o s spread=" + capacity, spot: true, any: true},
		"spread over nodes":                {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment x 4 o o s s spread=" + host, onDemand: true, spot: true, any: true},
		"spread over zones":                {cluster: "node o on-demand m/a\nnode s spot m/b\ndeployment x 4 o o s s spread=" + zone, onDemand: true, any: true},
		"its assignment does not count":    {cluster: "node o on-demand m/a\nnode s spot m/a\ndeployment x 1 o assigned=on-demand", change: require(capacity, v1.NodeSelectorOpNotIn, "spot"), onDemand: true, spot: true, any: true},
		"its user's affinity":              {cluster: "node o on-demand m/a\nnode s spot m/a\ndeployment x 1 o", change: require(capacity, v1.NodeSelectorOpNotIn, "spot"), onDemand: true, any: true},
		"an assignment and a user's label": {cluster: "node o on-demand m/a label=pool=general\nnode s spot m/a\ndeployment x 1 o assigned=on-demand", change: requirePool(capacity), onDemand: true, any: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			if test.change != nil {
				test.change(w.Pods["x-0"])
			}
			s := w.Snapshot()
			p := clustertest.Find(t, s, "x-0")
			f := (&simulation.Provisioning{Policy: &w.Policy}).Feasibility(s)
			for requires, want := range map[decision.AssignedCapacity]bool{decision.AssignedOnDemand: test.onDemand, decision.AssignedSpot: test.spot, decision.Unassigned: test.any} {
				if got := f.FitsNewNode(p, requires); got != want {
					t.Errorf("requires %q: %t, want %t", requires, got, want)
				}
			}
		})
	}
}

// A pod without evidence by nodes fits no new spot node if no pool can add one for it.
func TestFitsPools(t *testing.T) {
	in := func(key string, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
	}
	spotOnly, both := in("karpenter.sh/capacity-type", "spot"), in("karpenter.sh/capacity-type", "spot", "on-demand")
	onDemandOnly, zone := in("karpenter.sh/capacity-type", "on-demand"), in(v1.LabelTopologyZone, "a")
	taint := []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}}
	pool := func(taints []v1.Taint, full bool, requirements ...v1.NodeSelectorRequirement) providers.NodePool {
		return providers.NodePool{Taints: taints, LimitReached: full, Requirements: requirements}
	}
	const noSpot = "node o on-demand m/a\ndeployment x 1 o"
	for name, test := range map[string]struct {
		cluster string
		pools   []providers.NodePool
		want    bool
	}{
		"no pools":                       {noSpot, nil, true},
		"a spot pool":                    {noSpot, []providers.NodePool{pool(nil, false, spotOnly, zone)}, true},
		"a tainted spot pool":            {noSpot, []providers.NodePool{pool(taint, false, spotOnly)}, false},
		"a soft taint":                   {noSpot, []providers.NodePool{pool([]v1.Taint{{Key: "t", Effect: v1.TaintEffectPreferNoSchedule}}, false, spotOnly)}, true},
		"a tolerated taint":              {noSpot + " tolerates=t", []providers.NodePool{pool(taint, false, spotOnly)}, true},
		"a full spot pool":               {noSpot, []providers.NodePool{pool(nil, true, spotOnly)}, false},
		"one of two spot pools is full":  {noSpot, []providers.NodePool{pool(nil, true, spotOnly), pool(nil, false, spotOnly)}, true},
		"a pool of both types":           {noSpot, []providers.NodePool{pool(nil, true, spotOnly), pool(nil, false, both)}, true},
		"a pool of any type":             {noSpot, []providers.NodePool{pool(taint, false, spotOnly), pool(nil, false, zone)}, true},
		"pools without spot":             {noSpot, []providers.NodePool{pool(nil, false, onDemandOnly)}, true},
		"a spot node of another pool":    {"node o on-demand m/a\nnode s spot m/a\ndeployment x 1 o", []providers.NodePool{pool(taint, false, spotOnly)}, true},
		"it could run on no node at all": {noSpot + " zone=c", []providers.NodePool{pool(taint, false, spotOnly)}, true},
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

func require(key string, operator v1.NodeSelectorOperator, values ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}}
	}
}

func requirePool(capacity string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		require(capacity, v1.NodeSelectorOpNotIn, "spot")(p)
		term := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
		term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: "pool", Operator: v1.NodeSelectorOpIn, Values: []string{"general"}})
	}
}

func notOn(name string) func(*v1.Pod) { return require(v1.LabelHostname, v1.NodeSelectorOpNotIn, name) }

// Another node than its own could run the pod.
func TestFitsOtherNode(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		want    bool
	}{
		"a new node of the kind of its own node": {"node o on-demand m/a\ndeployment x 1 o", true},
		"only its own node":                      {"node o on-demand m/a\nnode p on-demand m/a label=only=x\ndeployment x 1 p", false},
		"one other node":                         {"node o on-demand m/a label=only=x\nnode p on-demand m/a\ndeployment x 1 p", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			if name != "a new node of the kind of its own node" {
				require(v1.LabelHostname, v1.NodeSelectorOpIn, map[bool]string{true: "o", false: "p"}[test.want])(w.Pods["x-0"])
			}
			s := w.Snapshot()
			f := (*simulation.Provisioning)(nil).Feasibility(s)
			if got := f.FitsOtherNode(clustertest.Find(t, s, "x-0"), decision.Unassigned); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
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
