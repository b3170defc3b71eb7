package turns

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// NewQueue returns a queue in which namespaces take turns: Get returns the oldest item of the
// namespace whose last turn is the longest ago. AddRateLimited waits for minRetry, and twice as
// long after each failure of the item, up to maxRetry. The queue has metrics with this name.
func NewQueue[T comparable](
	name string, clock clock.WithTicker, minRetry, maxRetry time.Duration, namespace func(T) string,
) workqueue.TypedRateLimitingInterface[T] {
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: name, Clock: clock, Queue: &storage[T]{namespace: namespace, items: map[string][]T{}},
	})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](minRetry, maxRetry),
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[T]{Name: name, Clock: clock, Queue: ready})})
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
