package main

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

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
