// Package turns orders work so that namespaces take turns. Thousands of items of one tenant thus do
// not delay the first items of another.
package turns

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// NewQueue returns a queue in which namespaces take turns: Get returns the oldest item of the
// namespace whose last turn is the longest ago. AddRateLimited waits for minRetry, and twice as
// long after each failure of the item, up to maxRetry. The queue has metrics with this name.
func NewQueue[T comparable](
	name string, minRetry, maxRetry time.Duration, namespace func(T) string,
) workqueue.TypedRateLimitingInterface[T] {
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: name, Queue: &storage[T]{namespace: namespace, items: map[string][]T{}},
	})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](minRetry, maxRetry),
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: ready})})
}

// Process calls process for each item of the queue until ctx is done. It processes several items at
// a time, but never one item twice at a time. It processes the item again after the returned time,
// if that is not 0, and after an error.
func Process[T comparable](
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], workers int,
	process func(context.Context, T) (again time.Duration, err error),
) {
	context.AfterFunc(ctx, queue.ShutDown)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				item, down := queue.Get()
				if down {
					return
				}
				again, err := process(ctx, item)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					if !apierrors.IsConflict(err) { // the cache will soon show another version
						klog.FromContext(ctx).Error(err, "Failed, will retry")
					}
					queue.AddRateLimited(item)
				default:
					queue.Forget(item)
					if again > 0 {
						queue.AddAfter(item, again)
					}
				}
				queue.Done(item)
			}
		})
	}
	running.Wait()
}

// storage implements workqueue.Queue.
type storage[T comparable] struct {
	namespace func(T) string
	items     map[string][]T // by namespace; never empty
	order     []string       // the namespaces with items, the next one first
	length    int
}

func (*storage[T]) Touch(T) {}

func (s *storage[T]) Push(item T) {
	namespace := s.namespace(item)
	if s.items[namespace] == nil {
		s.order = append(s.order, namespace)
	}
	s.items[namespace] = append(s.items[namespace], item)
	s.length++
}

func (s *storage[T]) Len() int { return s.length }

func (s *storage[T]) Pop() T {
	namespace := s.order[0]
	items := s.items[namespace]
	s.order = s.order[1:]
	if len(items) > 1 {
		s.items[namespace] = items[1:]
		s.order = append(s.order, namespace)
	} else {
		delete(s.items, namespace)
	}
	s.length--
	return items[0]
}

// RoundRobin reorders items so that the namespaces take turns: the first n items of each namespace
// precede the next n of any. Within a turn, items remain in order.
func RoundRobin[T any](items []T, n int, namespace func(T) string) {
	var turns [][]T
	counts := map[string]int{}
	for _, item := range items {
		turn := counts[namespace(item)] / n
		counts[namespace(item)]++
		if turn == len(turns) {
			turns = append(turns, nil)
		}
		turns[turn] = append(turns[turn], item)
	}
	copy(items, slices.Concat(turns...))
}
