package replicasafety

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// BenchmarkFilter measures one cycle's work at 5,000 nodes with 5 pods each, of which every fifth is on-demand.
func BenchmarkFilter(b *testing.B) {
	for name, replicas := range map[string]int32{"within budget": 10, "over budget": 1} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, nil, deployment("web", replicas, 1, nil)...)
			for i := range 5000 {
				n := spot(fmt.Sprintf("node-%d", i))
				if i%5 == 0 {
					n = onDemand(n.Name)
				}
				w.nodes(n)
				for j := range 5 {
					w.stand(n.Name, podOf(fmt.Sprintf("pod-%d-%d", i, j), by("ReplicaSet", fmt.Sprintf("rs-%d", (i+j)%500))))
				}
			}
			w.must(w.cache.UpdateSnapshot(klog.FromContext(w.ctx), w.snapshot))
			nodes, err := w.snapshot.NodeInfos().List()
			w.must(err)
			pod, state := web("p"), framework.NewCycleState()
			b.Run("PreFilter", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.plugin.PreFilter(w.ctx, state, pod, nodes)
				}
			})
			b.Run("Filter", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for _, node := range nodes {
						w.plugin.Filter(w.ctx, state, pod, node)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(nodes)), "ns/node")
			})
		})
	}
}

// Admitting a node allocates nothing: it is asked thousands of times in a cycle.
func TestFilterDoesNotAllocate(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 10, 1, nil)...)
	w.nodes(spot("spot"))
	o := w.try(web("p"))
	if placement.Read(o.state) == nil {
		t.Fatal("no state")
	}
	info, err := w.snapshot.Get("spot")
	w.must(err)
	var pod *v1.Pod
	if allocs := testing.AllocsPerRun(100, func() { w.plugin.Filter(w.ctx, o.state, pod, info) }); allocs != 0 {
		t.Errorf("Filter allocates %v times for a node that it admits", allocs)
	}
}
