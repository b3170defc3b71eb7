package micro

import (
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// thresholds is the content of thresholds.yaml, which gives the source of each number.
type thresholds struct {
	// Ratios limit the time of points, compared with points of in-tree plugins in the same run.
	Ratios []ratio `json:"ratios"`
	// AllocateNothing names points that are measured per node.
	AllocateNothing []string `json:"allocateNothing"`
	// BytesPerPod limits the memory for counting the bound pods.
	BytesPerPod float64 `json:"bytesPerPod"`
}

type ratio struct {
	Of     string  `json:"of"`
	To     string  `json:"to"`
	AtMost float64 `json:"atMost"`
}

// in describes r, with the nanoseconds of the points.
func (r ratio) in(took map[string]float64) string {
	return fmt.Sprintf("%s takes %.0f ns, %.4f x the %.0f ns of %s", r.Of, took[r.Of], took[r.Of]/took[r.To], took[r.To], r.To)
}

// committed returns the content of thresholds.yaml.
func committed(t testing.TB) thresholds {
	t.Helper()
	data, err := os.ReadFile("thresholds.yaml")
	must(t, err)
	var limits thresholds
	must(t, yaml.UnmarshalStrict(data, &limits))
	if len(limits.Ratios) == 0 || len(limits.AllocateNothing) == 0 {
		t.Fatal("thresholds.yaml: expected ratios and allocateNothing")
	}
	return limits
}

// TestThresholds compares the cost of the plugins with thresholds.yaml, at 5,000 nodes with 150,000
// pods.
func TestThresholds(t *testing.T) {
	c := newCluster(t, size{nodes: 5_000, podsPerNode: 30, searched: 500})
	// One goroutine: otherwise the time of PodTopologySpread would depend on the number of free
	// processors.
	points := byName(pointsOf(t, c, 1))
	limits := committed(t)

	took := fastest(t, points, limits.Ratios, 7)
	for _, r := range limits.Ratios {
		if took[r.Of]/took[r.To] > r.AtMost {
			t.Errorf("%s; at most %v x are allowed", r.in(took), r.AtMost)
		} else {
			t.Log(r.in(took))
		}
	}
	for _, name := range limits.AllocateNothing {
		p, ok := points[name]
		if !ok || p.perNode == nil {
			t.Fatalf("thresholds.yaml: %q: expected a point of nodes: Filter or Score", name)
		}
		if p.start != nil {
			p.start()
		}
		// One run covers all nodes. Other goroutines allocate less than once per run in ten runs.
		allocations := testing.AllocsPerRun(10, func() {
			for _, node := range p.nodes {
				p.perNode(node)
			}
		})
		if allocations != 0 {
			t.Errorf("%s allocates %v times for %d nodes, want 0", name, allocations, len(p.nodes))
		}
	}
	bytes := bytesPerPod(t, c)
	t.Logf("%.1f bytes per pod", bytes)
	if bytes > limits.BytesPerPod {
		t.Errorf("the count takes %.1f bytes per pod, at most %v are allowed", bytes, limits.BytesPerPod)
	}
}

func byName(points []point) map[string]point {
	named := map[string]point{}
	for _, p := range points {
		named[p.name] = p
	}
	return named
}

// fastest measures all points in ratios in turn, the given number of times. It returns the fewest
// nanoseconds of each, because other load on the machine can only increase them. testing.Benchmark
// would collect garbage before each measurement, which takes longer than all measurements.
func fastest(t testing.TB, points map[string]point, ratios []ratio, times int) map[string]float64 {
	t.Helper()
	took := map[string]float64{}
	for range times {
		measured := map[string]bool{}
		for _, r := range ratios {
			for _, name := range []string{r.Of, r.To} {
				if measured[name] {
					continue
				}
				measured[name] = true
				p, ok := points[name]
				if !ok {
					t.Fatalf("thresholds.yaml: %q: expected the name of a point, such as Filter/ReplicaSafety", name)
				}
				ns := nanoseconds(t, p, 20*time.Millisecond)
				if least, ok := took[name]; !ok || ns < least {
					took[name] = ns
				}
			}
		}
	}
	return took
}

// nanoseconds repeats the work of p for at least long, and returns its average duration.
func nanoseconds(t testing.TB, p point, long time.Duration) float64 {
	t.Helper()
	if p.start != nil {
		p.start()
	}
	var worked time.Duration
	n := 0
	for worked < long {
		if p.before != nil {
			p.before(t)
		}
		start := time.Now()
		if p.perNode == nil {
			p.work()
			n++
		} else {
			for _, node := range p.nodes {
				p.perNode(node)
			}
			n += len(p.nodes)
		}
		worked += time.Since(start)
	}
	return float64(worked.Nanoseconds()) / float64(n)
}
