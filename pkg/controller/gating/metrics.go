package gating

import (
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
)

var (
	gateDuration = metrics.NewHistogram("capacity_gate_duration_seconds",
		"Time in seconds from when the controller first saw a gated pod until it removed the gate.",
		basemetrics.ExponentialBuckets(1e-3, 2, 16)) // 1 ms to 33 s
	assignedPods = metrics.NewCounterVec("assigned_pods_total",
		"Pods whose capacity gate was removed, by the capacity type that was assigned: 'on-demand', 'spot', 'any' or 'none'.",
		"capacity_type")
	replacedPods = metrics.NewCounterVec("replaced_pending_pods_total",
		"Unschedulable pods deleted for a successor with another affinity, by reason: 'fallback', 'rollout-relief' or 'reassigned'.",
		"reason")
)

// RegisterMetrics registers the metrics of the controller. It must be called at most once.
func RegisterMetrics() {
	legacyregistry.MustRegister(gateDuration, assignedPods, replacedPods)
	for _, a := range []string{decision.AssignedOnDemand.String(), decision.AssignedSpot.String(), decision.AssignedAny.String(), "none"} {
		assignedPods.WithLabelValues(a).Add(0) // a series that appears with its first count would not show an increase
	}
	for _, reason := range []string{spot.GrantedFallback, spot.GrantedRelief, reassigned} {
		replacedPods.WithLabelValues(reason).Add(0)
	}
}
