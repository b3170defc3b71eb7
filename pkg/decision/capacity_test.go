package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// TestCapacity covers every row of the table of known labels, and the precedence between labels.
func TestCapacity(t *testing.T) {
	var (
		ownSpot       = decision.Capacity{Type: decision.Spot, Source: decision.FromLabel}
		ownOnDemand   = decision.Capacity{Type: decision.OnDemand, Source: decision.FromLabel}
		spot          = decision.Capacity{Type: decision.Spot, Source: decision.FromAlias}
		onDemand      = decision.Capacity{Type: decision.OnDemand, Source: decision.FromAlias}
		contradiction = decision.Capacity{Type: decision.Spot, Source: decision.FromContradiction}
		byDefault     = decision.Capacity{Type: decision.OnDemand, Source: decision.FromDefault}
		spotByDefault = decision.Capacity{Type: decision.Spot, Source: decision.FromDefault}
		settling      = decision.Capacity{Type: decision.Spot, Source: decision.Settling}
	)
	type labels = map[string]string
	tests := map[string]struct {
		labels    labels
		age       time.Duration
		unlabeled decision.CapacityType
		want      decision.Capacity
	}{
		"own label, spot":      {labels: labels{"node.kubernetes.io/capacity": "spot"}, want: ownSpot},
		"own label, on-demand": {labels: labels{"node.kubernetes.io/capacity": "on-demand"}, want: ownOnDemand},
		"own label, misspelt":  {labels: labels{"node.kubernetes.io/capacity": "Spot"}, want: contradiction},
		"own label, empty":     {age: time.Hour, labels: labels{"node.kubernetes.io/capacity": ""}, want: byDefault},

		"Karpenter, spot":      {labels: labels{"karpenter.sh/capacity-type": "spot"}, want: spot},
		"Karpenter, on-demand": {labels: labels{"karpenter.sh/capacity-type": "on-demand"}, want: onDemand},
		"Karpenter, reserved":  {labels: labels{"karpenter.sh/capacity-type": "reserved"}, want: onDemand},
		"Karpenter, unknown":   {labels: labels{"karpenter.sh/capacity-type": "SPOT"}, want: contradiction},
		"Karpenter, empty":     {age: time.Hour, labels: labels{"karpenter.sh/capacity-type": ""}, want: byDefault},

		"EKS, SPOT":           {labels: labels{"eks.amazonaws.com/capacityType": "SPOT"}, want: spot},
		"EKS, ON_DEMAND":      {labels: labels{"eks.amazonaws.com/capacityType": "ON_DEMAND"}, want: onDemand},
		"EKS, CAPACITY_BLOCK": {labels: labels{"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}, want: onDemand},

		"GKE, spot":                     {labels: labels{"cloud.google.com/gke-spot": "true"}, want: spot},
		"GKE, not spot":                 {age: time.Hour, labels: labels{"cloud.google.com/gke-spot": "false"}, want: byDefault},
		"GKE, preemptible":              {labels: labels{"cloud.google.com/gke-preemptible": "true"}, want: spot},
		"GKE, provisioning spot":        {labels: labels{"cloud.google.com/gke-provisioning": "spot"}, want: spot},
		"GKE, provisioning preemptible": {labels: labels{"cloud.google.com/gke-provisioning": "preemptible"}, want: spot},
		"GKE, provisioning standard":    {labels: labels{"cloud.google.com/gke-provisioning": "standard"}, want: onDemand},

		"AKS, spot":    {labels: labels{"kubernetes.azure.com/scalesetpriority": "spot"}, want: spot},
		"AKS, regular": {labels: labels{"kubernetes.azure.com/scalesetpriority": "regular"}, want: onDemand},

		"ACK, SpotWithPriceLimit": {labels: labels{"node.alibabacloud.com/spot-strategy": "SpotWithPriceLimit"}, want: spot},
		"ACK, SpotAsPriceGo":      {labels: labels{"node.alibabacloud.com/spot-strategy": "SpotAsPriceGo"}, want: spot},
		"ACK, NoSpot":             {labels: labels{"node.alibabacloud.com/spot-strategy": "NoSpot"}, want: onDemand},

		"OKE":                        {labels: labels{"oci.oraclecloud.com/oke-is-preemptible": "true"}, want: spot},
		"Cluster API":                {labels: labels{"cluster.x-k8s.io/interruptible": ""}, want: spot},
		"Cluster API, with a value":  {labels: labels{"cluster.x-k8s.io/interruptible": "true"}, want: spot},
		"OpenShift":                  {labels: labels{"machine.openshift.io/interruptible-instance": ""}, want: spot},
		"Ocean, od":                  {labels: labels{"spotinst.io/node-lifecycle": "od"}, want: onDemand},
		"Ocean, other":               {age: time.Hour, labels: labels{"spotinst.io/node-lifecycle": "spot"}, want: byDefault},
		"CAST AI, true":              {labels: labels{"scheduling.cast.ai/spot": "true"}, want: spot},
		"CAST AI, empty":             {labels: labels{"scheduling.cast.ai/spot": ""}, want: spot},
		"CAST AI, false":             {age: time.Hour, labels: labels{"scheduling.cast.ai/spot": "false"}, want: byDefault},
		"CAST AI, fallback":          {labels: labels{"scheduling.cast.ai/spot-fallback": "true"}, want: onDemand},
		"CAST AI, fallback of false": {age: time.Hour, labels: labels{"scheduling.cast.ai/spot-fallback": "false"}, want: byDefault},

		"own label overrides an alias": {
			labels: labels{"node.kubernetes.io/capacity": "on-demand", "karpenter.sh/capacity-type": "spot"}, want: ownOnDemand,
		},
		"own label overrides a contradiction": {
			labels: labels{"node.kubernetes.io/capacity": "on-demand", "karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "ON_DEMAND"},
			want:   ownOnDemand,
		},
		"an unknown value of the own label beside a known alias": {
			labels: labels{"node.kubernetes.io/capacity": "5958825377106311128", "karpenter.sh/capacity-type": "on-demand"}, want: onDemand,
		},
		"an unknown value of the own label beside a known alias, spot": {
			labels: labels{"node.kubernetes.io/capacity": "5958825377106311128", "karpenter.sh/capacity-type": "spot"}, want: spot,
		},
		"an unknown value of an alias beside a known one": {
			labels: labels{"eks.amazonaws.com/capacityType": "5958825377106311128", "karpenter.sh/capacity-type": "on-demand"}, want: onDemand,
		},
		"an unknown value of an alias beside the own label": {
			labels: labels{"node.kubernetes.io/capacity": "on-demand", "karpenter.sh/capacity-type": "5958825377106311128"}, want: ownOnDemand,
		},
		"unknown values only": {
			labels: labels{"node.kubernetes.io/capacity": "5958825377106311128", "cloud.google.com/gke-provisioning": "4"}, want: contradiction,
		},
		"an unknown value beside aliases that contradict each other": {
			labels: labels{"node.kubernetes.io/capacity": "x", "karpenter.sh/capacity-type": "on-demand", "eks.amazonaws.com/capacityType": "SPOT"},
			want:   contradiction,
		},
		"an unknown value beside a label without meaning": {
			labels: labels{"node.kubernetes.io/capacity": "x", "cloud.google.com/gke-spot": "false"}, want: contradiction,
		},
		"two aliases that agree": {
			labels: labels{"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}, want: spot,
		},
		"two aliases that contradict each other": {
			labels: labels{"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "ON_DEMAND"}, want: contradiction,
		},
		"two aliases that contradict each other, values swapped": {
			labels: labels{"karpenter.sh/capacity-type": "on-demand", "eks.amazonaws.com/capacityType": "SPOT"}, want: contradiction,
		},
		"an unknown value does not contradict": {
			labels: labels{"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "unknown"}, want: spot,
		},

		"configured label, spot":                     {labels: labels{"example.com/lifecycle": "cheap"}, want: spot},
		"configured label, on-demand":                {labels: labels{"example.com/lifecycle": "dear"}, want: onDemand},
		"configured label, unknown value":            {labels: labels{"example.com/lifecycle": "free"}, want: contradiction},
		"configured label that contradicts an alias": {labels: labels{"example.com/lifecycle": "cheap", "karpenter.sh/capacity-type": "on-demand"}, want: contradiction},

		"no label":                           {age: time.Hour, want: byDefault},
		"no label, default spot":             {age: time.Hour, unlabeled: decision.Spot, want: spotByDefault},
		"unrelated labels":                   {age: time.Hour, labels: labels{"kubernetes.io/os": "linux"}, want: byDefault},
		"young":                              {age: 29 * time.Second, want: settling},
		"created in the future (clock skew)": {age: -time.Minute, want: settling},
		"at the end of the grace period":     {age: 30 * time.Second, want: byDefault},
		"at the end of the grace period, default spot": {age: 30 * time.Second, unlabeled: decision.Spot, want: spotByDefault},
		"young, but labeled":                           {labels: labels{"karpenter.sh/capacity-type": "on-demand"}, want: onDemand},
		"young, unknown value":                         {labels: labels{"node.kubernetes.io/capacity": "x"}, want: contradiction},
		"young, own label":                             {labels: labels{"node.kubernetes.io/capacity": "on-demand"}, want: ownOnDemand},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy := decision.Policy{
				UnlabeledNodes: test.unlabeled,
				LabelGrace:     30 * time.Second,
				CapacityLabels: append(providers.CapacityLabels(),
					decision.CapacityLabel{Key: "example.com/lifecycle", Spot: []string{"cheap"}, OnDemand: []string{"dear"}}),
			}
			if diff := cmp.Diff(test.want, policy.Capacity(test.labels, test.age)); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryBuiltinLabelIsTested fails if the table has a row or value that TestCapacity does not
// cover. Every value in a row must mean the capacity type under which it is listed.
func TestEveryBuiltinLabelIsTested(t *testing.T) {
	policy := decision.Policy{CapacityLabels: providers.CapacityLabels()}
	seen := map[string]bool{}
	for _, row := range policy.CapacityLabels {
		if seen[row.Key] {
			t.Errorf("%s has two rows", row.Key)
		}
		seen[row.Key] = true
		for want, values := range map[decision.CapacityType][]string{decision.Spot: row.Spot, decision.OnDemand: row.OnDemand} {
			for _, value := range values {
				got := policy.Capacity(map[string]string{row.Key: value}, 0)
				if got != (decision.Capacity{Type: want, Source: decision.FromAlias}) || !got.Labeled() {
					t.Errorf("%s=%s means %v", row.Key, value, got)
				}
			}
		}
	}
	if len(seen) != 13 {
		t.Errorf("the table has %d rows; TestCapacity covers 13", len(seen))
	}
}

func TestUnknownLabels(t *testing.T) {
	type labels = map[string]string
	tests := map[string]struct {
		labels labels
		want   []string
	}{
		"none":                       {},
		"known values":               {labels: labels{"node.kubernetes.io/capacity": "spot", "karpenter.sh/capacity-type": "reserved"}},
		"empty values":               {labels: labels{"node.kubernetes.io/capacity": "", "karpenter.sh/capacity-type": ""}},
		"own":                        {labels: labels{"node.kubernetes.io/capacity": "5958825377106311128"}, want: []string{"node.kubernetes.io/capacity"}},
		"alias with both types":      {labels: labels{"eks.amazonaws.com/capacityType": "x"}, want: []string{"eks.amazonaws.com/capacityType"}},
		"alias that lists only spot": {labels: labels{"cloud.google.com/gke-spot": "false", "oci.oraclecloud.com/oke-is-preemptible": "no"}},
		"alias that lists only on-demand": {
			labels: labels{"spotinst.io/node-lifecycle": "spot", "scheduling.cast.ai/spot-fallback": "false", "scheduling.cast.ai/spot": "false"},
		},
		"unknown alias, known own label": {
			labels: labels{"karpenter.sh/capacity-type": "x", "node.kubernetes.io/capacity": "on-demand"}, want: []string{"karpenter.sh/capacity-type"},
		},
		"several": {
			labels: labels{"cloud.google.com/gke-provisioning": "7", "karpenter.sh/capacity-type": "x", "node.kubernetes.io/capacity": "y"},
			want:   []string{"node.kubernetes.io/capacity", "karpenter.sh/capacity-type", "cloud.google.com/gke-provisioning"},
		},
		"known by another row of the label": {labels: labels{"karpenter.sh/capacity-type": "bid"}},
	}
	policy := decision.Policy{CapacityLabels: append(providers.CapacityLabels(),
		decision.CapacityLabel{Key: "karpenter.sh/capacity-type", Spot: []string{"bid"}, OnDemand: []string{"bought"}})}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, policy.UnknownLabels(test.labels)); diff != "" {
				t.Errorf("UnknownLabels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLabelMeaning(t *testing.T) {
	tests := map[string]struct {
		key, value string
		want       decision.CapacityType
		wantOK     bool
	}{
		"own, spot":          {"node.kubernetes.io/capacity", "spot", decision.Spot, true},
		"own, on-demand":     {"node.kubernetes.io/capacity", "on-demand", decision.OnDemand, true},
		"own, other":         {"node.kubernetes.io/capacity", "x", decision.OnDemand, false},
		"alias, spot":        {"eks.amazonaws.com/capacityType", "SPOT", decision.Spot, true},
		"alias, on-demand":   {"eks.amazonaws.com/capacityType", "ON_DEMAND", decision.OnDemand, true},
		"alias, other":       {"eks.amazonaws.com/capacityType", "spot", decision.OnDemand, false},
		"presence":           {"cluster.x-k8s.io/interruptible", "anything", decision.Spot, true},
		"presence but false": {"scheduling.cast.ai/spot", "false", decision.OnDemand, false},
		"unknown key":        {"kubernetes.io/os", "linux", decision.OnDemand, false},
	}
	policy := decision.Policy{CapacityLabels: providers.CapacityLabels()}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ok := policy.LabelMeaning(test.key, test.value); got != test.want || ok != test.wantOK {
				t.Errorf("LabelSays(%q, %q) = %v, %v; want %v, %v", test.key, test.value, got, ok, test.want, test.wantOK)
			}
		})
	}
}

func TestPresenceMeansSpot(t *testing.T) {
	tests := map[string]bool{
		"node.kubernetes.io/capacity":                 false, // it has a value that means on-demand
		"karpenter.sh/capacity-type":                  false,
		"scheduling.cast.ai/spot":                     false, // the value false does not mean spot
		"scheduling.cast.ai/spot-fallback":            false,
		"spotinst.io/node-lifecycle":                  false,
		"kubernetes.io/os":                            false,
		"cluster.x-k8s.io/interruptible":              true,
		"machine.openshift.io/interruptible-instance": true,
		"cloud.google.com/gke-spot":                   true,
		"oci.oraclecloud.com/oke-is-preemptible":      true,
	}
	policy := decision.Policy{CapacityLabels: providers.CapacityLabels()}
	for key, want := range tests {
		if got := policy.PresenceMeansSpot(key); got != want {
			t.Errorf("PresenceSaysSpot(%q) = %v, want %v", key, got, want)
		}
	}
}

func TestNewPool(t *testing.T) {
	for _, incomplete := range []decision.Pool{decision.NewPool("m5.large", ""), decision.NewPool("", "a"), decision.NewPool("", "")} {
		if incomplete != (decision.Pool{}) {
			t.Errorf("%+v is a pool, though it has no type or no zone", incomplete)
		}
	}
	if got, want := decision.NewPool("m5.large", "a"), (decision.Pool{InstanceType: "m5.large", Zone: "a"}); got != want {
		t.Errorf("NewPool = %+v, want %+v", got, want)
	}
}

// TestNames pins the names that users see in labels, configuration and messages.
func TestNames(t *testing.T) {
	got := []string{
		decision.OnDemand.String(), decision.Spot.String(),
		decision.NoSignal.String(), decision.Advisory.String(), decision.Drain.String(), decision.Reclaim.String(),
		decision.FromLabel.String(), decision.FromAlias.String(), decision.FromContradiction.String(), decision.FromDefault.String(), decision.Settling.String(),
	}
	want := []string{"on-demand", "spot", "none", "advisory", "drain", "reclaim", "label", "alias", "contradiction", "default", "settling"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
