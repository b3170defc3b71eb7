package safety

import (
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
)

// Metrics of removals.
var (
	removals = metrics.NewCounterVec("removals_total",
		"Evictions and deletions of pods that the API server accepted, by cause: 'reclaim', 'deadline', 'unreachable', 'advisory', "+
			"'heal', 'make-room', 'return-to-spot', 'assign', 'drain', 'eviction-request', 'pending' or 'obsolete'.", "cause")

	ledgerWrites = metrics.NewCounterVec("ledger_writes_total",
		"Writes of the ledger of moves, by outcome: 'succeeded' or 'failed'. Without the ledger no move starts that 'limits' bounds.",
		"outcome")

	pausedCauses = metrics.NewGaugeVec("paused",
		"1 on the leader for a cause of 'removals_total' that a user has paused, or whose pause is unknown because the switches "+
			"cannot be read; otherwise 0.", "cause")
)

// RegisterMetrics registers the metrics of removals. It must be called at most once. All series
// exist from then on with value 0.
func RegisterMetrics() {
	legacyregistry.MustRegister(removals, ledgerWrites, pausedCauses)
	for cause := range Rules {
		removals.WithLabelValues(string(cause))
		pausedCauses.WithLabelValues(string(cause))
	}
	for _, outcome := range []string{"succeeded", "failed"} {
		ledgerWrites.WithLabelValues(outcome)
	}
}
