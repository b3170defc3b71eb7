package micro

import (
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"
)

// point is a measured operation. thresholds.yaml and the benchmarks refer to it by its name,
// <extension point>/<plugin>[/<situation>].
//
// PreFilter and PreScore are measured per cycle, in which one node has changed since the last
// cycle. Filter and Score are measured per node. NormalizeScore is measured for the nodes that one
// cycle searches. Prepare is PreFilter and PreScore, the cost of a cycle however few nodes it
// searches. Cycle also includes the work for the nodes that it searches. SpotAware is ReplicaSafety
// and SpotPreference together.
type point struct {
	name string
	// start prepares the work once, unmeasured. before runs before each measured unit of work.
	// Either may be nil.
	start  func()
	before func(testing.TB)
	// The work is either that of a cycle, or that for each of some nodes.
	work    func()
	nodes   []fwk.NodeInfo
	perNode func(fwk.NodeInfo)
}

// run measures p as a benchmark.
func (p point) run(b *testing.B) {
	if p.start != nil {
		p.start()
	}
	switch {
	case p.perNode != nil:
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			p.perNode(p.nodes[i])
			if i++; i == len(p.nodes) {
				i = 0
			}
		}
	case p.before == nil:
		b.ReportAllocs()
		for b.Loop() {
			p.work()
		}
	default:
		// The point measures the time itself. If the benchmark's timer were stopped instead, before
		// would not count towards its time limit. A before that takes a thousand times as long as
		// the work would then run almost forever.
		var worked time.Duration
		for b.Loop() {
			p.before(b)
			start := time.Now()
			p.work()
			worked += time.Since(start)
		}
		b.ReportMetric(float64(worked.Nanoseconds())/float64(b.N), "ns/op")
	}
}

// pointsOf returns all points that are measured on c, with plugins that use up to parallelism
// goroutines.
func pointsOf(t testing.TB, c *cluster, parallelism int) []point {
	t.Helper()
	made, stop := newPlugins(t, c, parallelism)
	t.Cleanup(stop)
	ours := newCycle(t, c, c.web, true, made[replicasafety.Name], made[spotpreference.Name])
	spread := newCycle(t, c, c.web, false, made[podtopologyspread.Name])
	affinity := newCycle(t, c, c.affine, false, made[nodeaffinity.Name])

	var points []point
	for _, k := range []struct {
		name string
		*cycle
	}{{"SpotAware", ours}, {"PodTopologySpread", spread}, {"NodeAffinity", affinity}} {
		prepare := func() { k.prepare() }
		points = append(points,
			// The first call counts everything that has changed since the plugins were last called,
			// which may be all nodes.
			point{name: "Prepare/" + k.name, start: prepare, before: c.change, work: prepare},
			point{name: "Cycle/" + k.name, start: prepare, before: c.change, work: func() { k.run() }})
		points = append(points, k.points()...)
	}
	prepare := func() { ours.prepare() }
	points = append(points,
		point{name: "Prepare/SpotAware/unchanged", start: prepare, work: prepare},
		refusal(t, c, made[replicasafety.Name]),
		fitsNowhere(c, made[replicasafety.Name]),
		first(t, c))
	return append(points, risks(t, made[spotpreference.Name])...)
}

// points returns the points of each plugin at each extension point.
func (k *cycle) points() []point {
	c, searched := k.cluster, k.cluster.window(0)
	var state fwk.CycleState
	start := func() { state, _ = k.prepare() }
	var points []point
	for _, p := range k.preFilter {
		points = append(points, point{name: "PreFilter/" + p.Name(), start: start, before: c.change, work: func() {
			p.PreFilter(c.ctx, k.begin(), k.pod, c.infos)
		}})
	}
	for _, p := range k.filter {
		points = append(points, point{name: "Filter/" + p.Name(), start: start, nodes: c.infos, perNode: func(node fwk.NodeInfo) {
			p.Filter(c.ctx, state, k.pod, node)
		}})
	}
	for _, p := range k.preScore {
		points = append(points, point{name: "PreScore/" + p.Name(), start: start, work: func() { p.PreScore(c.ctx, state, k.pod, searched) }})
	}
	for _, p := range k.score {
		scores, normalized := make(fwk.NodeScoreList, len(searched)), make(fwk.NodeScoreList, len(searched))
		points = append(points,
			point{name: "Score/" + p.Name(), start: start, nodes: searched, perNode: func(node fwk.NodeInfo) { p.Score(c.ctx, state, k.pod, node) }},
			point{name: "NormalizeScore/" + p.Name(),
				start: func() {
					start()
					for i, node := range searched {
						score, _ := p.Score(c.ctx, state, k.pod, node)
						scores[i] = fwk.NodeScore{Name: node.Node().Name, Score: score}
					}
				},
				work: func() {
					copy(normalized, scores)
					p.ScoreExtensions().NormalizeScore(c.ctx, state, k.pod, normalized)
				}})
	}
	return points
}

// refusal measures Filter for the nodes that it rejects.
func refusal(t testing.TB, c *cluster, safety fwk.Plugin) point {
	t.Helper()
	state := framework.NewCycleState()
	start := func() { safety.(fwk.PreFilterPlugin).PreFilter(c.ctx, state, c.strict, c.infos) }
	filter := safety.(fwk.FilterPlugin)
	start()
	return point{name: "Filter/ReplicaSafety/refused", start: start, nodes: refused(t, c, filter, state, c.strict),
		perNode: func(node fwk.NodeInfo) { filter.Filter(c.ctx, state, c.strict, node) }}
}

// fitsNowhere measures PreFilter for a pod that fits on no node, which has to check all nodes.
func fitsNowhere(c *cluster, safety fwk.Plugin) point {
	pod := c.web.DeepCopy()
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ei")}
	k := &cycle{cluster: c, pod: pod, preFilter: []fwk.PreFilterPlugin{safety.(fwk.PreFilterPlugin)}, narrow: true}
	prepare := func() { k.prepare() }
	return point{name: "PreFilter/ReplicaSafety/nowhere", start: prepare, work: prepare}
}

// first measures the first PreFilter of a process, which counts all nodes and pods.
func first(t testing.TB, c *cluster) point {
	t.Helper()
	var safety fwk.PreFilterPlugin
	stop := func() {}
	t.Cleanup(func() { stop() })
	return point{name: "PreFilter/ReplicaSafety/first",
		before: func(t testing.TB) {
			stop()
			safety, stop = newUncountedPlugin(t, c)
		},
		work: func() { safety.PreFilter(c.ctx, framework.NewCycleState(), c.web, c.infos) },
	}
}

// newUncountedPlugin returns ReplicaSafety of a process that has not counted anything yet.
func newUncountedPlugin(t testing.TB, c *cluster) (safety fwk.PreFilterPlugin, stop func()) {
	t.Helper()
	made, stop := newPlugins(t, c, 1)
	safety = made[replicasafety.Name].(fwk.PreFilterPlugin)
	untilSynced(t, safety, framework.NewCycleState(), c.web, nil)
	return safety, stop
}

// bytesPerPod returns the memory of one process for counting the bound pods: the growth of the heap
// by the first PreFilter.
func bytesPerPod(t testing.TB, c *cluster) float64 {
	t.Helper()
	safety, stop := newUncountedPlugin(t, c)
	defer stop()
	before := heap()
	safety.PreFilter(c.ctx, framework.NewCycleState(), c.web, c.infos)
	after := heap()
	runtime.KeepAlive(safety)
	return (float64(after) - float64(before)) / float64(c.pods())
}

// heap returns the bytes in use after two collections. The first collection can leave objects that
// had a finalizer.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
