package demo

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// hourlyCost returns the cost of a pod with these requests on the node, per hour. It is the
// node's price times the larger of the pod's shares of the node's allocatable CPU and memory. So
// the pods do not pay for unused capacity, and the comparison of schedulers depends on the
// placement of the pods and not on the number of nodes.
func hourlyCost(requests corev1.ResourceList, node *corev1.Node) (float64, error) {
	price, err := strconv.ParseFloat(node.Annotations[lab.PriceAnnotation], 64)
	if err != nil {
		return 0, fmt.Errorf("node %s: annotation %s: expected US dollars per hour: %w", node.Name, lab.PriceAnnotation, err)
	}
	cpu := float64(requests.Cpu().MilliValue()) / float64(node.Status.Allocatable.Cpu().MilliValue())
	memory := float64(requests.Memory().Value()) / float64(node.Status.Allocatable.Memory().Value())
	return price * max(cpu, memory), nil
}
