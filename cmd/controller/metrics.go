package main

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const subsystem = "spot_aware_scheduler"

// Outcomes of a write. They are a label of a metric.
const (
	done     = "done"
	outdated = "outdated" // the object has changed, or is gone
	failed   = "failed"
	dryRun   = "dry-run"
)

// Metrics of the loop. docs/metrics.md lists them.
var (
	planDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem,
		Name:      "controller_plan_duration_seconds",
		Help:      "Time that the controller takes to read the whole cluster and to plan, per successful round.",
		// 1 ms to 8 s.
		Buckets:        metrics.ExponentialBuckets(1e-3, 2, 14),
		StabilityLevel: metrics.ALPHA,
	})
	cachesSynced = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "caches_synced",
		Help:           "1 if the informer caches that the controller plans with are full, 0 before.",
		StabilityLevel: metrics.ALPHA,
	})
	writesTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem,
		Name:      "controller_writes_total",
		Help: "Changes of objects other than moves, by kind (node-mark, eviction-response, budget, deletion-cost) and by outcome: done, outdated (the object had " +
			"changed), failed, or dry-run.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind", "outcome"})
	invalidPods = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem,
		Name:      "invalid_pods",
		Help: "Pods with an invalid claim, by claim: owner (the UID of their controller reference belongs to another object) " +
			"or release (their annotation or label marks them as released, although the controller did not release them).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"claim"})
)

// registerMetrics registers all metrics; call it once, before the manager serves metrics. The
// manager serves only the registry of controller-runtime. The metrics of this project and of
// Kubernetes are in the other registry.
func registerMetrics() {
	legacyregistry.MustRegister(planDuration, cachesSynced, writesTotal, invalidPods)
	for _, kind := range []writeKind{mark, evictionResponse, budget, deletionCost} {
		for _, outcome := range []string{done, outdated, failed, dryRun} {
			// otherwise the first count would show no increase
			writesTotal.WithLabelValues(string(kind), outcome).Add(0)
		}
	}
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(0)
	}
	migration.RegisterMetrics(ctrlmetrics.Registry)
	recovery.RegisterMetrics(ctrlmetrics.Registry)
	gating.RegisterMetrics()
	app.ServeAllMetrics()
}
