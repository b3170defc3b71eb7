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

// parallelism is kube-scheduler's default: PodTopologySpread walks the pods with so many goroutines.
const parallelism = 16

// Benchmark measures every point at every size.
func Benchmark(b *testing.B) {
	for _, s := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", s.nodes), func(b *testing.B) {
			c := newCluster(b, s)
			for _, p := range pointsOf(b, c, parallelism) {
				b.Run(p.name, p.run)
			}
			memory := func(name string, bytesPerPod func(testing.TB, *cluster) float64) {
				b.Run("Memory/"+name, func(b *testing.B) {
					var sum float64
					for b.Loop() {
						sum += bytesPerPod(b, c)
					}
					b.ReportMetric(sum/float64(b.N), "B/pod")
				})
			}
			memory("ReplicaSafety", bytesPerPod)
			memory("events", bytesPerPodFromEvents)
		})
	}
}
