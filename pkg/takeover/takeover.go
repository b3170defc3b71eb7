// Package takeover is the beginning of a leader's term: the leader waits until its cache holds the bindings of its predecessors.
// docs/design/availability.md has the argument.
package takeover

import (
	"context"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
)

const (
	// Settle is how long a new leader leaves to bindings that its predecessor sent and that the API server has not committed yet. The
	// predecessor has ended or given them up before its lease could be taken, so it is the API server alone that may still be at them,
	// and that takes milliseconds.
	Settle = time.Second
	// PollEvery is how often the cache is asked for what it lacks.
	PollEvery = 20 * time.Millisecond
	// RelistAfter is how long pods may be missing before the API server is asked whether they are still bound. It doubles every time, up
	// to relistAtMost.
	RelistAfter, relistAtMost = time.Second, 16 * time.Second
	// RetryAfter is the pause after a list that failed.
	RetryAfter = time.Second
	// tellEvery is how often what is waited for is logged.
	tellEvery = 5 * time.Second
	// PageSize is how many pods are asked for at once: some 3 MB.
	PageSize = 2000
)

// boundPods selects the pods that hold room: the scheduler's own informer leaves out the ones that have ended, too.
const boundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

// Takeover is the beginning of a leader's term. A leader decides from its cache, which a watch fills; its own decisions are in it at
// once, but those of its predecessors only when the watch brings them. docs/design/availability.md has the whole argument.
type Takeover struct {
	// List returns the pods that are bound and have not ended, as no older than the call.
	List func(context.Context) (map[types.UID]types.NamespacedName, error)
	// Holds reports whether the cache from which is decided holds this pod as bound.
	Holds func(types.UID) bool
}

// Wait returns, with how long it took, when the cache holds every pod that was bound when the term began, except for those that ended
// meanwhile. The only error is that of ctx: to decide without would be unsafe however long it takes.
func (t Takeover) Wait(ctx context.Context) (time.Duration, error) {
	logger, began := klog.FromContext(ctx), time.Now()
	if err := Sleep(ctx, Settle); err != nil {
		return 0, err
	}
	missing, err := t.bound(ctx)
	if err != nil {
		return 0, err
	}
	total, told := len(missing), time.Now()
	for pause, listed := RelistAfter, time.Now(); ; {
		maps.DeleteFunc(missing, func(uid types.UID, _ types.NamespacedName) bool { return t.Holds(uid) })
		if len(missing) == 0 {
			break
		}
		if time.Since(listed) >= pause {
			// What ended meanwhile may never come. What was bound meanwhile is no longer a predecessor's.
			still, err := t.bound(ctx)
			if err != nil {
				return 0, err
			}
			maps.DeleteFunc(missing, func(uid types.UID, _ types.NamespacedName) bool { _, bound := still[uid]; return !bound })
			pause, listed = min(2*pause, relistAtMost), time.Now()
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			logger.Info("Scheduling waits until the watch of pods has caught up with the bindings of earlier leaders",
				"missing", len(missing), "bound", total, "first", first(missing), "waiting", time.Since(began))
		}
		if err := Sleep(ctx, PollEvery); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	logger.Info("The cache holds the bindings of earlier leaders: scheduling begins", "bound", total, "waited", took)
	return took, nil
}

// bound is List, once more after every failure until ctx is done.
func (t Takeover) bound(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
	for {
		bound, err := t.List(ctx)
		if err == nil {
			return bound, nil
		}
		klog.FromContext(ctx).Error(err, "Scheduling waits until the pods that are bound can be listed")
		if err := Sleep(ctx, RetryAfter); err != nil {
			return nil, err
		}
	}
}

// ListBound returns the pods that boundPods selects as they are now: without a resource version a list is a consistent read. Only their
// metadata is transferred.
func ListBound(ctx context.Context, pods metadata.ResourceInterface) (map[types.UID]types.NamespacedName, error) {
	bound := map[types.UID]types.NamespacedName{}
	options := metav1.ListOptions{FieldSelector: boundPods, Limit: PageSize}
	for {
		page, err := pods.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for _, pod := range page.Items {
			bound[pod.UID] = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		}
		if page.Continue == "" {
			return bound, nil
		}
		// Of the same moment as the first page, or an error.
		options.Continue = page.Continue
	}
}

// first returns the alphabetically first of pods, which must not be empty.
func first(pods map[types.UID]types.NamespacedName) string {
	result := ""
	for _, pod := range pods {
		if name := pod.String(); result == "" || name < result {
			result = name
		}
	}
	return result
}

// Sleep returns nil after d, and the error of ctx when that is done before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
