package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

const (
	// CapacityLabel is this project's label for a node's capacity type. It takes precedence over
	// every alias.
	CapacityLabel = spot.CapacityLabel
	// Spot is the value of CapacityLabel on a spot node.
	Spot = "spot"
	// OnDemand is the value of CapacityLabel on an on-demand node.
	OnDemand = "on-demand"

	// PriceAnnotation on a node is the node's price, in US dollars per hour.
	PriceAnnotation = "lab.spot-aware-scheduler.io/usd-per-hour"

	// ephemeralStorage is the ephemeral storage of every node. Pods that request some would
	// otherwise stay Pending.
	ephemeralStorage = "20Gi"
)

// NodeSpec describes a fake node. Only Name is required.
type NodeSpec struct {
	Name string
	// Capacity is the value of CapacityLabel. Empty: no such label.
	Capacity string
	// InstanceType and Zone are the values of the well-known labels. Empty: no such label.
	InstanceType, Zone string
	// Labels are added to these labels and override them. Example: aliases of the capacity type.
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
	// CPU and Memory are quantities, and Pods is a number, of allocatable resources. Empty or
	// zero: the values of the instance type if InstanceTypes has it; otherwise 4 CPUs, 16Gi and
	// 110 pods.
	CPU, Memory string
	Pods        int
}

// Node returns the Node object of the spec. A node with a capacity type and a known instance type
// has PriceAnnotation. Node panics if CPU or Memory is not a quantity, like resource.MustParse.
func (s NodeSpec) Node() *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: s.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	for key, value := range map[string]string{
		CapacityLabel: s.Capacity, corev1.LabelInstanceTypeStable: s.InstanceType, corev1.LabelTopologyZone: s.Zone,
	} {
		if value != "" {
			labels[key] = value
		}
	}
	maps.Copy(labels, s.Labels)

	annotations := map[string]string{}
	cpu, memory, pods := "4", "16Gi", 110
	if t, ok := InstanceTypes[s.InstanceType]; ok {
		cpu, memory, pods = fmt.Sprintf("%dm", t.CPUMilli), fmt.Sprintf("%dMi", t.MemoryMiB), t.Pods
		if s.Capacity != "" {
			annotations[PriceAnnotation] = strconv.FormatFloat(t.Price(s.Capacity), 'g', 6, 64)
		}
	}
	maps.Copy(annotations, s.Annotations)
	if s.CPU != "" {
		cpu = s.CPU
	}
	if s.Memory != "" {
		memory = s.Memory
	}
	if s.Pods != 0 {
		pods = s.Pods
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourcePods:   *resource.NewQuantity(int64(pods), resource.DecimalSI),

		corev1.ResourceEphemeralStorage: resource.MustParse(ephemeralStorage),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: slices.Clone(s.Taints)},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources.DeepCopy()},
	}
}

// CreateNodes creates the nodes. It returns when all nodes are Ready and do not have the
// not-ready taint, so that pods can be scheduled to them.
func (cp *ControlPlane) CreateNodes(ctx context.Context, specs ...NodeSpec) error {
	nodes := cp.client.CoreV1().Nodes()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, spec := range specs {
		group.Go(func() error {
			node := spec.Node()
			if cp.noControllers {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			}
			_, err := nodes.Create(groupCtx, node, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("creating nodes: %w", err)
	}

	wanted := map[string]bool{}
	for _, spec := range specs {
		wanted[spec.Name] = true
	}
	return poll(ctx, "new nodes to be Ready", cp.running(), func(ctx context.Context) error {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range list.Items {
			if wanted[node.Name] && IsUsable(&node) {
				ready++
			}
		}
		if ready < len(wanted) {
			return fmt.Errorf("%d of %d are Ready", ready, len(wanted))
		}
		return nil
	})
}

// IsUsable reports whether pods can be scheduled to the node: it is Ready, and the node lifecycle
// controller has removed its taints. If a node is recreated under the same name, that controller
// may first mark it as unreachable.
func IsUsable(node *corev1.Node) bool {
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	})
	return !tainted && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
