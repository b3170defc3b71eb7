package round

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// breakerOpen describes the last snapshot. docs/metrics.md lists it.
var breakerOpen = metrics.NewGauge(&metrics.GaugeOpts{
	Subsystem:      "spot_aware_scheduler",
	Name:           "breaker_open",
	Help:           "1 while the breaker for reclaim signals is open (interruption.breaker), 0 otherwise and on a replica that does not lead.",
	StabilityLevel: metrics.ALPHA,
})

// breakerReport reports when the breaker opens and closes.
type breakerReport struct {
	recorder events.EventRecorder
	open     bool
}

// observe reports a change of the breaker: as a metric, in the log, and as an event on the Lease of
// the controller, which exists while a controller leads.
func (r *breakerReport) observe(b interruption.Breaker) {
	if b.Open == r.open {
		return
	}
	r.open = b.Open
	on := &v1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: leader.Namespace(), Name: leader.Controller,
	}
	if !b.Open {
		breakerOpen.Set(0)
		klog.Background().Info("Breaker for reclaim signals closed")
		r.recorder.Eventf(on, nil, v1.EventTypeNormal, spot.ReasonBreakerClosed, "Plan", "No node has an unconfirmed reclaim signal")
		return
	}
	breakerOpen.Set(1)
	klog.Background().Info("Breaker for reclaim signals opened", "nodes", len(b.Unconfirmed))
	r.recorder.Eventf(on, nil, v1.EventTypeWarning, spot.ReasonBreakerOpened, "Plan",
		"%d nodes have a reclaim signal that nothing else confirms: only pods whose replacement is ready are evicted from them",
		len(b.Unconfirmed))
}
