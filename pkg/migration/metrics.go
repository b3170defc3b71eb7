package migration

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

const subsystem = "spot_aware_scheduler"

// The outcomes of migrations, as the metric's label says them.
const (
	// moved: the pod is gone, as it was meant to.
	moved = "moved"
	// undone: it went back to its ReplicaSet, because no replacement was ready in time.
	undone = "undone"
	// abandoned: it is gone because its workload is, or wants no pods any more.
	abandoned = "abandoned"
	// dryRun: it would have been begun.
	dryRun = "dry-run"
)

// ways and outcomes are every value of their labels; reasons and Unknown are those of theirs.
var (
	ways     = []Way{Surge, Evict, Delete}
	outcomes = []string{moved, undone, abandoned, dryRun}
)

// The metrics of moves. docs/metrics.md lists them. Their labels are small closed sets.
var (
	migrations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: subsystem,
		Name:      "migrations_total",
		Help:      "Pods moved, by way (surge, evict, delete), by reason, and by outcome: moved, undone, abandoned or dry-run.",
	}, []string{"way", "reason", "outcome"})

	evictionsBlocked = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: subsystem,
		Name:      "evictions_blocked_total",
		Help:      "Pods whose eviction was refused, each counted once, by what did: budget, or several-budgets, which no eviction passes.",
	}, []string{"by"})

	evacuation = prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: subsystem,
		Name:      "evacuation_duration_seconds",
		Help:      "Time from a node's notice, as this process saw it, to the end of the last pod that had to leave it.",
		// Notices give 15 s to 5 min.
		Buckets: []float64{1, 2, 5, 10, 15, 20, 25, 30, 45, 60, 75, 90, 105, 120, 180, 300, 600},
	})

	podsLost = prometheus.NewCounter(prometheus.CounterOpts{
		Subsystem: subsystem,
		Name:      "pods_lost_with_node_total",
		Help:      "Pods that were still on an interrupted node when it vanished, and not ending already.",
	})

	podsOverdue = prometheus.NewCounter(prometheus.CounterOpts{
		Subsystem: subsystem,
		Name:      "moved_pods_overdue_total",
		Help:      "Pods that were moved and still terminated a minute after their grace period, each counted once.",
	})
)

// RegisterMetrics registers the metrics of moves, once for a registry. Every series is there from then on, as 0: one that appeared with its
// first count would be no increase, and no alert would come of that.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(migrations, evictionsBlocked, evacuation, podsLost, podsOverdue)
	for _, way := range ways {
		for _, reason := range slices.Concat(reasons, []Reason{Unknown}) {
			for _, outcome := range outcomes {
				migrations.WithLabelValues(string(way), string(reason), outcome)
			}
		}
	}
	for _, by := range []outcome{refused, barred} {
		evictionsBlocked.WithLabelValues(string(by))
	}
}
