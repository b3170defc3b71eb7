package snapshot_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// A Snapshot contains the events of nodes since the previous Snapshot, even if nodes changed
// repeatedly between the two.
func TestNodeEvents(t *testing.T) {
	ctx := t.Context()
	taint := func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/disrupted", Effect: v1.TaintEffectNoSchedule}}
	}
	deleted := func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: clustertest.Now} }
	writes := map[string][]func(*v1.Node){
		"interrupted":  {deleted, taint},
		"consolidated": {taint, deleted},
		"cordoned":     {func(n *v1.Node) { n.Spec.Unschedulable = true }, deleted},
		"vanished":     {},
	}
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	reader, err := snapshot.NewReader(factory, clustertest.BasicPolicy, providers.Signals(), workload.Scope{Profile: clustertest.Profile}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nodes := client.CoreV1().Nodes()
	write := func(_ *v1.Node, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range writes {
		write(nodes.Create(ctx, clustertest.NewNode(name, "spot", "m/a"), metav1.CreateOptions{}))
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for name, changes := range writes {
		node := clustertest.NewNode(name, "spot", "m/a")
		for _, change := range changes {
			node = node.DeepCopy() // the informer owns the previous object
			change(node)
			write(nodes.Update(ctx, node, metav1.UpdateOptions{}))
		}
		if err := nodes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]node.Event{
		"interrupted":  {{Name: "interrupted", UID: "interrupted-uid", Disruption: node.DeletedFirst}, {Name: "interrupted", UID: "interrupted-uid", Disruption: node.Voluntary}},
		"consolidated": {{Name: "consolidated", UID: "consolidated-uid", Disruption: node.Voluntary}},
		"cordoned":     {{Name: "cordoned", UID: "cordoned-uid", Disruption: node.DeletedFirst, Cordoned: true}, {Name: "cordoned", UID: "cordoned-uid", Disruption: node.Voluntary}},
	}
	got := map[string][]node.Event{}
	for deadline := time.Now().Add(30 * time.Second); cmp.Diff(want, got) != "" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s, err := reader.Snapshot(clustertest.Now)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range s.NodeEvents {
			got[event.Name] = append(got[event.Name], event)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A Snapshot contains the current disruption of each node.
func TestNodeDisruption(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node calm spot m/a\nnode drained spot m/a taint=karpenter.sh/disrupted\nnode reclaimed spot m/a taint=aws-node-termination-handler/spot-itn")
	got := map[string]node.Disruption{}
	for _, n := range w.Snapshot().Nodes {
		got[n.Name] = n.Disruption
	}
	if diff := cmp.Diff(map[string]node.Disruption{"calm": node.NotDisrupted, "drained": node.Voluntary, "reclaimed": node.Reclaimed}, got); diff != "" {
		t.Errorf("disruptions (-want +got):\n%s", diff)
	}
}
