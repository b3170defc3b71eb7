package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	namespace = "bench"
	appLabel  = "app"
	// parallel is the number of concurrent requests.
	parallel = 32
)

// replicas are the sizes of the workloads, in turn.
var replicas = []int{10, 20, 50, 100}

// workload is a ReplicaSet with a Service that selects its pods.
type workload struct {
	app      string
	replicas int
}

// workloadsFor returns workloads with the given total of pods; the last one has the remainder.
func workloadsFor(pods int) []workload {
	var workloads []workload
	for i := 0; pods > 0; i++ {
		n := min(replicas[i%len(replicas)], pods)
		workloads = append(workloads, workload{fmt.Sprintf("app-%04d", i), n})
		pods -= n
	}
	return workloads
}

// creation creates workloads and their pods.
type creation struct {
	client kubernetes.Interface
	limit  *rate.Limiter
	mu     sync.Mutex
	began  map[string]time.Time // when the creation of each pod was requested
}

// newCreation returns a creation of perSecond pods per second; 0 means as fast as the API server
// accepts them.
func newCreation(client kubernetes.Interface, perSecond int) *creation {
	limit := rate.NewLimiter(rate.Inf, 0)
	if perSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(perSecond), 1)
	}
	return &creation{client: client, limit: limit, began: map[string]time.Time{}}
}

// create creates the workloads with all their pods in the form of the arm. The bench creates the
// pods itself, so that no controller runs during the measurement.
func (c *creation) create(ctx context.Context, workloads []workload, a arm) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, w := range workloads {
		group.Go(func() error {
			if err := c.createOne(ctx, w, a); err != nil {
				return fmt.Errorf("creating %s: %w", w.app, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (c *creation) createOne(ctx context.Context, w workload, a arm) error {
	labels := map[string]string{appLabel: w.app}
	template := podTemplate(labels, a)
	owner, err := c.client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.app},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(w.replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: w.app},
		// Headless, because the API server has only 254 addresses.
		Spec: corev1.ServiceSpec{Selector: labels, ClusterIP: corev1.ClusterIPNone},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	reference := *metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	for i := range w.replicas {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name, pod.OwnerReferences = fmt.Sprintf("%s-%03d", w.app, i), []metav1.OwnerReference{reference}
		if err := c.limit.Wait(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		c.began[pod.Name] = time.Now()
		c.mu.Unlock()
		if _, err := c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func podTemplate(labels map[string]string, a arm) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			SchedulerName: a.schedulerName,
			Containers: []corev1.Container{{
				Name: "c", Image: "registry.invalid/app",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
				}},
			}},
		},
	}
	if a.shape != nil {
		a.shape(&template)
	}
	return template
}

// clear deletes the workloads and the objects of the scheduler, and returns when they are gone.
func clear(ctx context.Context, client kubernetes.Interface) error {
	now, all := *metav1.NewDeleteOptions(0), metav1.ListOptions{}
	core := client.CoreV1()
	services, err := core.Services(namespace).List(ctx, all)
	if err != nil {
		return fmt.Errorf("clearing the bench: %w", err)
	}
	for _, service := range services.Items {
		if err := core.Services(namespace).Delete(ctx, service.Name, now); err != nil {
			return fmt.Errorf("clearing the bench: %w", err)
		}
	}
	for _, remove := range []func() error{
		func() error { return core.Pods(namespace).DeleteCollection(ctx, now, all) },
		func() error { return client.AppsV1().ReplicaSets(namespace).DeleteCollection(ctx, now, all) },
		func() error { return client.EventsV1().Events(namespace).DeleteCollection(ctx, now, all) },
		// The next scheduler must not wait until the lock of the last one expires.
		func() error {
			return client.CoordinationV1().Leases(metav1.NamespaceSystem).DeleteCollection(ctx, now, all)
		},
	} {
		if err := remove(); err != nil {
			return fmt.Errorf("clearing the bench: %w", err)
		}
	}
	pods, err := core.Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("clearing the bench: %w", err)
	}
	if len(pods.Items) > 0 {
		return fmt.Errorf("clearing the bench: pod %s still exists", pods.Items[0].Name)
	}
	return nil
}
