package replicasafety

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
)

// A provisioner changes a Node step by step and empties it between two scheduling cycles. Only the
// order of its writes, which the informer sees, shows whether the pool lost a node. Package node
// tests more removals.
func TestLossesBetweenTwoCycles(t *testing.T) {
	taint := func(key string) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key}) }
	}
	deleted := func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }
	disrupted := taint("karpenter.sh/disrupted")
	cases := map[string]struct {
		writes []func(*v1.Node)
		gone   bool // at the end, instead of empty
		want   bool
	}{
		"Karpenter interrupts":               {writes: []func(*v1.Node){deleted, disrupted}, want: true},
		"Karpenter interrupts, node deleted": {writes: []func(*v1.Node){deleted, disrupted}, gone: true, want: true},
		"Karpenter consolidates":             {writes: []func(*v1.Node){disrupted, deleted}, want: false},
		"deleted without a signal":           {gone: true, want: true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			lost := spotNode("lost")
			lost.Labels[v1.LabelTopologyZone] = "b"
			w := newWorld(t, nil, append(deployment("web", 3, "1"), lost)...)
			w.nodes(lost, spotNode("kept"))
			pod := podOf("there", by("ReplicaSet", "other-1"))
			w.addPods("lost", pod)
			w.try(web("first"))

			nodes, logger := w.client.CoreV1().Nodes(), klog.FromContext(w.ctx)
			node := lost
			for _, write := range test.writes {
				before := node
				node = node.DeepCopy()
				write(node)
				var err error
				node, err = nodes.Update(w.ctx, node, metav1.UpdateOptions{})
				w.must(err)
				w.cache.UpdateNode(logger, before, node)
			}
			w.must(w.cache.RemovePod(logger, pod))
			if test.gone {
				w.must(w.cache.RemoveNode(logger, node))
				w.must(nodes.Delete(w.ctx, node.Name, metav1.DeleteOptions{}))
			}
			// When the handlers have seen a later write, they have processed these writes.
			marker := onDemand("marker")
			marker.Labels[spot.CapacityLabel] = "neither"
			_, err := nodes.Create(w.ctx, marker, metav1.CreateOptions{})
			w.must(err)
			w.eventually("the handlers have processed all writes", func() bool { return len(w.recorded()) > 0 })

			back := spotNode("back")
			back.Labels[v1.LabelTopologyZone] = "b"
			w.nodes(back)
			w.clock.Step(2 * time.Minute)
			state := placement.Read(w.try(web("second")).state)
			state.Counter.UpdateRisks(nil, time.Hour, w.clock.Now())
			if got := state.Rank("back") < state.Rank("kept"); got != test.want {
				t.Errorf("a node of the pool ranks below one of another: %t, want %t", got, test.want)
			}
		})
	}
}
