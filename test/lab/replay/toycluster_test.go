package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// toyCluster is a control plane in a few lines, on a fake API server: it creates and deletes pods
// of Deployments, binds pods, and makes them ready. It prefers spot, and respects the annotation
// min-on-demand if it is a count.
type toyCluster struct {
	*testing.T
	client *fake.Clientset
	plan   *Plan
	// startup is the real time from the binding of a pod to its readiness.
	startup time.Duration

	mu      sync.Mutex
	bound   map[types.UID]time.Time
	created int
	refuse  bool // evictions are refused
	evicted int

	watches chan struct{} // receives a value for each watch
}

func newToyCluster(t *testing.T, p *Plan) *toyCluster {
	c := &toyCluster{T: t, client: fake.NewClientset(), plan: p, startup: 20 * time.Millisecond, bound: map[types.UID]time.Time{}, watches: make(chan struct{}, 100)}
	c.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		c.watches <- struct{}{}
		return true, w, err
	})
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		return true, nil, c.evict(action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name)
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.round(ctx)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return c
}

// observe starts the watches of a driver. The fake API server loses events between a list and the
// begin of the watch, so observe waits until both watches have begun.
func (c *toyCluster) observe(ctx context.Context, d *driver) {
	c.Helper()
	if err := d.observer.watch(c.client, ctx.Done()); err != nil {
		c.Fatal(err)
	}
	for range 2 {
		select {
		case <-c.watches:
		case <-ctx.Done():
			c.Fatal(context.Cause(ctx))
		}
	}
}

// evict marks a pod as evicted and deletes it.
func (c *toyCluster) evict(name string) error {
	c.mu.Lock()
	c.evicted++
	refuse := c.refuse
	c.mu.Unlock()
	if refuse {
		return apierrors.NewTooManyRequests("the budget does not permit it", 0)
	}
	tracker := c.client.Tracker()
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	object, err := tracker.Get(resource, namespace, name)
	if err != nil {
		return err
	}
	pod := object.(*corev1.Pod).DeepCopy()
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
	})
	if err := tracker.Update(resource, pod, namespace); err != nil {
		return err
	}
	return tracker.Delete(resource, namespace, name)
}

// round runs all controllers once.
func (c *toyCluster) round(ctx context.Context) {
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	c.scale(ctx, pods.Items)
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; !lab.IsUsable(node) {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			_, _ = c.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" {
			c.schedule(ctx, pod, nodes.Items, pods.Items)
		} else if since := c.bound[pod.UID]; !isReady(pod) && time.Since(since) > c.startup {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			_, _ = c.client.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
		}
	}
}

// scale creates and deletes pods of Deployments.
func (c *toyCluster) scale(ctx context.Context, pods []corev1.Pod) {
	deployments, err := c.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, d := range deployments.Items {
		selector := labels.SelectorFromSet(d.Spec.Selector.MatchLabels)
		var own []string
		for _, pod := range pods {
			if selector.Matches(labels.Set(pod.Labels)) {
				own = append(own, pod.Name)
			}
		}
		for range int(*d.Spec.Replicas) - len(own) {
			c.created++
			pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
			pod.Name, pod.Namespace = fmt.Sprintf("%s-%d", d.Name, c.created), namespace
			pod.UID = types.UID(pod.Name)
			pod.Annotations = map[string]string{spot.MinOnDemandAnnotation: d.Annotations[spot.MinOnDemandAnnotation]}
			_, _ = c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		}
		for len(own) > int(*d.Spec.Replicas) {
			_ = c.client.CoreV1().Pods(namespace).Delete(ctx, own[len(own)-1], metav1.DeleteOptions{})
			own = own[:len(own)-1]
		}
	}
}

// schedule binds a pod, or reports it as unschedulable.
func (c *toyCluster) schedule(ctx context.Context, pod *corev1.Pod, nodes []corev1.Node, pods []corev1.Pod) {
	capacity, used := map[string]string{}, map[string]int64{}
	for _, node := range nodes {
		capacity[node.Name] = node.Labels[lab.CapacityLabel]
	}
	onDemand := 0
	for _, other := range pods {
		used[other.Spec.NodeName] += other.Spec.Containers[0].Resources.Requests.Memory().Value()
		if other.Labels[serviceLabel] == pod.Labels[serviceLabel] && capacity[other.Spec.NodeName] == lab.OnDemand {
			onDemand++
		}
	}
	floor := 0
	_, _ = fmt.Sscan(pod.Annotations[spot.MinOnDemandAnnotation], &floor)
	slices.SortFunc(nodes, func(a, b corev1.Node) int {
		return -slices.Compare([]string{capacity[a.Name]}, []string{capacity[b.Name]})
	})
	for _, node := range nodes {
		fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(&node)
		need := pod.Spec.Containers[0].Resources.Requests.Memory().Value()
		if err != nil || !fits || len(node.Spec.Taints) > 0 || used[node.Name]+need > node.Status.Allocatable.Memory().Value() ||
			onDemand < floor && capacity[node.Name] == lab.Spot {
			continue
		}
		pod.Spec.NodeName, pod.Status.Conditions = node.Name, nil
		c.bound[pod.UID] = time.Now()
		_, _ = c.client.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
		return
	}
	if !isUnschedulable(pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}
		_, _ = c.client.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
	}
}
