package lab

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestNode(t *testing.T) {
	type facts struct {
		Capacity, Type, Zone, Price string
		CPU, Memory, Pods           string
	}
	tests := map[string]struct {
		spec NodeSpec
		want facts
	}{
		"a name only": {
			NodeSpec{Name: "n"},
			facts{CPU: "4", Memory: "16Gi", Pods: "110"},
		},
		"known type, on-demand": {
			NodeSpec{Name: "n", Capacity: OnDemand, InstanceType: "m5.large", Zone: "a"},
			facts{OnDemand, "m5.large", "a", "0.096", "1930m", "6903Mi", "29"},
		},
		"known type, spot, own size": {
			NodeSpec{Name: "n", Capacity: Spot, InstanceType: "c5.2xlarge", CPU: "2", Memory: "1Gi", Pods: 3},
			facts{Spot, "c5.2xlarge", "", "0.1496", "2", "1Gi", "3"},
		},
		"known type, alias only": {
			NodeSpec{Name: "n", InstanceType: "m5.large", Labels: map[string]string{"karpenter.sh/capacity-type": "spot"}},
			facts{Type: "m5.large", CPU: "1930m", Memory: "6903Mi", Pods: "29"},
		},
		"labels and annotations win": {
			NodeSpec{
				Name: "n", Capacity: Spot, InstanceType: "m5.large",
				Labels: map[string]string{CapacityLabel: OnDemand}, Annotations: map[string]string{PriceAnnotation: "1"},
			},
			facts{Capacity: OnDemand, Type: "m5.large", Price: "1", CPU: "1930m", Memory: "6903Mi", Pods: "29"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := test.spec.Node()
			got := facts{
				node.Labels[CapacityLabel], node.Labels[corev1.LabelInstanceTypeStable], node.Labels[corev1.LabelTopologyZone],
				node.Annotations[PriceAnnotation], node.Status.Allocatable.Cpu().String(),
				node.Status.Allocatable.Memory().String(), node.Status.Allocatable.Pods().String(),
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
			if storage := node.Status.Allocatable.StorageEphemeral().String(); storage != "20Gi" {
				t.Errorf("ephemeral storage %s, want 20Gi", storage)
			}
			if diff := cmp.Diff(node.Status.Capacity, node.Status.Allocatable); diff != "" {
				t.Errorf("capacity and allocatable differ (-capacity +allocatable):\n%s", diff)
			}
		})
	}
}

func TestPrice(t *testing.T) {
	m5 := InstanceTypes["m5.large"] // 0.096 an hour, 66 % less on spot
	if got := m5.Price(OnDemand); got != 0.096 {
		t.Errorf("on-demand: %v, want 0.096", got)
	}
	if got := m5.Price(Spot); math.Abs(got-0.03264) > 1e-12 {
		t.Errorf("spot: %v, want 0.03264", got)
	}
	for name, instanceType := range InstanceTypes {
		if instanceType.CPUMilli <= 0 || instanceType.MemoryMiB <= 0 || instanceType.Pods <= 0 || instanceType.OnDemandUSD <= 0 ||
			instanceType.SpotSavingPercent <= 0 || instanceType.SpotSavingPercent >= 100 {
			t.Errorf("%s: a figure is missing: %+v", name, instanceType)
		}
	}
}
