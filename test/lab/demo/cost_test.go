package demo

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

func TestHourlyCost(t *testing.T) {
	node := lab.NodeSpec{
		Name: "n", CPU: "4", Memory: "16Gi", Annotations: map[string]string{lab.PriceAnnotation: "0.2"},
	}
	tests := map[string]struct {
		cpu, memory string
		want        float64
	}{
		"CPU is the larger share":    {"1", "1Gi", 0.05},
		"memory is the larger share": {"1", "8Gi", 0.1},
		"the whole node":             {"4", "1Gi", 0.2},
		"no requests":                {"0", "0", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := hourlyCost(corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(test.cpu), corev1.ResourceMemory: resource.MustParse(test.memory),
			}, node.Node())
			if err != nil || math.Abs(got-test.want) > 1e-12 {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
	if _, err := hourlyCost(nil, lab.NodeSpec{Name: "n"}.Node()); err == nil {
		t.Error("a node without a price has a cost")
	}
}

// The floor of each workload must match its annotation. The nodes must match the numbers that the
// demo and its documentation state.
func TestNodesAndFloorsOfDemo(t *testing.T) {
	wantFloor := map[string]int{"": 1, "2": 2, "30%": 3, "50%": 3} // of 1, 3, 10, 6 replicas and so on
	replicas := map[int]bool{}
	kinds := map[kind]bool{}
	for _, w := range workloads {
		want := wantFloor[w.minOnDemand]
		if w.kind == job {
			want = 0
		}
		if w.floor != want {
			t.Errorf("%s: floor %d, but min-on-demand %q of %d requires %d", w.name, w.floor, w.minOnDemand, w.replicas, want)
		}
		replicas[w.replicas], kinds[w.kind] = true, true
	}
	if len(workloads) < 12 || !replicas[1] || !replicas[3] || !replicas[10] || len(kinds) != 3 {
		t.Errorf("expected a dozen workloads of all kinds with 1, 3 and 10 replicas")
	}

	pools, zones, onDemandTypes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, n := range lab.DefaultNodes() {
		zones[n.Zone] = true
		if n.Capacity == lab.Spot {
			pools[n.InstanceType+n.Zone] = true
		} else {
			onDemandTypes[n.InstanceType] = true
		}
		if _, ok := lab.InstanceTypes[n.InstanceType]; !ok {
			t.Errorf("%s: no price for %s", n.Name, n.InstanceType)
		}
	}
	if n := len(lab.DefaultNodes()); n < 18 || len(pools) < 4 || len(zones) != 3 {
		t.Errorf("%d nodes, %d spot pools, %d zones: expected 18, 4 and 3", n, len(pools), len(zones))
	}
	if len(onDemandTypes) != 1 {
		t.Errorf("on-demand nodes of %d types: allOnDemandUSD assumes one type", len(onDemandTypes))
	}
}
