package loop

import (
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
)

// Outcomes of a write. They are a label of a metric.
const (
	done     = "done"
	outdated = "outdated" // the object has changed, or is gone
	failed   = "failed"
	dryRun   = "dry-run"
)

var (
	planDuration = metrics.NewHistogram("controller_plan_duration_seconds",
		"Time that the controller takes to read the whole cluster and to plan, per successful round.",
		basemetrics.ExponentialBuckets(1e-3, 2, 14)) // 1 ms to 8 s
	writesTotal = metrics.NewCounterVec("controller_writes_total",
		"Changes of objects other than moves, by kind ('node-mark', 'budget' for "+
			"the PodDisruptionBudget of a protected Deployment, 'deletion-cost') and by outcome: 'done', 'outdated' (the object had "+
			"changed, and the controller plans again), 'failed', or 'dry-run'.", "kind", "outcome")
)

// RegisterMetrics registers the metrics of the loop. It must be called at most once. All series of
// writes exist from then on with value 0. A series that appears with its first count would show no
// increase.
func RegisterMetrics() {
	legacyregistry.MustRegister(planDuration, writesTotal)
	for kind := range kinds {
		for _, outcome := range []string{done, outdated, failed, dryRun} {
			writesTotal.WithLabelValues(string(kind), outcome).Add(0)
		}
	}
}
