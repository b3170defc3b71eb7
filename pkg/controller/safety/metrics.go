package safety

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of removals. docs/metrics.md lists them.
var (
	removals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "spot_aware_scheduler",
		Name:      "removals_total",
		Help: "Evictions and deletions of pods that the API server accepted, by cause: 'reclaim', 'deadline', 'unreachable', 'advisory', " +
			"'heal', 'make-room', 'return-to-spot', 'assign', 'drain', 'eviction-request', 'pending' or 'obsolete'.",
	}, []string{"cause"})

	ledgerWrites = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "spot_aware_scheduler",
		Name:      "ledger_writes_total",
		Help: "Writes of the ledger of moves, by outcome: 'succeeded' or 'failed'. Without the ledger no move starts that 'limits' " +
			"bounds.",
	}, []string{"outcome"})

	pausedCauses = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: "spot_aware_scheduler",
		Name:      "paused",
		Help: "1 on the leader for a cause of 'removals_total' that a user has paused, or whose pause is unknown because the switches cannot " +
			"be read; otherwise 0.",
	}, []string{"cause"})
)

// RegisterMetrics registers the metrics of removals; call it once per registry. All series exist
// from then on with value 0.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(removals, ledgerWrites, pausedCauses)
	for cause := range Rules {
		removals.WithLabelValues(string(cause))
		pausedCauses.WithLabelValues(string(cause))
	}
	for _, outcome := range []string{"succeeded", "failed"} {
		ledgerWrites.WithLabelValues(outcome)
	}
}
