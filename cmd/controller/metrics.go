package main

import (
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/round"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/failsafe"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// cachesSynced reports whether this replica can plan.
var cachesSynced = metrics.NewGauge("caches_synced",
	"1 if the informer caches that the controller plans with are full, 0 before.")

// registerMetrics registers all metrics; call it once, before the manager serves metrics. The
// manager serves only the registry of controller-runtime. The metrics of this project and of
// Kubernetes are in the other registry.
func registerMetrics() {
	legacyregistry.MustRegister(cachesSynced)
	loop.RegisterMetrics()
	round.RegisterMetrics()
	execution.RegisterMetrics()
	safety.RegisterMetrics()
	recovery.RegisterMetrics()
	gating.RegisterMetrics()
	failsafe.RegisterMetrics()
	app.ServeAllMetrics()
}
