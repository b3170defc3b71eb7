package round

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// invalidPods counts the defects of the last snapshot. docs/metrics.md lists it.
var invalidPods = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Subsystem: "spot_aware_scheduler",
	Name:      "invalid_pods",
	Help: "Pods with an invalid claim, by claim: owner (the UID of their controller reference belongs to another object) " +
		"or release (their annotation or label marks them as released, although the controller did not release them).",
	StabilityLevel: metrics.ALPHA,
}, []string{"claim"})

// RegisterMetrics registers the metric of defects. It must be called at most once. All series exist
// from then on with value 0.
func RegisterMetrics() {
	legacyregistry.MustRegister(invalidPods)
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(0)
	}
}

// defects logs each pod with an invalid claim once, and counts such pods. It remembers only
// existing pods.
type defects struct {
	logged map[types.UID]snapshot.DefectKind
}

func (d *defects) observe(s *snapshot.Snapshot) {
	logged, counts := map[types.UID]snapshot.DefectKind{}, map[snapshot.DefectKind]int{}
	for _, defect := range s.Defects {
		counts[defect.Kind]++
		if d.logged[defect.Pod.UID] != defect.Kind {
			klog.Background().Info("Ignored invalid claim of pod", "pod", klog.KObj(defect.Pod), "claim", defect.Kind, "why", defect.Why)
		}
		logged[defect.Pod.UID] = defect.Kind
	}
	d.logged = logged
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(float64(counts[kind]))
	}
}

// spotNotices reports, once, each node with a signal that only spot nodes get, but without a label
// that marks it as spot. It contains the capacity types of the reported nodes.
type spotNotices map[types.UID]decision.Capacity

func (n *spotNotices) observe(s *snapshot.Snapshot, signals []providers.Signal, recorder events.EventRecorder) {
	reported := spotNotices{}
	for _, node := range s.Nodes {
		capacity, signal := node.Facts.Capacity, providers.SpotNotice(signals, node.Node)
		if signal == nil || capacity.Type == decision.Spot && capacity.Source != decision.FromSignal {
			continue
		}
		if known, ok := (*n)[node.UID]; !ok || known != capacity {
			recorder.Eventf(node.Node, nil, v1.EventTypeWarning, spot.ReasonUnexpectedNotice, "Compare",
				"Only spot nodes get %s, but no label marks the node as spot: it counts as %s (%s)", signal, capacity.Type, capacity.Source)
		}
		reported[node.UID] = capacity
	}
	*n = reported
}
