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

// parallelism is kube-scheduler's own, how many goroutines PodTopologySpread walks all pods with.
const parallelism = 16

// Benchmark measures every point at every size.
func Benchmark(b *testing.B) {
	for _, s := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", s.nodes), func(b *testing.B) {
			c := newCluster(b, s)
			for _, p := range pointsOf(b, c, parallelism) {
				b.Run(p.name, p.run)
			}
			b.Run("Memory/ReplicaSafety", func(b *testing.B) {
				var bytes float64
				for b.Loop() {
					bytes += bytesPerPod(b, c)
				}
				b.ReportMetric(bytes/float64(b.N), "B/pod")
			})
		})
	}
}
