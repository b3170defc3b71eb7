package main

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const subsystem = "spot_aware_scheduler"

// docs/metrics.md lists these metrics.
var (
	cachesSynced = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "caches_synced",
		Help:           "1 if the informer caches that the controller plans with are full, 0 before.",
		StabilityLevel: metrics.ALPHA,
	})
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
	legacyregistry.MustRegister(cachesSynced, invalidPods)
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(0)
	}
	loop.RegisterMetrics()
	migration.RegisterMetrics(ctrlmetrics.Registry)
	recovery.RegisterMetrics(ctrlmetrics.Registry)
	gating.RegisterMetrics()
	app.ServeAllMetrics()
}
