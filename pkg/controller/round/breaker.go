package round

import (
	"fmt"
	"maps"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
)

// The metrics of reclaim signals describe the last snapshot.
var (
	breakerOpen = metrics.NewGauge("breaker_open",
		"1 while the breaker for reclaim signals is open (interruption.breaker), 0 otherwise and on a replica that does not lead.")
	breakerForced = metrics.NewGaugeVec("breaker_forced",
		"1 on the leader for the state that a user has set the breaker to, 'open' or 'closed'; otherwise 0.", "state")
	breakerForcedUntil = metrics.NewGauge("breaker_forced_until_timestamp_seconds",
		"Unix time when the state of breaker_forced ends; 0 if only a user ends it, or no state is set.")
	reclaimNodes = metrics.NewGaugeVec("reclaim_nodes",
		"Spot nodes with a reclaim signal, by their newest signal and by what confirms it: 'node' (a fact about the node), 'signal' "+
			"(a second signal or a cordon) or 'none'. A series exists from the first node with its labels on; 0 on a replica that does "+
			"not lead.", "signal", "confirmation")
	spotNodes = metrics.NewGauge("spot_nodes",
		"Spot nodes, with and without a reclaim signal; 0 on a replica that does not lead.")
	dryRun = metrics.NewGauge("controller_dry_run",
		"1 if this controller is a dry run, which never leads; otherwise 0.")
)

// reportReclaims sets the metrics of reclaim signals and of the breaker that a user has set.
func (p *Planner) reportReclaims(b interruption.Breaker, forced *safety.ForcedBreaker) {
	spotNodes.Set(float64(b.SpotNodes))
	maps.Copy(p.reclaims, b.Reclaims)
	for r := range p.reclaims {
		reclaimNodes.WithLabelValues(r.Signal, r.Confirmation).Set(float64(b.Reclaims[r]))
	}
	for _, state := range []string{safety.BreakerOpen, safety.BreakerClosed} {
		breakerForced.WithLabelValues(strings.ToLower(state)).Set(map[bool]float64{true: 1}[forced != nil && forced.State == state])
	}
	breakerForcedUntil.Set(0)
	if forced != nil && forced.Until != nil {
		breakerForcedUntil.Set(float64(forced.Until.Unix()))
	}
}

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
