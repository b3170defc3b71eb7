package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The names that users write and read; spelled out, so that a change of a constant in the code does not go unnoticed.
const (
	minOnDemand        = "spot-aware-scheduler.io/min-on-demand"
	assignedAnnotation = "spot-aware-scheduler.io/assigned"
)

// deploy creates a Deployment whose pods request so much CPU and memory, changed by edits.
func (s *scenario) deploy(name string, replicas int, cpu, memory string, edits ...func(*appsv1.Deployment)) {
	s.Helper()
	count := int32(replicas)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: live.PodTemplate(name),
		},
	}
	pod := &d.Spec.Template.Spec
	pod.Containers[0].Resources.Requests = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
	}
	if s.stock {
		pod.SchedulerName = v1.DefaultSchedulerName
	}
	for _, edit := range edits {
		edit(d)
	}
	_, err := kube.AppsV1().Deployments(s.namespace).Create(s.ctx, d, metav1.CreateOptions{})
	s.must(err)
}

// floor is an edit that sets how many replicas must run on on-demand: a count or a percentage.
func floor(value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[minOnDemand] = value }
}

// onlyOn is an edit that keeps the pods off all nodes but those of a capacity type of Karpenter.
func onlyOn(capacity string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{lab.KarpenterCapacityLabel: capacity}
	}
}

// floorOf returns how many of so many replicas must run on on-demand.
func floorOf(value string, replicas int) int {
	parsed := intstr.Parse(value)
	n, err := intstr.GetScaledValueFromIntOrPercent(&parsed, replicas, true)
	if err != nil {
		panic(err)
	}
	return min(n, replicas)
}

