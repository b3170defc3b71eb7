package cluster_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// fleet puts in nodes of 12 pools, 70 % of them spot, and Deployments of 10 replicas, whose pods of one CPU stand on the nodes in turn.
func (w *world) fleet(nodes, cpu, pods int) {
	for i := range nodes {
		capacity := "spot"
		if i%10 < 3 {
			capacity = "on-demand"
		}
		w.put(nodeOf(fmt.Sprintf("n%05d", i), capacity, fmt.Sprintf("m%d/z%d", i%4, i%3), options{fmt.Sprintf("cpu=%d", cpu)}))
	}
	for i := range pods {
		name := fmt.Sprintf("web%05d", i/10)
		if i%10 == 0 {
			ten, set := ptr.To[int32](10), meta(name+"-r", by("apps/v1", "Deployment", name))
			w.put(&appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Replicas: ten}},
				&appsv1.ReplicaSet{ObjectMeta: set, Spec: appsv1.ReplicaSetSpec{Replicas: ten}})
		}
		pod := w.pod(fmt.Sprintf("%s-%d", name, i%10), by("apps/v1", "ReplicaSet", name+"-r"), nil)
		pod.Labels = map[string]string{"app": name}
		pod.Spec.NodeName = fmt.Sprintf("n%05d", i%nodes)
		w.put(pod)
	}
}

// BenchmarkSnapshot is a round on 5,000 nodes with 150,000 pods of 15,000 Deployments: the first, and those after it, between which a
// thousandth of the pods has changed.
func BenchmarkSnapshot(b *testing.B) {
	w := newWorld(b)
	w.fleet(5000, 32, 150000)
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.reader.Forget()
			w.snapshot()
		}
	})
	b.Run("next", func(b *testing.B) {
		changed := make([]*v1.Pod, 0, 150)
		for i := range 150 {
			changed = append(changed, w.pods[fmt.Sprintf("web%05d-3", i*100)])
		}
		b.ReportAllocs()
		for b.Loop() {
			for i, pod := range changed {
				changed[i] = pod.DeepCopy()
				w.put(changed[i])
			}
			w.snapshot()
		}
	})
}

// BenchmarkReplace is the 3,000 pods of 600 Deployments on 300 of 600 nodes, all spot, that go at once: with room for all, and for none.
func BenchmarkReplace(b *testing.B) {
	for name, cpu := range map[string]int{"room": 20, "full": 10} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.fleet(600, cpu, 6000)
			s := w.snapshot()
			left := 300
			for _, n := range s.Nodes {
				if n.Facts.Capacity.Type == decision.Spot && left > 0 {
					n.Facts.Signal = decision.Reclaim
					left--
				}
			}
			for b.Loop() {
				room := cluster.NewRoom(s)
				asked, found := 0, 0
				for _, p := range s.Pods {
					if p.Node.Facts.Signal == decision.Reclaim {
						asked++
						if to, _ := room.Replace(p); to != nil {
							found++
						}
					}
				}
				b.ReportMetric(float64(asked), "asked")
				b.ReportMetric(float64(found), "found")
			}
		})
	}
}
