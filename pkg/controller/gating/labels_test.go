package gating

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const karpenter = "karpenter.sh/capacity-type"

func builtin() *decision.Policy {
	return &decision.Policy{CapacityLabels: providers.CapacityLabels()}
}

func expression(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func TestNewLabels(t *testing.T) {
	unlabeledSpot := builtin()
	unlabeledSpot.UnlabeledNodes = decision.Spot
	for name, test := range map[string]struct {
		policy  *decision.Policy
		keys    []string
		spotKey string
		notSpot []v1.NodeSelectorRequirement
		spot    []v1.NodeSelectorRequirement
		err     string // field names in the error
	}{
		"Karpenter": {
			keys: []string{karpenter}, spotKey: karpenter,
			notSpot: []v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpNotIn, "spot")},
			spot:    []v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpIn, "spot")},
		},
		"cluster autoscaler groups of three clouds": {
			keys: []string{"eks.amazonaws.com/capacityType", "cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority"},
			notSpot: []v1.NodeSelectorRequirement{
				expression("eks.amazonaws.com/capacityType", v1.NodeSelectorOpNotIn, "SPOT"),
				expression("cloud.google.com/gke-spot", v1.NodeSelectorOpNotIn, "true"),
				expression("kubernetes.azure.com/scalesetpriority", v1.NodeSelectorOpNotIn, "spot"),
			},
		},
		"two provisioners": {
			keys: []string{"eks.amazonaws.com/capacityType", karpenter}, spotKey: karpenter,
			notSpot: []v1.NodeSelectorRequirement{
				expression("eks.amazonaws.com/capacityType", v1.NodeSelectorOpNotIn, "SPOT"), expression(karpenter, v1.NodeSelectorOpNotIn, "spot"),
			},
			spot: []v1.NodeSelectorRequirement{
				expression(karpenter, v1.NodeSelectorOpIn, "spot"), expression("eks.amazonaws.com/capacityType", v1.NodeSelectorOpIn, "SPOT"),
			},
		},
		"label of this project": {
			keys: []string{spot.CapacityLabel}, spotKey: spot.CapacityLabel,
			notSpot: []v1.NodeSelectorRequirement{expression(spot.CapacityLabel, v1.NodeSelectorOpNotIn, "spot")},
			spot:    []v1.NodeSelectorRequirement{expression(spot.CapacityLabel, v1.NodeSelectorOpIn, "spot")},
		},
		"label of spot nodes only": {
			keys: []string{"cluster.x-k8s.io/interruptible"}, spotKey: "cluster.x-k8s.io/interruptible",
			notSpot: []v1.NodeSelectorRequirement{expression("cluster.x-k8s.io/interruptible", v1.NodeSelectorOpDoesNotExist)},
			spot:    []v1.NodeSelectorRequirement{expression("cluster.x-k8s.io/interruptible", v1.NodeSelectorOpExists)},
		},
		"unlabeled nodes are spot": {
			policy: unlabeledSpot, keys: []string{karpenter, "eks.amazonaws.com/capacityType"},
			notSpot: []v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpIn, "on-demand", "reserved")},
		},
		"unlabeled nodes are spot, by a label without on-demand": {
			policy: unlabeledSpot, keys: []string{"cloud.google.com/gke-spot"}, err: "gating.labels[0]",
		},
		"any value but one":     {keys: []string{"scheduling.cast.ai/spot"}, spotKey: "scheduling.cast.ai/spot", err: "gating.labels[0] gating.spotLabel"},
		"on-demand alone":       {keys: []string{"spotinst.io/node-lifecycle"}, spotKey: "spotinst.io/node-lifecycle", err: "gating.labels[0] gating.spotLabel"},
		"no capacity label":     {keys: []string{karpenter, "a.example/b"}, spotKey: "a.example/b", err: "gating.labels[1] gating.spotLabel"},
		"no label, though none": {err: "gating.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := test.policy
			if policy == nil {
				policy = builtin()
			}
			got, err := NewLabels(policy, test.keys, test.spotKey)
			if test.err != "" {
				for path := range strings.FieldsSeq(test.err) {
					if err == nil || !strings.Contains(err.Error(), path+": ") {
						t.Errorf("NewLabels: %v, want an error that names %s", err, path)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			clustertest.Equal(t, "not spot", test.notSpot, got.notSpot)
			clustertest.Equal(t, "spot", test.spot, got.spot)
		})
	}
}

