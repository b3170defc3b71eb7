package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

var (
	now            = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	spotNodeLabels = map[string]string{spot.CapacityLabel: "spot"}
	onDemandLabels = map[string]string{spot.CapacityLabel: "on-demand"}
	builtin        = &decision.Policy{LabelGrace: 30 * time.Second, CapacityLabels: providers.CapacityLabels()}
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
		"own label, spot":      {spotNodeLabels, decision.Capacity{Type: decision.Spot, Source: decision.FromLabel}},
		"own label, on-demand": {onDemandLabels, decision.Capacity{Type: decision.OnDemand, Source: decision.FromLabel}},
		"own label, unknown":   {labels{spot.CapacityLabel: "Spot"}, contradiction},

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
		"own label over aliases that disagree": {labels{spot.CapacityLabel: "on-demand",
			"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "ON_DEMAND"},
			decision.Capacity{Type: decision.OnDemand, Source: decision.FromLabel}},
	}
	reader := &Reader{Policy: builtin}
	covered := map[string]bool{}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			for key := range test.labels {
				covered[key] = true
			}
			got, until := reader.Read(nodeWith(test.labels), now)
			if diff := cmp.Diff(decision.Node{Capacity: test.want}, got); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			if !until.IsZero() {
				t.Errorf("Read: until = %v, want zero", until)
			}
		})
	}
	for _, row := range providers.CapacityLabels() {
		if !covered[row.Key] {
			t.Errorf("no case for the built-in label %s", row.Key)
		}
	}
}

func TestExtendedCapacityLabels(t *testing.T) {
	reader := &Reader{Policy: &decision.Policy{
		UnlabeledNodes: decision.Spot,
		CapacityLabels: append(providers.CapacityLabels(),
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
			got, _ := reader.Read(nodeWith(test.labels), now)
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
			got, _ := (&Reader{Policy: builtin}).Read(nodeWith(test.labels), now)
			if diff := cmp.Diff(test.want, got.Pool); diff != "" {
				t.Errorf("Pool (-want +got):\n%s", diff)
			}
		})
	}
}
