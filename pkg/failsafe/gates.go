package failsafe

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// leaderRetry is when a replica that is not the leader checks an expired gate again.
const leaderRetry = time.Second

// maxRetry is the longest interval of attempts to remove a gate. So no pod stays gated for longer
// than gateTimeout + 10 s if a refusal ends.
const maxRetry = 5 * time.Second

// The scheduler increments expiredGates. docs/metrics.md lists it.
var expiredGates = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem:      "spot_aware_scheduler",
	Name:           "expired_capacity_gates_total",
	Help:           "Capacity gates that the scheduler removed because the controller did not remove them within gateTimeout.",
	StabilityLevel: metrics.ALPHA,
})

// Profile configures the removal of gates for one profile of the scheduler.
type Profile struct {
	// Timeout is the age of a pod at which its gate expires.
	Timeout  time.Duration
	Recorder events.EventRecorder
}

// GateRemover removes capacity gates that the controller has not removed in time, so no pod waits
// for a controller that does not run. The Filter still protects the floor, but autoscalers do not
// see it. For a pod that names another scheduler, because a policy or a webhook changed it after
// the gate was added, the longest timeout of all profiles applies.
type GateRemover struct {
	client   kubernetes.Interface
	clock    clock.Clock
	profiles map[string]Profile
	longest  Profile // the profile with the longest timeout
	leads    func() bool
	pods     corelisters.PodLister
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// NewGateRemover returns a GateRemover with at least one profile, by the name of its scheduler. It
// reads from factory, which must not have been started. It removes no gate while leads returns
// false, because another replica leads.
func NewGateRemover(
	factory informers.SharedInformerFactory, client kubernetes.Interface, clock clock.WithTicker, profiles map[string]Profile, leads func() bool,
) (*GateRemover, error) {
	pods := factory.Core().V1().Pods()
	r := &GateRemover{
		client: client, clock: clock, profiles: profiles, leads: leads, pods: pods.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](100*time.Millisecond, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "expired-capacity-gates", Clock: clock}),
	}
	r.longest = slices.MaxFunc(slices.Collect(maps.Values(profiles)), func(a, b Profile) int { return cmp.Compare(a.Timeout, b.Timeout) })
	// The creation time determines the expiry. An update matters only if a gate was added again.
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { r.enqueue(obj.(*v1.Pod)) },
		UpdateFunc: func(before, after any) {
			if !workload.Gated(before.(*v1.Pod)) {
				r.enqueue(after.(*v1.Pod))
			}
		},
	})
	return r, err
}

// RegisterMetrics registers the metrics of a scheduler. It must be called at most once.
func RegisterMetrics() { legacyregistry.MustRegister(expiredGates) }

func (r *GateRemover) enqueue(pod *v1.Pod) {
	if left, gated := r.timeLeft(pod); gated {
		r.queue.AddAfter(cache.MetaObjectToName(pod), left)
	}
}

// timeLeft returns the time until the gate of a pod expires, which may be negative. It returns
// false if the pod is not live or not gated.
func (r *GateRemover) timeLeft(pod *v1.Pod) (time.Duration, bool) {
	if !workload.Live(pod) || !workload.Gated(pod) {
		return 0, false
	}
	return pod.CreationTimestamp.Add(r.profileOf(pod).Timeout).Sub(r.clock.Now()), true
}

func (r *GateRemover) profileOf(pod *v1.Pod) Profile {
	if profile, known := r.profiles[pod.Spec.SchedulerName]; known {
		return profile
	}
	return r.longest
}

// Run removes expired gates until ctx is done. It may be called once.
func (r *GateRemover) Run(ctx context.Context) {
	context.AfterFunc(ctx, r.queue.ShutDown)
	for {
		name, down := r.queue.Get()
		if down {
			return
		}
		if again, err := r.removeExpired(ctx, name); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to remove expired capacity gate, retrying", "pod", name)
			r.queue.AddRateLimited(name)
		} else if r.queue.Forget(name); again > 0 {
			r.queue.AddAfter(name, again)
		}
		r.queue.Done(name)
	}
}

// removeExpired removes the gate of a pod if it has expired. It returns when to check the pod
// again; 0 for never.
func (r *GateRemover) removeExpired(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	pod, err := r.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		return 0, nil // the pod was deleted
	}
	left, gated := r.timeLeft(pod)
	switch {
	case !gated:
		return 0, nil
	case left > 0:
		return left, nil
	case !r.leads():
		return leaderRetry, nil
	}
	profile := r.profileOf(pod)
	err = workload.PatchPod(ctx, r.client, pod, map[string]any{}, map[string]any{"schedulingGates": workload.WithoutCapacityGate(pod)})
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case apierrors.IsConflict(err):
		return leaderRetry, nil
	case refusal.Denied(err), refusal.By(err) != "":
		profile.Recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonRefused, "RemoveGate",
			"removal of the gate %s refused: %s", spot.CapacityGate, refusal.Message(err))
		return 0, err
	case err != nil:
		return 0, err
	}
	expiredGates.Inc()
	klog.FromContext(ctx).Info("Removed expired capacity gate", "pod", klog.KObj(pod), "gateTimeout", profile.Timeout)
	profile.Recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonGateExpired, "RemoveGate",
		"spot-controller did not remove the gate %s within %s: autoscalers do not see whether the pod requires on-demand", spot.CapacityGate, profile.Timeout)
	return 0, nil
}
