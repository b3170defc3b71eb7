package execution

import (
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
)

// Outcomes of migrations, as values of the metric's label.
const (
	moved = "moved"
	// restored: the controller restored the pod to its ReplicaSet, because no replacement was ready
	// in time.
	restored = "restored"
	// abandoned: the pod is gone because its workload was deleted or wants no pods any more.
	abandoned = "abandoned"
	// dryRun: the move would have been started.
	dryRun = "dry-run"
)

// Metrics of moves.
var (
	migrations = metrics.NewCounterVec("migrations_total",
		"Moved pods, counted when they are gone, by method ('surge', 'evict', 'delete'), by reason, and by outcome: 'moved', "+
			"'restored', 'abandoned' or 'dry-run'.", "method", "reason", "outcome")

	evictionsBlocked = metrics.NewCounterVec("evictions_blocked_total",
		"Pods whose eviction was refused, each counted once, by reason: 'disruption-budget', 'several-disruption-budgets', for which "+
			"the API server refuses every eviction, or 'denied', by a webhook or a policy.", "reason")

	evacuationDuration = metrics.NewHistogram("evacuation_duration_seconds",
		"Time from the moment this process saw a node's notice until the last pod to be moved was gone.",
		// Providers give between 15 s and 5 min of notice.
		[]float64{1, 2, 5, 10, 15, 20, 25, 30, 45, 60, 75, 90, 105, 120, 180, 300, 600})

	podsLost = metrics.NewCounterVec("pods_lost_with_node_total",
		"Pods that were still on an interrupted node when it vanished, and not yet terminating, by replacement, as in "+
			"'deletions_total'.", "replacement")

	deletions = metrics.NewCounterVec("deletions_total",
		"Deletions of pods without time for an eviction, by cause ('deadline', 'unreachable'), by whether they broke a "+
			"PodDisruptionBudget ('true', 'false'), and by replacement: 'not-created', 'not-scheduled', 'not-ready' or 'ready'.",
		"cause", "breaks_budget", "replacement")

	movesLimited = metrics.NewGaugeVec("moves_limited",
		"Pods that would be moved next, but stay because a limit or a schedule of 'limits' refuses moves of their workloads, by "+
			"cause: 'advisory', 'heal', 'make-room', 'return-to-spot' or 'assign'.", "cause")

	podsOverdue = metrics.NewCounter("moved_pods_overdue_total",
		"Moved pods that were still terminating a minute after their grace period, each counted once.")
)

func setLimited(moves map[safety.Cause]int) {
	for cause, rule := range safety.Rules {
		if rule.Limited {
			movesLimited.WithLabelValues(string(cause)).Set(float64(moves[cause]))
		}
	}
}

// RegisterMetrics registers the metrics of moves. It must be called at most once. All series exist
// from then on with value 0. A series that appears with its first count shows no increase, so no
// alert would fire.
func RegisterMetrics() {
	legacyregistry.MustRegister(migrations, evictionsBlocked, evacuationDuration, podsLost, podsOverdue, movesLimited, deletions)
	for _, method := range []migration.Method{migration.Surge, migration.Evict, migration.Delete} {
		for _, reason := range migration.Reasons {
			for _, outcome := range []string{moved, restored, abandoned, dryRun} {
				migrations.WithLabelValues(string(method), string(reason), outcome)
			}
		}
	}
	for _, replacement := range migration.ReplacementStates {
		podsLost.WithLabelValues(replacement)
		for _, cause := range []safety.Cause{safety.Deadline, safety.Unreachable} {
			deletions.WithLabelValues(string(cause), "true", replacement)
			deletions.WithLabelValues(string(cause), "false", replacement)
		}
	}
	setLimited(nil)
	for _, reason := range []outcome{refused, blockedBySeveral, denied} {
		evictionsBlocked.WithLabelValues(string(reason))
	}
}
