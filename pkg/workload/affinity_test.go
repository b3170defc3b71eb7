package workload

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

var (
	testNow        = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	spotLabels     = map[string]string{spot.CapacityLabel: "spot"}
	onDemandValues = map[string]string{spot.CapacityLabel: "on-demand"}
	builtinPolicy  = &decision.Policy{LabelGrace: 30 * time.Second, CapacityLabels: providers.CapacityLabels()}
)

// A pod that requires or excludes spot differs from a pod that only permits it.
func TestOnlySpotOrOnDemand(t *testing.T) {
	const karpenter = "karpenter.sh/capacity-type"
	type expressions = []v1.NodeSelectorRequirement
	in := func(key string, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
	}
	op := func(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	cases := map[string]struct {
		selector map[string]string
		terms    []expressions
		fields   expressions // of one more term
		want     bool
		onDemand bool
	}{
		"nothing":                                           {},
		"selector, own label":                               {selector: spotLabels, want: true},
		"selector, own label, on-demand":                    {selector: onDemandValues, onDemand: true},
		"selector, alias":                                   {selector: map[string]string{karpenter: "spot"}, want: true},
		"selector, alias by presence":                       {selector: map[string]string{"cluster.x-k8s.io/interruptible": "x"}, want: true},
		"selector, zone":                                    {selector: map[string]string{v1.LabelTopologyZone: "a"}},
		"selector among others":                             {selector: map[string]string{v1.LabelTopologyZone: "a", karpenter: "spot"}, want: true},
		"In, own label":                                     {terms: []expressions{{in(spot.CapacityLabel, "spot")}}, want: true},
		"In, alias with several spot values":                {terms: []expressions{{in("node.alibabacloud.com/spot-strategy", "SpotAsPriceGo", "SpotWithPriceLimit")}}, want: true},
		"In, spot or on-demand":                             {terms: []expressions{{in(karpenter, "spot", "on-demand")}}},
		"In, spot or an unknown value":                      {terms: []expressions{{in(karpenter, "spot", "free")}}},
		"In, no value":                                      {terms: []expressions{{in(karpenter)}}},
		"one of two expressions":                            {terms: []expressions{{in(v1.LabelTopologyZone, "a"), in(karpenter, "spot")}}, want: true},
		"all terms":                                         {terms: []expressions{{in(karpenter, "spot")}, {in(spot.CapacityLabel, "spot")}}, want: true},
		"one of two terms":                                  {terms: []expressions{{in(karpenter, "spot")}, {in(v1.LabelTopologyZone, "a")}}},
		"NotIn on-demand admits the unlabelled":             {terms: []expressions{{op(karpenter, v1.NodeSelectorOpNotIn, "on-demand")}}},
		"In, on-demand":                                     {terms: []expressions{{in(karpenter, "on-demand")}}, onDemand: true},
		"In, on-demand or an unknown value":                 {terms: []expressions{{in(karpenter, "on-demand", "free")}}},
		"one of two terms for on-demand":                    {terms: []expressions{{in(karpenter, "on-demand")}, {in(v1.LabelTopologyZone, "a")}}},
		"NotIn spot":                                        {terms: []expressions{{op(karpenter, v1.NodeSelectorOpNotIn, "spot")}}, onDemand: true},
		"Exists, of a label that only spot has":             {terms: []expressions{{op("machine.openshift.io/interruptible-instance", v1.NodeSelectorOpExists)}}, want: true},
		"Exists, of a label that true and false nodes have": {terms: []expressions{{op("scheduling.cast.ai/spot", v1.NodeSelectorOpExists)}}},
		"Exists, of a label that both have":                 {terms: []expressions{{op(karpenter, v1.NodeSelectorOpExists)}}},
		"Exists, own label":                                 {terms: []expressions{{op(spot.CapacityLabel, v1.NodeSelectorOpExists)}}},
		"DoesNotExist":                                      {terms: []expressions{{op("machine.openshift.io/interruptible-instance", v1.NodeSelectorOpDoesNotExist)}}, onDemand: true},
		"a term of fields":                                  {fields: expressions{in("metadata.name", "node-1")}},
		"a term of fields and a term for spot":              {terms: []expressions{{in(karpenter, "spot")}}, fields: expressions{in("metadata.name", "node-1")}},
		"no term at all":                                    {terms: []expressions{}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{NodeSelector: test.selector}}
			if test.terms != nil || test.fields != nil {
				required := &v1.NodeSelector{}
				for _, term := range test.terms {
					required.NodeSelectorTerms = append(required.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: term})
				}
				if test.fields != nil {
					required.NodeSelectorTerms = append(required.NodeSelectorTerms, v1.NodeSelectorTerm{MatchFields: test.fields})
				}
				pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
			}
			if got := onlySpot(pod, builtinPolicy); got != test.want {
				t.Errorf("onlySpot = %t, want %t", got, test.want)
			}
			if got := OnlyOnDemand(pod, builtinPolicy); got != test.onDemand {
				t.Errorf("OnlyOnDemand = %t, want %t", got, test.onDemand)
			}
		})
	}
}

// A node selector that the controller wrote does not express the user's wish.
func TestAssignedSpotIsNotOnlySpot(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{NodeSelector: map[string]string{"karpenter.sh/capacity-type": "spot"}}}
	for annotation, want := range map[string]bool{"": true, "spot: overflow Never": false, "any: beyond the floor": true} {
		pod.Annotations = map[string]string{spot.AssignedAnnotation: annotation}
		if got := onlySpot(pod, builtinPolicy); got != want {
			t.Errorf("assigned %q: onlySpot = %v, want %v", annotation, got, want)
		}
	}
}

// An empty term matches no node: the other terms determine which nodes the pod admits.
func TestEmptyTerms(t *testing.T) {
	onDemand := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: spot.CapacityLabel, Operator: v1.NodeSelectorOpIn, Values: []string{"on-demand"}},
	}}
	for name, test := range map[string]struct {
		terms []v1.NodeSelectorTerm
		want  bool
	}{
		"with another term": {[]v1.NodeSelectorTerm{{}, onDemand}, true},
		"alone":             {[]v1.NodeSelectorTerm{{}}, false},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: test.terms},
		}}}}
		if got := OnlyOnDemand(pod, builtinPolicy); got != test.want {
			t.Errorf("%s: OnlyOnDemand = %v, want %v", name, got, test.want)
		}
	}
}

// A preference is not a requirement.
func TestPreferredAffinityIsNotOnlySpot(t *testing.T) {
	preferred := []v1.PreferredSchedulingTerm{{Weight: 100, Preference: v1.NodeSelectorTerm{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: spot.CapacityLabel, Operator: v1.NodeSelectorOpIn, Values: []string{"spot"}}},
	}}}
	pod := &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}}}
	if onlySpot(pod, builtinPolicy) {
		t.Error("onlySpot = true for a preference")
	}
}
