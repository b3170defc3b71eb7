package snapshot_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
)

// A node with an unreachable kubelet counts as lost only if a read confirms it.
func TestLiveReads(t *testing.T) {
	unreachable := func(name string) *v1.Node {
		n := clustertest.NewNode(name, "spot", "m/a")
		n.Status.Conditions = []v1.NodeCondition{{
			Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(clustertest.Now.Add(-time.Minute)),
		}}
		return n
	}
	returned := unreachable("returned") // its events are late
	returned.Status.Conditions[0].Status = v1.ConditionTrue
	clock := clocktesting.NewFakePassiveClock(clustertest.Now)
	live, err := node.NewLiveReader(fake.NewClientset(unreachable("lost"), returned), informers.NewSharedInformerFactory(fake.NewClientset(), 0), clock)
	if err != nil {
		t.Fatal(err)
	}
	w := clustertest.NewWorld(t)
	w.Put(unreachable("lost"), unreachable("returned"))
	w.Reader.Live = live
	got := map[string]decision.SignalClass{}
	for _, n := range w.Snapshot().Nodes {
		got[n.Name] = n.Facts.Signal
		if (n.Disruption == node.Unreachable) != (n.Facts.Signal == decision.Reclaim) {
			t.Errorf("%s has the disruption %v", n.Name, n.Disruption)
		}
	}
	clustertest.Equal(t, "signals", map[string]decision.SignalClass{"lost": decision.Reclaim, "returned": decision.NoSignal}, got)
}
