package replay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// drainer evicts the pods of nodes with notice, as a node termination handler does. It retries
// failed evictions. The requests run in the background: if several evictions change the status of a
// PodDisruptionBudget at once, the API server delays them by seconds. The nodes of the plan must
// vanish in time nevertheless.
type drainer struct {
	client   kubernetes.Interface
	again    time.Duration // the real time between two attempts
	requests errgroup.Group
	running  atomic.Int32 // the number of running requests
	failed   chan error   // receives the first unexpected error

	mu sync.Mutex
	// next is the earliest time of the next attempt for each pod; zero while a request is running.
	next map[types.UID]time.Time
}

func newDrainer(client kubernetes.Interface, again time.Duration) *drainer {
	d := &drainer{client: client, again: again, failed: make(chan error, 1), next: map[types.UID]time.Time{}}
	d.requests.SetLimit(parallel)
	return d
}

// drain starts the evictions that are due. It returns the first unexpected error of an eviction.
func (d *drainer) drain(ctx context.Context, o *observer) error {
	for _, pod := range o.podsOn(func(node string) bool { return o.noticed[node] }) {
		if pod.DeletionTimestamp != nil || !d.isDue(pod.UID) {
			continue
		}
		d.running.Add(1)
		started := d.requests.TryGo(func() error {
			defer d.running.Add(-1)
			d.evict(ctx, o, pod)
			return nil
		})
		if !started {
			d.running.Add(-1)
			d.end(pod.UID, 0) // try again when a request has ended
			break
		}
	}
	select {
	case err := <-d.failed:
		return err
	default:
		return nil
	}
}

// isDue reports whether the pod may be evicted now, and marks its request as running.
func (d *drainer) isDue(pod types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	next, known := d.next[pod]
	if known && (next.IsZero() || time.Now().Before(next)) {
		return false
	}
	d.next[pod] = time.Time{}
	return true
}

// end marks the request of a pod as ended. The next attempt follows after a delay.
func (d *drainer) end(pod types.UID, delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next[pod] = time.Now().Add(delay)
}

func (d *drainer) evict(ctx context.Context, o *observer, pod *corev1.Pod) {
	err := d.client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
	})
	d.end(pod.UID, d.again)
	switch {
	case err == nil:
		o.touch()
	case apierrors.IsTooManyRequests(err), apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsInternalError(err):
	default:
		select {
		case d.failed <- fmt.Errorf("evicting pod %s: %w", pod.Name, err):
		default: // only the first error is reported
		}
	}
}

// isBusy reports whether a request is running. Its result may change the cluster.
func (d *drainer) isBusy() bool { return d.running.Load() > 0 }

// wait returns when no request is running.
func (d *drainer) wait() { _ = d.requests.Wait() }
