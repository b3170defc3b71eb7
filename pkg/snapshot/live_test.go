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

// A node with an unreachable kubelet counts as lost only after a read has confirmed it, and a
// Snapshot contains what was read.
func TestLiveReads(t *testing.T) {
	unreachable := func(name string) *v1.Node {
		n := clustertest.NewNode(name, "spot", "m/a")
		n.ResourceVersion = "1"
		n.Status.Conditions = []v1.NodeCondition{{
			Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(clustertest.Now.Add(-time.Minute)),
		}}
		return n
	}
	returned := unreachable("returned") // its events are late
	returned.ResourceVersion, returned.Status.Conditions[0].Status = "2", v1.ConditionTrue
	clock := clocktesting.NewFakePassiveClock(clustertest.Now)
	heartbeats, err := node.WatchHeartbeats(informers.NewSharedInformerFactory(fake.NewClientset(), 0), clock)
	if err != nil {
		t.Fatal(err)
	}
	w := clustertest.NewWorld(t)
	w.Put(unreachable("lost"), unreachable("returned"))
	w.Reader.UseHeartbeats(heartbeats, node.NewLiveReader(fake.NewClientset(unreachable("lost"), returned), heartbeats, clock))
	s := w.Snapshot()
	if !s.Until.Equal(clustertest.Now.Add(500 * time.Millisecond)) {
		t.Errorf("the next round begins at %s, want when the reads are expected", s.Until)
	}
	facts := func() map[string]string {
		got := map[string]string{}
		for _, n := range s.Nodes {
			got[n.Name] = n.ResourceVersion + " " + n.Facts.Signal.String()
			if (n.Disruption == node.Unreachable) != (n.Facts.Signal == decision.Reclaim) {
				t.Errorf("%s has the disruption %v", n.Name, n.Disruption)
			}
		}
		return got
	}
	none, reclaim := decision.NoSignal.String(), decision.Reclaim.String()
	clustertest.Equal(t, "before the reads", map[string]string{"lost": "1 " + none, "returned": "1 " + none}, facts())
	for deadline := time.Now().Add(30 * time.Second); len(s.Unconfirmed) > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s = w.Snapshot()
	}
	clustertest.Equal(t, "after the reads", map[string]string{"lost": "1 " + reclaim, "returned": "2 " + none}, facts())
}
