package micro

import (
	"fmt"
	"os"
	"testing"

	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
)

func TestMain(m *testing.M) {
	schedulermetrics.Register()
	os.Exit(m.Run())
}

// parallelism is kube-scheduler's default: the number of goroutines with which PodTopologySpread
// iterates over the pods.
const parallelism = 16

// Benchmark measures every point at every size.
func Benchmark(b *testing.B) {
	for _, s := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", s.nodes), func(b *testing.B) {
			c := newCluster(b, s)
			points := pointsOf(b, c, parallelism)
			for _, p := range points {
				b.Run(p.name, p.run)
			}
			// The ratios of the thresholds, here in real time with all processors.
			b.Run("Ratios", func(b *testing.B) {
				ratios := committed(b).Ratios
				var took map[string]float64
				for b.Loop() {
					took = fastest(b, byName(points), ratios, 3)
				}
				for _, r := range ratios {
					b.Log(r.in(took))
				}
			})
			b.Run("Memory/ReplicaSafety", func(b *testing.B) {
				var sum float64
				for b.Loop() {
					sum += bytesPerPod(b, c)
				}
				b.ReportMetric(sum/float64(b.N), "B/pod")
			})
		})
	}
}
