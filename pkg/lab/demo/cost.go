package demo

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// hourlyCost is what a pod with these requests pays for an hour on the node: the node's price times the larger of the
// shares of its allocatable CPU and memory that the pod reserves. So an empty rest of a node is nobody's, and schedulers
// are compared by where they put pods, not by how many nodes happen to be there.
func hourlyCost(requests corev1.ResourceList, node *corev1.Node) (float64, error) {
	price, err := strconv.ParseFloat(node.Annotations[lab.PriceAnnotation], 64)
	if err != nil {
		return 0, fmt.Errorf("node %s: annotation %s: expected US dollars per hour: %w", node.Name, lab.PriceAnnotation, err)
	}
	cpu := float64(requests.Cpu().MilliValue()) / float64(node.Status.Allocatable.Cpu().MilliValue())
	memory := float64(requests.Memory().Value()) / float64(node.Status.Allocatable.Memory().Value())
	return price * max(cpu, memory), nil
}
