package failsafe

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

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
