package round

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

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
