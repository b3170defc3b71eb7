package leader

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
)

const (
	// Settle is how long a new leader waits for bindings that its predecessor sent and the API
	// server has not committed yet. The predecessor has finished or abandoned them before its lease
	// expired. Only the API server may still be processing them, which takes milliseconds.
	Settle = time.Second
	// PollEvery is the interval between checks of the cache.
	PollEvery = 20 * time.Millisecond
	// RelistAfter is how long pods may be missing before the leader asks the API server whether
	// they are still bound. The interval doubles each time, up to maxRelist.
	RelistAfter, maxRelist = time.Second, 16 * time.Second
	// RetryAfter is the pause after a failed list.
	RetryAfter = time.Second
	// logEvery is the interval between log messages about missing pods.
	logEvery = 5 * time.Second
	// PageSize is the number of pods per page of a list: some 3 MB.
	PageSize = 2000
)

// The pods whose placement a new leader must know.
const (
	// BoundPods selects the pods that occupy room on a node. The scheduler's own informer also
	// omits pods that have ended.
	BoundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	// NominatedPods selects the unbound pods with a nominated node. A scheduler nominates a pod
	// before a slow step of its binding.
	NominatedPods = "spec.nodeName=,status.nominatedNodeName!=,status.phase!=Succeeded,status.phase!=Failed"
)

// Takeover is the beginning of a leader's term. A leader decides from its cache, which a watch
// fills. The cache contains the leader's own decisions immediately, but the decisions of its
// predecessors only after the watch has delivered them. docs/design/availability.md explains this
// in full.
type Takeover struct {
	// List returns the pods whose placement the cache must contain. The result must not be older
	// than the call.
	List func(context.Context) (map[types.UID]types.NamespacedName, error)
	// IsCached reports whether the cache contains the pod and its placement.
	IsCached func(types.UID) bool
}

// NewTakeover returns a Takeover for the cluster in config. It lists the pods that any of the field
// selectors selects.
func NewTakeover(config *rest.Config, isCached func(types.UID) bool, selectors ...string) (Takeover, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return Takeover{}, fmt.Errorf("creating a client for takeovers: %w", err)
	}
	pods := client.Resource(v1.SchemeGroupVersion.WithResource("pods"))
	return Takeover{
		List: func(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
			listed := map[types.UID]types.NamespacedName{}
			for _, selector := range selectors {
				if err := list(ctx, pods, selector, listed); err != nil {
					return nil, err
				}
			}
			return listed, nil
		},
		IsCached: isCached,
	}, nil
}

// Wait returns when the cache contains every pod that List returned when the term began, except
// pods that List no longer returns. It returns how long it waited. The only error is that of ctx:
// to decide earlier would be unsafe, however long it takes.
func (t Takeover) Wait(ctx context.Context) (time.Duration, error) {
	logger, began := klog.FromContext(ctx), time.Now()
	if err := Sleep(ctx, Settle); err != nil {
		return 0, err
	}
	missing, err := t.bound(ctx)
	if err != nil {
		return 0, err
	}
	total, logged := len(missing), time.Now()
	for pause, listed := RelistAfter, time.Now(); ; {
		maps.DeleteFunc(missing, func(uid types.UID, _ types.NamespacedName) bool { return t.IsCached(uid) })
		if len(missing) == 0 {
			break
		}
		if time.Since(listed) >= pause {
			// Pods that have ended meanwhile may never appear in the cache. The predecessor did not
			// bind the pods that were bound meanwhile.
			still, err := t.bound(ctx)
			if err != nil {
				return 0, err
			}
			maps.DeleteFunc(missing, func(uid types.UID, _ types.NamespacedName) bool { _, bound := still[uid]; return !bound })
			pause, listed = min(2*pause, maxRelist), time.Now()
		}
		if time.Since(logged) >= logEvery {
			logged = time.Now()
			logger.Info("Scheduling waits until the watch of pods has caught up with the bindings of earlier leaders",
				"missing", len(missing), "bound", total, "first", first(missing), "waiting", time.Since(began))
		}
		if err := Sleep(ctx, PollEvery); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	logger.Info("Started scheduling: the cache contains the bindings of earlier leaders", "bound", total, "waited", took)
	return took, nil
}

// bound calls List until it succeeds or ctx is done.
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

// list adds the pods that a field selector selects to listed. It sets no resource version, so the
// list is a consistent read. Only the metadata of the pods is transferred.
func list(ctx context.Context, pods metadata.ResourceInterface, selector string, listed map[types.UID]types.NamespacedName) error {
	// The next page has the state of the first page, or the API server returns an error.
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return pods.List(ctx, options)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{FieldSelector: selector, Limit: PageSize}, func(object runtime.Object) error {
		pod := object.(*metav1.PartialObjectMetadata)
		listed[pod.UID] = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		return nil
	})
}

// first returns the alphabetically first pod. pods must not be empty.
func first(pods map[types.UID]types.NamespacedName) string {
	names := slices.Collect(maps.Values(pods))
	return slices.MinFunc(names, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }).String()
}

// Sleep returns nil after d, or the error of ctx if ctx is done earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