// withRequired adds expressions at the end of each term, and nowhere else.
func TestNarrow(t *testing.T) {
	not := expression(karpenter, v1.NodeSelectorOpNotIn, "spot")
	zone := expression("topology.kubernetes.io/zone", v1.NodeSelectorOpIn, "a")
	required := func(terms ...v1.NodeSelectorTerm) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	term := func(expressions ...v1.NodeSelectorRequirement) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: expressions}
	}
	named := v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{expression("metadata.name", v1.NodeSelectorOpIn, "n")}}
	var many, narrowed []v1.NodeSelectorTerm
	for range 50 {
		many, narrowed = append(many, term(zone)), append(narrowed, term(zone, not))
	}
	spread := &v1.PodAntiAffinity{}
	for name, test := range map[string]struct{ affinity, want *v1.Affinity }{
		"none":              {nil, required(term(not))},
		"only pod affinity": {&v1.Affinity{PodAntiAffinity: spread}, required(term(not))},
		"one term":          {required(term(zone)), required(term(zone, not))},
		"already included":  {required(term(not, zone)), required(term(not, zone))},
		"an empty term":     {required(term(), term(zone)), required(term(), term(zone, not))},
		"a term of fields":  {required(named), required(v1.NodeSelectorTerm{MatchFields: named.MatchFields, MatchExpressions: []v1.NodeSelectorRequirement{not}})},
		"fifty terms":       {required(many...), required(narrowed...)},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.affinity.DeepCopy()
			clustertest.Equal(t, "affinity", test.want.NodeAffinity, withRequired(test.affinity, allOf([]v1.NodeSelectorRequirement{not})))
			if diff := diff.Diff(before, test.affinity); diff != "" {
				t.Errorf("the affinity itself was changed:\n%s", diff)
			}
		})
	}
}

// A preference of the controller preserves the pod's own preferences, and outweighs their sum.
func TestPrefer(t *testing.T) {
	spot := []v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpIn, "spot")}
	term := func(weight int32, expressions ...v1.NodeSelectorRequirement) v1.PreferredSchedulingTerm {
		return v1.PreferredSchedulingTerm{Weight: weight, Preference: v1.NodeSelectorTerm{MatchExpressions: expressions}}
	}
	own, ours := term(70, expression("a", v1.NodeSelectorOpExists)), term(1, spot...)
	preferring := func(terms ...v1.PreferredSchedulingTerm) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	for name, test := range map[string]struct{ affinity, want *v1.Affinity }{
		"none":           {nil, preferring(ours)},
		"one":            {preferring(own), preferring(own, term(71, spot...))},
		"two":            {preferring(own, own), preferring(own, own, term(100, spot...), term(41, spot...))},
		"too many times": {preferring(slices.Repeat([]v1.PreferredSchedulingTerm{own}, 50)...), preferring(append(slices.Repeat([]v1.PreferredSchedulingTerm{own}, 50), slices.Repeat([]v1.PreferredSchedulingTerm{term(100, spot...)}, 10)...)...)},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.affinity.DeepCopy()
			clustertest.Equal(t, "affinity", test.want.NodeAffinity, withPreferred(test.affinity, allOf(spot)))
			if diff := diff.Diff(before, test.affinity); diff != "" {
				t.Errorf("the affinity itself was changed:\n%s", diff)
			}
		})
	}
}

// TestDisagreement checks on-demand nodes: the affinity of floors must admit them.
func TestDisagreement(t *testing.T) {
	l, err := NewLabels(builtin(), []string{karpenter, "cluster.x-k8s.io/interruptible"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"": true, karpenter + "=on-demand": true, karpenter + "=spot": false, spot.CapacityLabel + "=spot": true,
		"cluster.x-k8s.io/interruptible=": false,
	} {
		node, err := labels.ConvertSelectorToLabelsMap(text)
		if err != nil {
			t.Fatal(err)
		}
		got := l.Disagreement(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: node}}, decision.Capacity{Type: decision.OnDemand}) == ""
		if got != want {
			t.Errorf("%q admits pods of a floor: %v, want %v", text, got, want)
		}
	}
}

