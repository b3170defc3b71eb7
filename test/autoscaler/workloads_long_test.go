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
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// patch changes a Deployment by a strategic merge.
func (s *scenario) patch(name, patch string) {
	s.Helper()
	_, err := kube.AppsV1().Deployments(s.namespace).Patch(s.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.must(err)
}

// scale sets the replicas of a Deployment.
func (s *scenario) scale(name string, replicas int) {
	s.Helper()
	s.patch(name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// update sets the image of a Deployment, which starts a rollout.
func (s *scenario) update(name, image string) {
	s.Helper()
	s.patch(name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, "registry.invalid/"+image))
}

// complete is a check that every Deployment has all its replicas available, and no others.
func (s *scenario) complete() error {
	list, err := kube.AppsV1().Deployments(s.namespace).List(s.ctx, metav1.ListOptions{})
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
	list, err := kube.AppsV1().Deployments(s.namespace).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	got, err := s.splits()
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
	nodes, err := kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{LabelSelector: lab.KarpenterPriceLabel})
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
			s.must(controlPlane.ApplyNodePool(s.ctx, s.pools[i]))
		}
	}
}

// limit sets the CPU limit of a NodePool; "" is no limit.
func (s *scenario) limit(pool, cpu string) {
	s.Helper()
	for i := range s.pools {
		if s.pools[i].Name == pool {
			s.pools[i].CPULimit = cpu
			s.must(controlPlane.ApplyNodePool(s.ctx, s.pools[i]))
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
	nodes, err := kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	claims, err := list(s.ctx, lab.NodeClaimKind)
	s.must(err)
	for _, claim := range claims {
		// Otherwise, Karpenter would treat it as a node that is about to register.
		node, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName")
		if lost(claim.GetLabels()[lab.KarpenterCapacityLabel], node) {
			s.must(removeObject(s.ctx, &claim))
		}
	}
	now := int64(0)
	for _, node := range nodes.Items {
		if !lost(capacityOf(&node), node.Name) {
			continue
		}
		s.must(removeNode(s.ctx, node.Name))
		s.must(kube.CoreV1().Pods(s.namespace).DeleteCollection(s.ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name}))
	}
}

// launched returns all nodes of a capacity type that Karpenter has ever launched.
func (h *history) launched(capacity string) []nodeRecord {
	return slices.DeleteFunc(h.all(), func(n nodeRecord) bool { return n.Pool == "" || n.Capacity != capacity })
}

// empty returns Karpenter's nodes that never had a pod of the scenario.
func (h *history) empty() []nodeRecord {
	return slices.DeleteFunc(h.all(), func(n nodeRecord) bool { return n.Pool == "" || n.Hosted > 0 })
}

// hasSplit returns a check that the pods of an app have this split.
func (s *scenario) hasSplit(app string, want split) func() error {
	return func() error {
		got, err := s.splits()
		if err == nil && got[app] != want {
			err = fmt.Errorf("%s: %+v, want %+v", app, got[app], want)
		}
		return err
	}
}

// isDeleted returns a check that neither the Deployment nor one of its ReplicaSets exists.
func (s *scenario) isDeleted(name string) func() error {
	return func() error {
		sets, err := kube.AppsV1().ReplicaSets(s.namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "app=" + name})
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
	nodes, err := kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{LabelSelector: lab.KarpenterCapacityLabel + "=" + lab.OnDemand})
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
	splits, err := s.splits()
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

// requireServing makes the test fail at every moment with fewer serving pods of the app.
func (h *history) requireServing(app string, least int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.least[app] = least
}

// serve returns an error unless these numbers of pods of each app serve on nodes other than the
// excepted nodes.
func (h *history) serve(want map[string]int, except map[string]bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for app, n := range want {
		if got := h.serving(app, except); got < n {
			return fmt.Errorf("%s: %d pods serve, want %d", app, got, n)
		}
	}
	return nil
}
