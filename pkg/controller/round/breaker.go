package round

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
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

// reportBreaker reports a change of the breaker: as a metric, in the log, and as an event on the
// Lease of the controller, which exists while a controller leads.
func (p *Planner) reportBreaker(b interruption.Breaker) {
	if b.Open == p.breakerOpen {
		return
	}
	p.breakerOpen = b.Open
	value, kind, reason, note := 0.0, v1.EventTypeNormal, spot.ReasonBreakerClosed, "No node has an unconfirmed reclaim signal"
	if b.Open {
		value, kind, reason = 1, v1.EventTypeWarning, spot.ReasonBreakerOpened
		note = fmt.Sprintf("%d nodes have a reclaim signal that nothing else confirms: "+
			"no pod is deleted there, and pods without a ready replacement are evicted one at a time at most", len(b.Unconfirmed))
	}
	breakerOpen.Set(value)
	klog.Background().Info("Breaker for reclaim signals changed", "reason", reason, "message", note)
	p.clients.Recorder.Eventf(&v1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: leader.Namespace(), Name: leader.Controller,
	}, nil, kind, reason, "Plan", "%s", note)
}