// The affinity of pods that keep their scheduler excludes all spot nodes that exist, whichever
// labels they have, and admits all on-demand nodes.
func TestLabelsForNodes(t *testing.T) {
	const eks, gke, aks, own, cast = "eks.amazonaws.com/capacityType", "cloud.google.com/gke-spot",
		"kubernetes.azure.com/scalesetpriority", spot.CapacityLabel, "scheduling.cast.ai/spot"
	notIn := func(key, value string) v1.NodeSelectorRequirement {
		return expression(key, v1.NodeSelectorOpNotIn, value)
	}
	in := func(key, value string) v1.NodeSelectorRequirement { return expression(key, v1.NodeSelectorOpIn, value) }
	unlabeledSpot := builtin()
	unlabeledSpot.UnlabeledNodes = decision.Spot
	ofKarpenter, ofSpot := notIn(karpenter, "spot"), in(karpenter, "spot")
	type list = []v1.NodeSelectorRequirement
	for name, test := range map[string]struct {
		policy  *decision.Policy
		nodes   []map[string]string
		notSpot []v1.NodeSelectorRequirement
		spot    []v1.NodeSelectorRequirement
		hidden  string
	}{
		"no node":   {notSpot: []v1.NodeSelectorRequirement{ofKarpenter}, spot: list{in(karpenter, "spot")}},
		"Karpenter": {nodes: []map[string]string{{karpenter: "spot", own: "spot"}}, notSpot: []v1.NodeSelectorRequirement{ofKarpenter}, spot: list{in(karpenter, "spot")}},
		"EKS": {
			nodes:   []map[string]string{{eks: "SPOT"}, {eks: "ON_DEMAND"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(eks, "SPOT")}, spot: list{in(eks, "SPOT"), ofSpot},
		},
		"EKS without a spot node": {
			nodes: []map[string]string{{eks: "ON_DEMAND"}, {}}, notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(eks, "SPOT")},
			spot: list{in(karpenter, "spot")},
		},
		"EKS without a spot node, and Karpenter": {
			nodes: []map[string]string{{eks: "ON_DEMAND"}, {karpenter: "on-demand"}}, notSpot: []v1.NodeSelectorRequirement{ofKarpenter},
			spot: list{in(karpenter, "spot")},
		},
		"GKE": {nodes: []map[string]string{{gke: "true"}, {}}, notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(gke, "true")}, spot: list{in(gke, "true"), ofSpot}},
		"AKS": {
			nodes:   []map[string]string{{aks: "spot"}, {aks: "regular"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(aks, "spot")}, spot: list{in(aks, "spot"), ofSpot},
		},
		"label of this project": {
			nodes: []map[string]string{{own: "spot"}, {own: "on-demand"}}, notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(own, "spot")},
			spot: list{in(own, "spot"), ofSpot},
		},
		"two provisioners": {
			nodes:   []map[string]string{{karpenter: "spot"}, {eks: "SPOT"}, {karpenter: "on-demand"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(eks, "SPOT")}, spot: list{ofSpot, in(eks, "SPOT")},
		},
		"two provisioners, more of the other": {
			nodes:   []map[string]string{{karpenter: "spot"}, {eks: "SPOT"}, {eks: "SPOT"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(eks, "SPOT")}, spot: list{in(eks, "SPOT"), ofSpot},
		},
		"two provisioners contradict each other": {
			nodes:   []map[string]string{{karpenter: "spot", eks: "ON_DEMAND"}, {karpenter: "on-demand", eks: "SPOT"}, {karpenter: "on-demand", eks: "ON_DEMAND"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(eks, "SPOT")}, spot: list{ofSpot, in(eks, "SPOT")},
		},
		"CAST AI": {
			nodes:   []map[string]string{{cast: "true"}, {cast: "yes"}, {cast: "false"}, {}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, expression(cast, v1.NodeSelectorOpNotIn, "true", "yes")},
		},
		"more values than affinity lists": {
			nodes: []map[string]string{{cast: "a"}, {cast: "a"}, {cast: "b"}, {cast: "c"}, {cast: "d"}, {cast: "e"}, {cast: "f"},
				{cast: "g"}, {cast: "h"}, {cast: "i"}, {cast: "k"}, {cast: "j"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, expression(cast, v1.NodeSelectorOpNotIn, strings.Split("abcdefghij", "")...)},
			hidden:  "node-10",
		},
		"an unknown value": {
			nodes:   []map[string]string{{karpenter: "odd"}, {karpenter: "spot"}, {karpenter: "on-demand"}},
			notSpot: []v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpNotIn, "spot", "odd")}, spot: list{in(karpenter, "spot")},
		},
		"unknown values of another label": {
			nodes:   []map[string]string{{eks: "odd"}, {eks: "even"}, {eks: "odd"}, {karpenter: "on-demand"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, expression(eks, v1.NodeSelectorOpNotIn, "even", "odd")},
		},
		"a contradiction": {
			nodes:   []map[string]string{{karpenter: "on-demand", eks: "SPOT"}, {karpenter: "on-demand"}},
			notSpot: []v1.NodeSelectorRequirement{ofKarpenter, notIn(eks, "SPOT")}, spot: list{in(eks, "SPOT"), ofSpot},
		},
		"an unknown value beside a known one": {
			nodes: []map[string]string{{karpenter: "on-demand", eks: "odd"}, {karpenter: "spot"}}, notSpot: []v1.NodeSelectorRequirement{ofKarpenter}, spot: list{in(karpenter, "spot")},
		},
		"unlabeled nodes are spot": {
			policy: unlabeledSpot, nodes: []map[string]string{{eks: "SPOT"}, {eks: "ON_DEMAND"}, {}},
			notSpot: []v1.NodeSelectorRequirement{expression(eks, v1.NodeSelectorOpIn, "ON_DEMAND", "CAPACITY_BLOCK")}, spot: list{in(eks, "SPOT"), ofSpot},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := cmp.Or(test.policy, builtin())
			l, err := NewLabels(policy, []string{karpenter}, karpenter)
			if err != nil {
				t.Fatal(err)
			}
			var nodes []*snapshot.Node
			for i, nodeLabels := range test.nodes {
				node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: nodeLabels}}
				nodes = append(nodes, &snapshot.Node{Node: node, Facts: decision.Node{Capacity: policy.Capacity(nodeLabels, time.Hour)}})
			}
			got, node := l.ForNodes(policy, nodes)
			var hidden string
			if node != nil {
				hidden = node.Name
			}
			if diff := diff.Diff(test.notSpot, got.notSpot) + diff.Diff(test.spot, got.spot) + diff.Diff(test.hidden, hidden); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, n := range nodes {
				pod := &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: withRequired(nil, anyOf(got.spot))}}}
				if len(got.spot) > 0 && n.Facts.Capacity.Type == decision.OnDemand && fits(t, pod, n.Labels) {
					t.Errorf("on-demand node with labels %v: admits a pod that requires spot", n.Labels)
				}
				if onDemand := n.Facts.Capacity.Type == decision.OnDemand; admits(got.notSpot, n.Node) != onDemand && hidden == "" {
					t.Errorf("node with labels %v: admitted is %t, on-demand is %t", n.Labels, !onDemand, onDemand)
				}
			}
		})
	}
}

