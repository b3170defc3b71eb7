package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
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
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The names in manifests and kubectl output, as literals, so that a change of a constant in the
// code fails the tests.
const (
	minOnDemand = "spot-aware-scheduler.io/min-on-demand"
)

// deploy creates a Deployment whose pods have these CPU and memory requests, changed by edits.
func (s *scenario) deploy(name string, replicas int, cpu, memory string, edits ...func(*appsv1.Deployment)) {
	s.Helper()
	requests := func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		pod.Containers[0].Resources.Requests = v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		}
		if s.stock || s.keeps {
			pod.SchedulerName = v1.DefaultSchedulerName
		}
	}
	s.Deploy(name, replicas, slices.Concat([]func(*appsv1.Deployment){requests}, edits)...)
}

// floor returns an edit that sets the number of replicas that must run on on-demand: a count or a
// percentage.
func floor(value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[minOnDemand] = value }
}

// floorOf returns the number of replicas that must run on on-demand.
func floorOf(value string, replicas int) int {
	parsed := intstr.Parse(value)
	n, err := intstr.GetScaledValueFromIntOrPercent(&parsed, replicas, true)
	if err != nil {
		panic(err)
	}
	return min(n, replicas)
}

// preferSpot returns an edit that makes pods prefer the nodes that this label marks as spot.
func preferSpot(key string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 100, Preference: v1.NodeSelectorTerm{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{lab.Spot}}},
			}}},
		}}
	}
}

// remove deletes a Deployment with its pods.
func (s *scenario) remove(name string) {
	s.Helper()
	background := metav1.DeletePropagationBackground
	s.Must(kube.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
}

// split counts the pods of an app by the capacity type of their nodes.
type split = live.Split

// countSplits counts all live pods of a namespace by app. Every label with a spot value counts.
// Pods that are released do not count.
func countSplits(ctx context.Context, kube kubernetes.Interface, namespace string) (map[string]split, error) {
	pods, err := live.Pods(ctx, kube, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	spot := map[string]bool{}
	for _, node := range nodes.Items {
		spot[node.Name] = live.CapacityOf(&node) == lab.Spot
	}
	got := map[string]split{}
	for _, pod := range pods {
		counts := got[pod.Labels["app"]]
		switch {
		case pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "released":
		case pod.Spec.NodeName == "":
			counts.Waiting++
		case spot[pod.Spec.NodeName]:
			counts.Spot++
		default:
			counts.OnDemand++
		}
		got[pod.Labels["app"]] = counts
	}
	return got, nil
}

// isAvailableWithSplit returns a check that the pods of an app have this split and are available.
func (s *scenario) isAvailableWithSplit(app string, want split) func() error {
	return func() error {
		got, err := s.Splits()
		if err != nil {
			return err
		}
		if got[app] != want {
			return fmt.Errorf("%s: %+v, want %+v", app, got[app], want)
		}
		d, err := kube.AppsV1().Deployments(s.Namespace).Get(s.Ctx, app, metav1.GetOptions{})
		if err == nil && int(d.Status.AvailableReplicas) != want.OnDemand+want.Spot {
			err = fmt.Errorf("%s: %+v, and %d are available", app, got[app], d.Status.AvailableReplicas)
		}
		return err
	}
}

// nodeClaim is a node that Karpenter has launched or is launching.
type nodeClaim struct {
	Name, Capacity, Pool, Type, Node string
	Created                          time.Time
	Deleting                         bool
}

// nodeClaims returns all NodeClaims, the oldest first. The capacity type is empty until the node
// has been launched.
func (s *scenario) nodeClaims() ([]nodeClaim, error) {
	list, err := list(s.Ctx, lab.NodeClaimKind)
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

// claimed returns a check that Karpenter has these numbers of NodeClaims by capacity type, not
// counting NodeClaims that are being deleted.
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

// consolidate enables consolidation of all NodePools or changes its delay. Zero disables it.
func (s *scenario) consolidate(after time.Duration) {
	s.Helper()
	for i := range s.pools {
		s.pools[i].ConsolidateAfter = after
		s.Must(controlPlane.ApplyNodePool(s.Ctx, s.pools[i]))
	}
}

// removeNode deletes a node and its finalizers. Karpenter's finalizer would drain it first.
func removeNode(ctx context.Context, name string) error {
	nodes := kube.CoreV1().Nodes()
	_, err := nodes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		err = nodes.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return client.IgnoreNotFound(err)
}

// removeObject deletes an object and its finalizers.
func removeObject(ctx context.Context, object client.Object) error {
	err := objects.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if err == nil {
		err = objects.Delete(ctx, object)
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
			if err := removeObject(ctx, &item); err != nil {
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

// generated matches a value that Karpenter generates for a label if a pod's requirement only
// excludes values.
var generated = regexp.MustCompile(`^[0-9]{10,}$`)

// requireNoGeneratedLabels fails the test if a node has a label with a generated value.
func (s *scenario) requireNoGeneratedLabels() {
	s.Helper()
	nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	for _, node := range nodes.Items {
		for key, value := range node.Labels {
			if generated.MatchString(value) {
				s.Errorf("node %s has the invented label %s=%s", node.Name, key, value)
			}
		}
	}
}
