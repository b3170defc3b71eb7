package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// Each pair of a zone and an instance type is a pool of nodes.
var (
	zones         = []string{"zone-a", "zone-b", "zone-c"}
	instanceTypes = []string{"type-1", "type-2", "type-3", "type-4"}
)

// podsPerNode is the largest number of pods on a node. The pods request so little CPU and memory
// that these are no limit.
const podsPerNode = 110

// layout determines which nodes are spot.
type layout struct {
	name, explain string
	// late is the class whose nodes join after the scheduler has started; empty means none. Only
	// this makes them the last nodes that the scheduler observes: it lists existing nodes in any
	// order.
	late string
	// classOf returns the capacity and the zone of node i of n. zone is the default.
	classOf func(i, n int, zone string) (string, string)
}

var layouts = []layout{
	{"mixed", "70 % spot, in every pool", "", func(i, _ int, zone string) (string, string) {
		// In every pool 7 of 10 nodes are spot. 3 is coprime to 10, so 10 consecutive nodes have
		// every remainder once.
		pools := len(zones) * len(instanceTypes)
		if (3*(i/pools)+i%pools)%10 < 7 {
			return lab.Spot, zone
		}
		return lab.OnDemand, zone
	}},
	{"rare-spot", "5 % spot, joining last and in one zone", lab.Spot, rare(lab.Spot, lab.OnDemand)},
	{"rare-on-demand", "5 % on-demand, joining last and in one zone", lab.OnDemand, rare(lab.OnDemand, lab.Spot)},
}

// rare returns a layout in which the last 5 % of the nodes are of one class and in the last zone.
// All others are of the other class.
func rare(class, other string) func(i, n int, zone string) (string, string) {
	return func(i, n int, zone string) (string, string) {
		if i >= n-n/20 {
			return class, zones[len(zones)-1]
		}
		return other, zone
	}
}

// nodes returns the n nodes of a layout, in the order of their names.
func (l layout) nodes(n int) []lab.NodeSpec {
	specs := make([]lab.NodeSpec, n)
	for i := range specs {
		capacity, zone := l.classOf(i, n, zones[i%len(zones)])
		specs[i] = lab.NodeSpec{
			Name: fmt.Sprintf("node-%05d", i), Capacity: capacity, Zone: zone,
			InstanceType: instanceTypes[i/len(zones)%len(instanceTypes)],
			CPU:          "32", Memory: "128Gi", Pods: podsPerNode,
		}
	}
	return specs
}

// early returns the nodes that exist before the scheduler starts, and latecomers returns the other
// nodes.
func (b *bench) early() []lab.NodeSpec {
	return slices.DeleteFunc(slices.Clone(b.nodes), func(n lab.NodeSpec) bool { return n.Capacity == b.options.layout.late })
}

func (b *bench) latecomers() []lab.NodeSpec {
	return slices.DeleteFunc(slices.Clone(b.nodes), func(n lab.NodeSpec) bool { return n.Capacity != b.options.layout.late })
}

// joinLate adds the latecomers, and returns when the scheduler knows all nodes.
func (b *bench) joinLate(ctx context.Context, process *lab.Process) error {
	if err := b.plane.CreateNodes(ctx, b.latecomers()...); err != nil {
		return err
	}
	known := fmt.Sprintf("scheduler_cache_size{type=\"nodes\"} %d\n", len(b.nodes))
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, b.options.limit, true, func(ctx context.Context) (bool, error) {
		metrics, err := process.Metrics(ctx)
		return strings.Contains(metrics, known), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the scheduler to observe all nodes: %w", err)
	}
	return nil
}

// removeLate removes the latecomers before the next scheduler starts.
func (b *bench) removeLate(ctx context.Context) error {
	err := b.client.CoreV1().Nodes().DeleteCollection(ctx, *metav1.NewDeleteOptions(0),
		metav1.ListOptions{LabelSelector: lab.CapacityLabel + "=" + b.options.layout.late})
	if err != nil {
		return fmt.Errorf("removing nodes: %w", err)
	}
	return nil
}

// room returns the number of pods that fit on the rarer class of n nodes.
func (l layout) room(n int) int {
	spot := 0
	for _, node := range l.nodes(n) {
		if node.Capacity == lab.Spot {
			spot++
		}
	}
	return min(spot, n-spot) * podsPerNode
}