// A pod that requires spot fits the spot nodes of each provisioner. A term of its own gets only one
// of their labels: the API server allows no other term.
func TestTwoProvisioners(t *testing.T) {
	const eks, zone = "eks.amazonaws.com/capacityType", v1.LabelTopologyZone
	in := func(key, value string) v1.NodeSelectorRequirement { return expression(key, v1.NodeSelectorOpIn, value) }
	for name, test := range map[string]struct {
		kept bool
		own  string // the zone of its own term
		want []v1.NodeSelectorTerm
	}{
		"our scheduler":            {want: anyOf([]v1.NodeSelectorRequirement{in(karpenter, "spot"), in(eks, "SPOT")})},
		"another scheduler":        {kept: true, want: anyOf([]v1.NodeSelectorRequirement{in(karpenter, "spot"), in(eks, "SPOT")})},
		"a term for the other one": {own: "b", want: allOf([]v1.NodeSelectorRequirement{in(zone, "b"), in(eks, "SPOT")})},
		"a term of the pod":        {own: "a", want: allOf([]v1.NodeSelectorRequirement{in(zone, "a"), in(karpenter, "spot")})},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, decision.WorkloadSettings{Overflow: decision.NeverOverflow}, append(clustertest.NewDeployment("web", 1),
				clustertest.NewNode("s1", "", "m/a", "label="+karpenter+"=spot"), clustertest.NewNode("s2", "", "m/b", "label="+eks+"=SPOT"))...)
			pod := gated("ReplicaSet", "web-r", "web-0")
			if test.kept {
				pod.Spec.SchedulerName, pod.Labels[spot.OptInLabel] = v1.DefaultSchedulerName, spot.KeepScheduler
			}
			if test.own != "" {
				pod.Spec.Affinity = &v1.Affinity{NodeAffinity: withRequired(nil, allOf([]v1.NodeSelectorRequirement{in(zone, test.own)}))}
			}
			w.create(pod)
			clustertest.Equal(t, "assigned", "spot", w.assigned()["web-0"])
			got, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			clustertest.Equal(t, "terms", test.want, got.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		})
	}
}
