package snapshot_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// BenchmarkSnapshot measures the Snapshots of 5,000 nodes and 150,000 pods of 15,000 Deployments:
// the first, and later ones. Between these, one pod in a thousand changes.
func BenchmarkSnapshot(b *testing.B) {
	w := clustertest.NewWorld(b)
	w.AddFleet(5000, 32, 150000)
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.Reader.Forget()
			w.Snapshot()
		}
	})
	b.Run("next", func(b *testing.B) {
		changed := make([]*v1.Pod, 0, 150)
		for i := range 150 {
			changed = append(changed, w.Pods[fmt.Sprintf("web%05d-3", i*100)])
		}
		b.ReportAllocs()
		for b.Loop() {
			for i, pod := range changed {
				changed[i] = pod.DeepCopy()
				w.Put(changed[i])
			}
			w.Snapshot()
		}
	})
}