// remove deletes a Deployment with its pods.
func (s *scenario) remove(name string) {
	s.Helper()
	background := metav1.DeletePropagationBackground
	s.must(kube.AppsV1().Deployments(s.namespace).Delete(s.ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
}

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

// split is where the pods of an app run.
type split struct{ OnDemand, Spot, Waiting int }

// splits returns where all live pods run, by app. Every label that says spot counts.
func (s *scenario) splits() (map[string]split, error) {
	pods, err := live.Pods(s.ctx, kube, s.namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	spot := map[string]bool{}
	for _, node := range nodes.Items {
		spot[node.Name] = capacityOf(&node) == lab.Spot
	}
	got := map[string]split{}
	for _, pod := range pods {
		at := got[pod.Labels["app"]]
		switch {
		case pod.Spec.NodeName == "":
			at.Waiting++
		case spot[pod.Spec.NodeName]:
			at.Spot++
		default:
			at.OnDemand++
		}
		got[pod.Labels["app"]] = at
	}
	return got, nil
}

// capacityOf returns what the node's labels say: lab.Spot or lab.OnDemand.
func capacityOf(node *v1.Node) string {
	return cmp.Or(node.Labels[lab.CapacityLabel], node.Labels[lab.KarpenterCapacityLabel])
}

// is returns a check that the pods of an app run there and are available.
func (s *scenario) is(app string, want split) func() error {
	return func() error {
		got, err := s.splits()
		if err != nil {
			return err
		}
		if got[app] != want {
			return fmt.Errorf("%s: %+v, want %+v", app, got[app], want)
		}
		d, err := kube.AppsV1().Deployments(s.namespace).Get(s.ctx, app, metav1.GetOptions{})
		if err == nil && int(d.Status.AvailableReplicas) != want.OnDemand+want.Spot {
			err = fmt.Errorf("%s: %+v, and %d are available", app, got[app], d.Status.AvailableReplicas)
		}
		return err
	}
}

// whole is a check that every Deployment has all its replicas available, and none besides.
func (s *scenario) whole() error {
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

// floorsHold is a check that every Deployment has its floor on on-demand. Without an annotation the floor is 1.
func (s *scenario) floorsHold() error {
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
		if at := got[d.Name]; at.OnDemand < want {
			short = append(short, fmt.Sprintf("%s %+v, floor %d", d.Name, at, want))
		}
	}
	if len(short) > 0 {
		return fmt.Errorf("%d Deployments below their floors: %s", len(short), strings.Join(short[:min(len(short), 5)], "; "))
	}
	return nil
}

// nodeClaim is a node that Karpenter has bought or is buying.
type nodeClaim struct {
	Name, Capacity, Pool, Type, Node string
	Created                          time.Time
	Deleting                         bool
}

// nodeClaims returns all NodeClaims, the oldest first. The capacity type is empty until the node has been launched.
func (s *scenario) nodeClaims() ([]nodeClaim, error) {
	list, err := list(s.ctx, lab.NodeClaimKind)
	if err != nil {
		return nil, err
	}
	var claims []nodeClaim
	for _, item := range list {
		labels := item.GetLabels()
		node, _, _ := unstructured.NestedString(item.Object, "status", "nodeName")
		claims = append(claims, nodeClaim{
			Name: item.GetName(), Capacity: labels[lab.KarpenterCapacityLabel], Pool: labels[lab.KarpenterPoolLabel],
			Type: labels[v1.LabelInstanceTypeStable], Node: node, Created: item.GetCreationTimestamp().Time, Deleting: item.GetDeletionTimestamp() != nil,
		})
	}
	slices.SortFunc(claims, func(a, b nodeClaim) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) })
	return claims, nil
}

// claimed returns a check that Karpenter has so many NodeClaims of each capacity type that are not being deleted, and no others.
func (s *scenario) claimed(want map[string]int) func() error {
	return func() error {
		claims, err := s.nodeClaims()
		if err != nil {
			return err
		}
		got := map[string]int{}
		for _, claim := range claims {
			if !claim.Deleting {
				got[claim.Capacity]++
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("NodeClaims by capacity type: %v, want %v", got, want)
		}
		return nil
	}
}

// price returns what Karpenter's nodes cost that are not being deleted, in US dollars per hour.
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

// consolidate switches consolidation of all NodePools on, or changes its delay. Zero switches it off.
func (s *scenario) consolidate(after time.Duration) {
	s.Helper()
	for i := range s.pools {
		s.pools[i].ConsolidateAfter = after
		s.must(controlPlane.ApplyNodePool(s.ctx, s.pools[i]))
	}
}

// bump changes the specification of all NodePools, so that Karpenter decides again which nodes it need not consolidate. It caches that for
// up to five minutes.
func (s *scenario) bump() {
	s.Helper()
	for i := range s.pools {
		if s.pools[i].ConsolidateAfter != 0 {
			s.pools[i].ConsolidateAfter += time.Second
			s.must(controlPlane.ApplyNodePool(s.ctx, s.pools[i]))
		}
	}
}

// limit sets the CPUs that a NodePool may have; "" is no limit.
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

// loseSpot removes all spot nodes with their pods at once, as a reclaim without notice does.
func (s *scenario) loseSpot() {
	s.Helper()
	nodes, err := kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	now := int64(0)
	for _, node := range nodes.Items {
		if capacityOf(&node) != lab.Spot {
			continue
		}
		s.must(removeNode(s.ctx, node.Name))
		s.must(kube.CoreV1().Pods(s.namespace).DeleteCollection(s.ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name}))
	}
}

// removeNode deletes a node with its finalizers: those of Karpenter drain it first.
func removeNode(ctx context.Context, name string) error {
	nodes := kube.CoreV1().Nodes()
	_, err := nodes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		err = nodes.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return client.IgnoreNotFound(err)
}

// removeNodes deletes all NodePools, NodeClaims and nodes. Karpenter must not run.
func removeNodes(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{lab.NodePoolKind, lab.NodeClaimKind} {
		items, err := list(ctx, kind)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue // Karpenter has not been started
		}
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := objects.Patch(ctx, &item, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
				return err
			}
			if err := objects.Delete(ctx, &item); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range nodes.Items {
		errs = append(errs, removeNode(ctx, node.Name))
	}
	return errors.Join(errs...)
}

// list returns all objects of a kind.
func list(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind)
	err := objects.List(ctx, all)
	return all.Items, err
}

// invented matches a value that Karpenter makes up for a label of which a pod only says what it must not be.
var invented = regexp.MustCompile(`^[0-9]{10,}$`)

// noInventedLabels fails the test if a node has a label whose value Karpenter made up.
func (s *scenario) noInventedLabels() {
	s.Helper()
	nodes, err := kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	for _, node := range nodes.Items {
		for key, value := range node.Labels {
			if invented.MatchString(value) {
				s.Errorf("node %s has the invented label %s=%s", node.Name, key, value)
			}
		}
	}
}
