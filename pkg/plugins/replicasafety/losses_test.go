package replicasafety

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// A provisioner writes to a Node step by step and empties it, all between two scheduling cycles. Whether the pool lost a node is told by
// the order of what it wrote, which only the informer sees.
func TestLossesBetweenTwoCycles(t *testing.T) {
	taint := func(key string) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key}) }
	}
	deleted := func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }
	cordoned := func(n *v1.Node) { n.Spec.Unschedulable = true }
	disrupted, itn := taint("karpenter.sh/disrupted"), taint("aws-node-termination-handler/spot-itn")
	cases := map[string]struct {
		writes []func(*v1.Node)
		gone   bool // in the end, rather than empty
		want   bool
	}{
		"Karpenter interrupts":                             {writes: []func(*v1.Node){deleted, disrupted}, want: true},
		"Karpenter interrupts, and the node is gone":       {writes: []func(*v1.Node){deleted, disrupted}, gone: true, want: true},
		"Karpenter consolidates":                           {writes: []func(*v1.Node){disrupted, deleted}, want: false},
		"Karpenter consolidates, and it is gone":           {writes: []func(*v1.Node){disrupted, deleted}, gone: true, want: false},
		"the autoscaler scales down":                       {writes: []func(*v1.Node){taint("ToBeDeletedByClusterAutoscaler")}, gone: true, want: false},
		"an operator drains, and deletes with a finalizer": {writes: []func(*v1.Node){cordoned, deleted}, want: false},
		"the termination handler drains":                   {writes: []func(*v1.Node){itn}, want: true},
		"the termination handler, and it is gone":          {writes: []func(*v1.Node){itn}, gone: true, want: true},
		"gone without a word":                              {gone: true, want: true},
		"emptied without a word":                           {want: false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			lost := spot("lost")
			lost.Labels[v1.LabelTopologyZone] = "b"
			w := newWorld(t, nil, append(deployment("web", 3, 1, nil), lost)...)
			w.nodes(lost, spot("kept"))
			pod := podOf("there", by("ReplicaSet", "other-1"))
			w.stand("lost", pod)
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
			// The handlers are done with these writes when they have seen one after them.
			marker := onDemand("marker")
			marker.Labels[decision.CapacityLabelKey] = "neither"
			_, err := nodes.Create(w.ctx, marker, metav1.CreateOptions{})
			w.must(err)
			w.eventually("the handlers have seen all", func() bool { return len(w.recorded()) > 0 })

			back := spot("back")
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
