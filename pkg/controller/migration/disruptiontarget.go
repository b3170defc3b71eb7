package migration

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// setDisruptionTarget sets the condition DisruptionTarget on a pod that is about to be deleted
// against its PodDisruptionBudget. The eviction API sets it too, and the podFailurePolicy of a Job
// reads it. The deletion does not depend on the condition, so an error is only logged, once.
func (e *Executor) setDisruptionTarget(ctx context.Context, a Action) {
	if slices.ContainsFunc(a.Pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
	}) {
		return
	}
	// The API server merges conditions by type. The UID prevents a patch of a later pod with the
	// same name.
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.Pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: spot.ReasonInterruption,
			Message: "spot-controller: " + a.Why, LastTransitionTime: metav1.NewTime(e.clock.Now()),
		}}},
	})
	if err == nil {
		// The timeout leaves time for the deletion if the request hangs.
		patching, cancel := context.WithTimeout(ctx, min(e.settings.RequestTimeout/2, conditionTimeout))
		defer cancel()
		_, err = e.client.CoreV1().Pods(a.Pod.Namespace).Patch(
			patching, a.Pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		e.conditionError.Do(func() {
			klog.FromContext(ctx).Error(err, "Condition DisruptionTarget not set before a deletion; not logged again", "pod", klog.KObj(a.Pod))
		})
	}
}

// conditionTimeout limits the duration of the request that sets the condition DisruptionTarget.
const conditionTimeout = 2 * time.Second
