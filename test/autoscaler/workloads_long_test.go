//go:build long

package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// complete is a check that every Deployment has all its replicas available, and no others.
func (s *scenario) complete() error {
	list, err := kube.AppsV1().Deployments(s.Namespace).List(s.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		status, want := d.Status, *d.Spec.Replicas
		if status.ObservedGeneration < d.Generation || status.Replicas != want || status.AvailableReplicas != want || status.UpdatedReplicas != want {
			return fmt.Errorf("%s: status %+v, want %d available replicas", d.Name, status, want)
		}
	}
	return nil
}

// floorsMet is a check that every Deployment has its floor on on-demand. Without an annotation,
// the floor is 1.
func (s *scenario) floorsMet() error {
	list, err := kube.AppsV1().Deployments(s.Namespace).List(s.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	got, err := s.Splits()
	if err != nil {
		return err
	}
	var short []string
	for _, d := range list.Items {
		want := floorOf(cmp.Or(d.Annotations[minOnDemand], "1"), int(*d.Spec.Replicas))
		if have := got[d.Name]; have.OnDemand < want {
			short = append(short, fmt.Sprintf("%s %+v, floor %d", d.Name, have, want))
		}
	}
	if len(short) > 0 {
		return fmt.Errorf("%d Deployments below their floors: %s", len(short), strings.Join(short[:min(len(short), 5)], "; "))
	}
	return nil
}

// price returns the total price of Karpenter's nodes that are not being deleted, in US dollars
// per hour.
func (s *scenario) price() (float64, error) {
	nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{LabelSelector: lab.KarpenterPriceLabel})
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, node := range nodes.Items {
		price, err := strconv.ParseFloat(node.Labels[lab.KarpenterPriceLabel], 64)
		if err != nil {
			return 0, err
		}
		if node.DeletionTimestamp == nil {
			sum += price
		}
	}
	return sum, nil
}

// changeNodePools changes the specification of all NodePools, so that Karpenter reconsiders all
// nodes for consolidation. Karpenter caches the nodes that it cannot consolidate for up to five
// minutes.
func (s *scenario) changeNodePools() {
	s.Helper()
	for i := range s.pools {
		if s.pools[i].ConsolidateAfter != 0 {
			s.pools[i].ConsolidateAfter += time.Second
			s.Must(controlPlane.ApplyNodePool(s.Ctx, s.pools[i]))
		}
	}
}

// limit sets the CPU limit of a NodePool; "" is no limit.
func (s *scenario) limit(pool, cpu string) {
	s.Helper()
	for i := range s.pools {
		if s.pools[i].Name == pool {
			s.pools[i].CPULimit = cpu
			s.Must(controlPlane.ApplyNodePool(s.Ctx, s.pools[i]))
			return
		}
	}
	s.Fatalf("no NodePool %s", pool)
}

// loseSpot removes all spot nodes and their pods at once, like a reclaim without notice.
func (s *scenario) loseSpot() {
	s.Helper()
	s.removeMatchingNodes(func(capacity, _ string) bool { return capacity == lab.Spot })
}

// removeMatchingNodes removes nodes and their pods at once. The node's name is "" if Karpenter is
// still launching it.
func (s *scenario) removeMatchingNodes(lost func(capacity, node string) bool) {
	s.Helper()
	nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	claims, err := list(s.Ctx, lab.NodeClaimKind)
	s.Must(err)
	for _, claim := range claims {
		// Otherwise, Karpenter would treat it as a node that is about to register.
		node, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName")
		if lost(claim.GetLabels()[lab.KarpenterCapacityLabel], node) {
			s.Must(removeObject(s.Ctx, &claim))
		}
	}
	now := int64(0)
	for _, node := range nodes.Items {
		if !lost(live.CapacityOf(&node), node.Name) {
			continue
		}
		s.Must(removeNode(s.Ctx, node.Name))
		s.Must(kube.CoreV1().Pods(s.Namespace).DeleteCollection(s.Ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name}))
	}
}

// launched returns all nodes of a capacity type that Karpenter has ever launched.
func launched(h *live.History, capacity string) []live.NodeRecord {
	return slices.DeleteFunc(h.Nodes(), func(n live.NodeRecord) bool { return n.Pool == "" || n.Capacity != capacity })
}

// empty returns Karpenter's nodes that never had a pod of the scenario.
func empty(h *live.History) []live.NodeRecord {
	return slices.DeleteFunc(h.Nodes(), func(n live.NodeRecord) bool { return n.Pool == "" || n.Hosted > 0 })
}

// isDeleted returns a check that neither the Deployment nor one of its ReplicaSets exists.
func (s *scenario) isDeleted(name string) func() error {
	return func() error {
		sets, err := kube.AppsV1().ReplicaSets(s.Namespace).List(s.Ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err == nil && len(sets.Items) > 0 {
			err = fmt.Errorf("%d ReplicaSets of %s are left", len(sets.Items), name)
		}
		return err
	}
}

// use is the use of on-demand capacity.
type use struct {
	pods int
	// cpus counts the CPUs of the instance types of Karpenter's nodes that are not being deleted.
	cpus int64
	// nodes counts the on-demand nodes.
	nodes int
}

// onDemandUse returns the scenario's use of on-demand capacity.
func (s *scenario) onDemandUse() (use, error) {
	nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{LabelSelector: lab.KarpenterCapacityLabel + "=" + lab.OnDemand})
	if err != nil {
		return use{}, err
	}
	var sum use
	for _, node := range nodes.Items {
		if node.DeletionTimestamp == nil {
			sum.nodes++
			sum.cpus += node.Status.Allocatable.Cpu().Value() // rounded up to whole CPUs
		}
	}
	splits, err := s.Splits()
	for _, got := range splits {
		sum.pods += got.OnDemand
	}
	return sum, err
}

// onlyOnDemand is a check that Karpenter has no spot node.
func (s *scenario) onlyOnDemand() error {
	claims, err := s.nodeClaims()
	if err != nil {
		return err
	}
	for _, claim := range claims {
		if claim.Capacity == lab.Spot {
			return fmt.Errorf("Karpenter has %+v", claim)
		}
	}
	return nil
}

// serve returns an error unless these numbers of pods of each app serve on nodes other than the
// excepted nodes.
func serve(h *live.History, want map[string]int, except map[string]bool) error {
	for app, n := range want {
		if got := h.Serving(app, except); got < n {
			return fmt.Errorf("%s: %d pods serve, want %d", app, got, n)
		}
	}
	return nil
}
