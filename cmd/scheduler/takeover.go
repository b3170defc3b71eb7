package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	// settle is how long a new leader leaves to bindings that its predecessor sent and that the API server has not committed yet. The
	// predecessor has ended or given them up before its lease could be taken, so it is the API server alone that may still be at them,
	// and that takes milliseconds.
	settle = time.Second
	// pollEvery is how often the cache is asked for what it lacks.
	pollEvery = 20 * time.Millisecond
	// relistAfter is how long pods may be missing before the API server is asked whether they are still bound. It doubles every time, up
	// to relistAtMost.
	relistAfter, relistAtMost = time.Second, 16 * time.Second
	// retryAfter is the pause after a list that failed.
	retryAfter = time.Second
	// tellEvery is how often what is waited for is logged.
	tellEvery = 5 * time.Second
	// pageSize is how many pods are asked for at once: some 3 MB.
	pageSize = 2000
)

// boundPods selects the pods that hold room: the scheduler's own informer leaves out the ones that have ended, too.
const boundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

var takeoverDuration = metrics.NewGauge(&metrics.GaugeOpts{
	Subsystem: "spot_aware_scheduler",
	Name:      "takeover_duration_seconds",
	Help: "Time from the start of this instance's leadership to its first decision, in which it waits for the bindings of its " +
		"predecessors. 0 in one that does not lead, and as long as it waits.",
	StabilityLevel: metrics.ALPHA,
})

// takeover is the beginning of a leader's term. A leader decides from its cache, which a watch fills; its own decisions are in it at
// once, but those of its predecessors only when the watch brings them. docs/design/availability.md has the whole argument.
type takeover struct {
	// list returns the pods that are bound and have not ended, as no older than the call.
	list func(context.Context) (map[types.UID]types.NamespacedName, error)
	// holds reports whether the cache from which is decided holds this pod as bound.
	holds func(types.UID) bool
}

// guardTakeover lets sched decide nothing until its cache holds every binding that was made before it began to lead. It is to be called
// before sched runs, and once; ctx ends the wait.
func guardTakeover(ctx context.Context, config *rest.Config, sched *scheduler.Scheduler) error {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for takeovers: %w", err)
	}
	legacyregistry.MustRegister(takeoverDuration)
	t := takeover{
		list: func(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
			return listBound(ctx, client.Resource(v1.SchemeGroupVersion.WithResource("pods")))
		},
		holds: func(uid types.UID) bool {
			pod, err := sched.Cache.GetPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
			return err == nil && pod.Spec.NodeName != ""
		},
	}
	sched.NextPod = t.before(ctx, sched.NextPod)
	return nil
}

// nextPod is the type of Scheduler.NextPod: it blocks until there is a pod to schedule, and returns nil when there will be none any more.
type nextPod = func(klog.Logger) (*framework.QueuedPodInfo, error)

// before returns next with the takeover before its first call. The scheduler calls it at the beginning of every scheduling cycle, one
// after the other, and for the first time when it leads; a process leads once at most.
func (t takeover) before(ctx context.Context, next nextPod) nextPod {
	done := false
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		if !done {
			if err := t.wait(klog.NewContext(ctx, logger)); err != nil {
				return nil, nil // the process ends
			}
			done = true
		}
		return next(logger)
	}
}

// wait returns nil when the cache holds every pod that was bound when the term began, except for those that ended meanwhile. The only
// error is that of ctx: to decide without would be unsafe however long it takes.
func (t takeover) wait(ctx context.Context) error {
	logger, began := klog.FromContext(ctx), time.Now()
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	missing, err := t.bound(ctx)
	if err != nil {
		return err
	}
	total, told := len(missing), time.Now()
	for pause, listed := relistAfter, time.Now(); ; {
		maps.DeleteFunc(missing, func(uid types.UID, _ types.NamespacedName) bool { return t.holds(uid) })
		if len(missing) == 0 {
			break
		}
		if time.Since(listed) >= pause {
			// What ended meanwhile may never come. What was bound meanwhile is no longer a predecessor's.
			still, err := t.bound(ctx)
			if err != nil {
				return err
			}
			maps.DeleteFunc(missing, func(uid types.UID, _ types.NamespacedName) bool { _, bound := still[uid]; return !bound })
			pause, listed = min(2*pause, relistAtMost), time.Now()
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			logger.Info("Scheduling waits until the watch of pods has caught up with the bindings of earlier leaders",
				"missing", len(missing), "bound", total, "first", first(missing), "waiting", time.Since(began))
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
	took := time.Since(began)
	takeoverDuration.Set(took.Seconds())
	logger.Info("The cache holds the bindings of earlier leaders: scheduling begins", "bound", total, "waited", took)
	return nil
}

// bound is list, once more after every failure until ctx is done.
func (t takeover) bound(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
	for {
		bound, err := t.list(ctx)
		if err == nil {
			return bound, nil
		}
		klog.FromContext(ctx).Error(err, "Scheduling waits until the pods that are bound can be listed")
		if err := sleep(ctx, retryAfter); err != nil {
			return nil, err
		}
	}
}

// listBound returns the pods that boundPods selects as they are now: without a resource version a list is a consistent read. Only their
// metadata is transferred.
func listBound(ctx context.Context, pods metadata.ResourceInterface) (map[types.UID]types.NamespacedName, error) {
	bound := map[types.UID]types.NamespacedName{}
	options := metav1.ListOptions{FieldSelector: boundPods, Limit: pageSize}
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

// sleep returns nil after d, and the error of ctx when that is done before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
