package failsafe

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The scheduler and a standby controller increment expiredGates.
var expiredGates = metrics.NewCounter("expired_capacity_gates_total",
	"Capacity gates that the scheduler, a standby controller or --failsafe removed because the leading controller did not remove "+
		"them within gateTimeout.")

// RegisterMetrics registers the metrics of a Withdrawer. It must be called at most once.
func RegisterMetrics() { legacyregistry.MustRegister(expiredGates) }

// removeExpiredGates removes capacity gates that the controller has not removed in time, so no pod
// waits for a controller that does not run. The Filter still protects the floor of pods that our
// scheduler places, but autoscalers do not see it. The controller heals the floors of other pods.
// For a pod that names another scheduler, the longest timeout of all profiles applies.
//
// While a pod has other gates, its gate does not expire: the controller waits for the final node
// selector. The timeout begins when the last other gate is removed.
func (r *Withdrawer) removeExpiredGates(ctx context.Context, pods []*v1.Pod) {
	expired := r.expiredGates(pods) // in random order, so that no gate that cannot be removed blocks others
	for _, pod := range expired[:min(len(expired), gatesPerCheck)] {
		if !r.leads() {
			return
		}
		err := workload.PatchPod(ctx, r.client, pod, workload.PodPatch{
			Annotations: map[string]*string{
				spot.AssignedAnnotation:     new(spot.GateExpired),
				spot.WaitingSinceAnnotation: new(r.clock.Now().UTC().Format(time.RFC3339)), // it was the last gate
			},
			Spec: &workload.PodSpecPatch{SchedulingGates: workload.WithoutCapacityGate(pod)},
		})
		switch {
		case gone(err):
		case err == nil:
			expiredGates.Inc()
			klog.FromContext(ctx).Info("Removed expired capacity gate", "pod", klog.KObj(pod), "gateTimeout", r.timeoutOf(pod))
			r.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonGateExpired, "RemoveGate",
				"spot-controller did not remove the gate %s within %s: autoscalers do not see whether the pod requires "+
					"on-demand", spot.CapacityGate, r.timeoutOf(pod))
		default:
			klog.FromContext(ctx).Error(err, "Failed to remove expired capacity gate, will retry", "pod", klog.KObj(pod))
			if refusal.Denied(err) || refusal.By(err) != "" {
				r.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonRefused, "RemoveGate",
					"removal of the gate %s refused: %s", spot.CapacityGate, refusal.Message(err))
			}
		}
	}
}

func (r *Withdrawer) expiredGates(pods []*v1.Pod) (expired []*v1.Pod) {
	heldAt := map[types.UID]time.Time{}
	for _, pod := range pods {
		since := pod.CreationTimestamp.Time
		switch last, held := r.heldAt[pod.UID]; {
		case !workload.Live(pod) || !workload.Gated(pod):
			continue
		case workload.HasOtherGates(pod):
			heldAt[pod.UID] = r.clock.Now()
			continue
		case held:
			since, heldAt[pod.UID] = last, last
		}
		if until := workload.GateKeptUntil(pod); until.After(since) {
			since = until
		}
		if r.clock.Since(since) >= r.timeoutOf(pod) {
			expired = append(expired, pod)
		}
	}
	r.heldAt = heldAt
	return expired
}

func (r *Withdrawer) timeoutOf(pod *v1.Pod) time.Duration {
	if timeout, known := r.gateTimeouts[pod.Spec.SchedulerName]; known {
		return timeout
	}
	return r.longestTimeout
}

// recordWaits records since when unschedulable pods of a profile wait, if they had gates and the
// controller did not remove the last one: see spot.WaitingSinceAnnotation. It uses the subresource,
// because an admission policy restricts other updates by the scheduler.
func (r *Withdrawer) recordWaits(ctx context.Context, pods []*v1.Pod) {
	requests, now := 0, r.clock.Now()
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || !workload.Unschedulable(pod) || !workload.Live(pod) {
			continue
		}
		_, known := r.gateTimeouts[pod.Spec.SchedulerName]
		if _, recorded := workload.WaitingSince(pod, now); recorded || !known {
			continue
		}
		if requests++; requests > changesPerCheck || !r.leads() {
			return
		}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, spot.WaitingSinceAnnotation,
			now.UTC().Format(time.RFC3339))
		if _, err := r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
			"status"); err != nil {
			klog.FromContext(ctx).V(2).Info("Waiting time not recorded, will retry", "pod", klog.KObj(pod), "err", err)
		}
	}
}
