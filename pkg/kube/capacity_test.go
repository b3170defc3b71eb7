package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

var (
	now            = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	spot           = map[string]string{decision.CapacityLabelKey: "spot"}
	onDemandLabels = map[string]string{decision.CapacityLabelKey: "on-demand"}
	builtin        = &decision.Policy{LabelGrace: 30 * time.Second, CapacityLabels: decision.BuiltinCapacityLabels()}
)

// nodeWith returns a node with these labels that is an hour old.
func nodeWith(labels map[string]string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
}

// One case for each row of the capacity table on the design page about signals.
func TestCapacityType(t *testing.T) {
	type labels = map[string]string
	var (
		spotByAlias     = decision.Capacity{Type: decision.Spot, Source: decision.FromAlias}
		onDemandByAlias = decision.Capacity{Type: decision.OnDemand, Source: decision.FromAlias}
		contradiction   = decision.Capacity{Type: decision.Spot, Source: decision.FromContradiction}
		byDefault       = decision.Capacity{Type: decision.OnDemand, Source: decision.FromDefault}
	)
	cases := map[string]struct {
		labels labels
		want   decision.Capacity
	}{
		"own label, spot":      {spot, decision.Capacity{Type: decision.Spot, Source: decision.FromLabel}},
		"own label, on-demand": {onDemandLabels, decision.Capacity{Type: decision.OnDemand, Source: decision.FromLabel}},
		"own label, unknown":   {labels{decision.CapacityLabelKey: "Spot"}, contradiction},

		"Karpenter, spot":                                 {labels{"karpenter.sh/capacity-type": "spot"}, spotByAlias},
		"Karpenter, on-demand":                            {labels{"karpenter.sh/capacity-type": "on-demand"}, onDemandByAlias},
		"Karpenter, reserved":                             {labels{"karpenter.sh/capacity-type": "reserved"}, onDemandByAlias},
		"EKS managed group, spot":                         {labels{"eks.amazonaws.com/capacityType": "SPOT"}, spotByAlias},
		"EKS managed group, on-demand":                    {labels{"eks.amazonaws.com/capacityType": "ON_DEMAND"}, onDemandByAlias},
		"EKS managed group, block":                        {labels{"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}, onDemandByAlias},
		"GKE, spot":                                       {labels{"cloud.google.com/gke-spot": "true"}, spotByAlias},
		"GKE, not spot":                                   {labels{"cloud.google.com/gke-spot": "false"}, byDefault},
		"GKE, preemptible":                                {labels{"cloud.google.com/gke-preemptible": "true"}, spotByAlias},
		"GKE, provisioned spot":                           {labels{"cloud.google.com/gke-provisioning": "spot"}, spotByAlias},
		"GKE, provisioned preemptible":                    {labels{"cloud.google.com/gke-provisioning": "preemptible"}, spotByAlias},
		"GKE, provisioned standard":                       {labels{"cloud.google.com/gke-provisioning": "standard"}, onDemandByAlias},
		"AKS, spot":                                       {labels{"kubernetes.azure.com/scalesetpriority": "spot"}, spotByAlias},
		"AKS, regular":                                    {labels{"kubernetes.azure.com/scalesetpriority": "regular"}, onDemandByAlias},
		"ACK, with a price limit":                         {labels{"node.alibabacloud.com/spot-strategy": "SpotWithPriceLimit"}, spotByAlias},
		"ACK, at any price":                               {labels{"node.alibabacloud.com/spot-strategy": "SpotAsPriceGo"}, spotByAlias},
		"ACK, no spot":                                    {labels{"node.alibabacloud.com/spot-strategy": "NoSpot"}, onDemandByAlias},
		"OKE, preemptible":                                {labels{"oci.oraclecloud.com/oke-is-preemptible": "true"}, spotByAlias},
		"Cluster API, present":                            {labels{"cluster.x-k8s.io/interruptible": ""}, spotByAlias},
		"OpenShift, present":                              {labels{"machine.openshift.io/interruptible-instance": ""}, spotByAlias},
		"Ocean, on-demand":                                {labels{"spotinst.io/node-lifecycle": "od"}, onDemandByAlias},
		"Ocean, spot is ambiguous":                        {labels{"spotinst.io/node-lifecycle": "spot"}, byDefault},
		"CAST, spot":                                      {labels{"scheduling.cast.ai/spot": "true"}, spotByAlias},
		"CAST, any other value":                           {labels{"scheduling.cast.ai/spot": "yes"}, spotByAlias},
		"CAST, not spot":                                  {labels{"scheduling.cast.ai/spot": "false"}, byDefault},
		"CAST, fallback for spot":                         {labels{"scheduling.cast.ai/spot-fallback": "true"}, onDemandByAlias},
		"AKS, ACK, OKE, CAPI, none present":               {nil, byDefault},
		"an unknown value of a known label":               {labels{"karpenter.sh/capacity-type": "free"}, contradiction},
		"aliases that agree":                              {labels{"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "SPOT"}, spotByAlias},
		"aliases that disagree, as observed in a cluster": {labels{"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "ON_DEMAND"}, contradiction},
		"own label over aliases that disagree": {labels{decision.CapacityLabelKey: "on-demand",
			"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "ON_DEMAND"},
			decision.Capacity{Type: decision.OnDemand, Source: decision.FromLabel}},
	}
	reader := &NodeReader{Policy: builtin}
	covered := map[string]bool{}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			for key := range test.labels {
				covered[key] = true
			}
			got, until := reader.Read(nodeWith(test.labels), true, now)
			if diff := cmp.Diff(decision.Node{Capacity: test.want}, got); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			if !until.IsZero() {
				t.Errorf("Read: until = %v, want zero", until)
			}
		})
	}
	for _, row := range decision.BuiltinCapacityLabels() {
		if !covered[row.Key] {
			t.Errorf("no case for the built-in label %s", row.Key)
		}
	}
}

func TestExtendedCapacityLabels(t *testing.T) {
	reader := &NodeReader{Policy: &decision.Policy{
		UnlabeledNodes: decision.Spot,
		CapacityLabels: append(decision.BuiltinCapacityLabels(),
			decision.CapacityLabel{Key: "example.com/lifecycle", Spot: []string{"cheap"}, OnDemand: []string{"paid"}}),
	}}
	cases := map[string]struct {
		labels map[string]string
		want   decision.Capacity
	}{
		"spot value":      {map[string]string{"example.com/lifecycle": "cheap"}, decision.Capacity{Type: decision.Spot, Source: decision.FromAlias}},
		"on-demand value": {map[string]string{"example.com/lifecycle": "paid"}, decision.Capacity{Type: decision.OnDemand, Source: decision.FromAlias}},
		"other value":     {map[string]string{"example.com/lifecycle": "?"}, decision.Capacity{Type: decision.Spot, Source: decision.FromContradiction}},
		"against a built-in one": {map[string]string{"example.com/lifecycle": "paid", "karpenter.sh/capacity-type": "spot"},
			decision.Capacity{Type: decision.Spot, Source: decision.FromContradiction}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := reader.Read(nodeWith(test.labels), true, now)
			if diff := cmp.Diff(test.want, got.Capacity); diff != "" {
				t.Errorf("Capacity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPool(t *testing.T) {
	cases := map[string]struct {
		labels map[string]string
		want   decision.Pool
	}{
		"type and zone": {map[string]string{v1.LabelInstanceTypeStable: "m5.large", v1.LabelTopologyZone: "a"},
			decision.Pool{InstanceType: "m5.large", Zone: "a"}},
		"no zone":    {map[string]string{v1.LabelInstanceTypeStable: "m5.large"}, decision.Pool{}},
		"no type":    {map[string]string{v1.LabelTopologyZone: "a"}, decision.Pool{}},
		"unlabelled": {nil, decision.Pool{}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := (&NodeReader{Policy: builtin}).Read(nodeWith(test.labels), false, now)
			if diff := cmp.Diff(test.want, got.Pool); diff != "" {
				t.Errorf("Pool (-want +got):\n%s", diff)
			}
		})
	}
}

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
		"selector, own label":                               {selector: spot, want: true},
		"selector, own label, on-demand":                    {selector: onDemandLabels, onDemand: true},
		"selector, alias":                                   {selector: map[string]string{karpenter: "spot"}, want: true},
		"selector, alias by presence":                       {selector: map[string]string{"cluster.x-k8s.io/interruptible": "x"}, want: true},
		"selector, zone":                                    {selector: map[string]string{v1.LabelTopologyZone: "a"}},
		"selector among others":                             {selector: map[string]string{v1.LabelTopologyZone: "a", karpenter: "spot"}, want: true},
		"In, own label":                                     {terms: []expressions{{in(decision.CapacityLabelKey, "spot")}}, want: true},
		"In, alias with several spot values":                {terms: []expressions{{in("node.alibabacloud.com/spot-strategy", "SpotAsPriceGo", "SpotWithPriceLimit")}}, want: true},
		"In, spot or on-demand":                             {terms: []expressions{{in(karpenter, "spot", "on-demand")}}},
		"In, spot or an unknown value":                      {terms: []expressions{{in(karpenter, "spot", "free")}}},
		"In, no value":                                      {terms: []expressions{{in(karpenter)}}},
		"one of two expressions":                            {terms: []expressions{{in(v1.LabelTopologyZone, "a"), in(karpenter, "spot")}}, want: true},
		"all terms":                                         {terms: []expressions{{in(karpenter, "spot")}, {in(decision.CapacityLabelKey, "spot")}}, want: true},
		"one of two terms":                                  {terms: []expressions{{in(karpenter, "spot")}, {in(v1.LabelTopologyZone, "a")}}},
		"NotIn on-demand admits the unlabelled":             {terms: []expressions{{op(karpenter, v1.NodeSelectorOpNotIn, "on-demand")}}},
		"In, on-demand":                                     {terms: []expressions{{in(karpenter, "on-demand")}}, onDemand: true},
		"In, on-demand or an unknown value":                 {terms: []expressions{{in(karpenter, "on-demand", "free")}}},
		"one of two terms for on-demand":                    {terms: []expressions{{in(karpenter, "on-demand")}, {in(v1.LabelTopologyZone, "a")}}},
		"NotIn spot":                                        {terms: []expressions{{op(karpenter, v1.NodeSelectorOpNotIn, "spot")}}, onDemand: true},
		"Exists, of a label that only spot has":             {terms: []expressions{{op("machine.openshift.io/interruptible-instance", v1.NodeSelectorOpExists)}}, want: true},
		"Exists, of a label that true and false nodes have": {terms: []expressions{{op("scheduling.cast.ai/spot", v1.NodeSelectorOpExists)}}},
		"Exists, of a label that both have":                 {terms: []expressions{{op(karpenter, v1.NodeSelectorOpExists)}}},
		"Exists, own label":                                 {terms: []expressions{{op(decision.CapacityLabelKey, v1.NodeSelectorOpExists)}}},
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
			if got := onlySpot(pod, builtin); got != test.want {
				t.Errorf("onlySpot = %t, want %t", got, test.want)
			}
			if got := OnlyOnDemand(pod, builtin); got != test.onDemand {
				t.Errorf("OnlyOnDemand = %t, want %t", got, test.onDemand)
			}
		})
	}
}

// A node selector that the controller wrote does not express the user's wish.
func TestAssignedSpotIsNotOnlySpot(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{NodeSelector: map[string]string{"karpenter.sh/capacity-type": "spot"}}}
	for annotation, want := range map[string]bool{"": true, "spot: overflow Never": false, "any: beyond the floor": true} {
		pod.Annotations = map[string]string{AssignedAnnotation: annotation}
		if got := onlySpot(pod, builtin); got != want {
			t.Errorf("assigned %q: onlySpot = %v, want %v", annotation, got, want)
		}
	}
}

// An empty term matches no node: the other terms determine which nodes the pod admits.
func TestEmptyTerms(t *testing.T) {
	onDemand := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: decision.CapacityLabelKey, Operator: v1.NodeSelectorOpIn, Values: []string{"on-demand"}},
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
		if got := OnlyOnDemand(pod, builtin); got != test.want {
			t.Errorf("%s: OnlyOnDemand = %v, want %v", name, got, test.want)
		}
	}
}

// A preference is not a requirement.
func TestPreferredAffinityIsNotOnlySpot(t *testing.T) {
	preferred := []v1.PreferredSchedulingTerm{{Weight: 100, Preference: v1.NodeSelectorTerm{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: decision.CapacityLabelKey, Operator: v1.NodeSelectorOpIn, Values: []string{"spot"}}},
	}}}
	pod := &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}}}}
	if onlySpot(pod, builtin) {
		t.Error("onlySpot = true for a preference")
	}
}
