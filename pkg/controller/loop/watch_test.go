package loop

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// Every event triggers a round. The change of a node that may be a signal, and the deletion of a
// node, trigger an early one; a heartbeat does not.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		factory := informers.NewSharedInformerFactory(client, 0)
		l := New(nil, nil, false, 1)
		if err := l.Watch(factory.Core().V1().Nodes().Informer()); err != nil {
			t.Fatal(err)
		}
		factory.Start(t.Context().Done())
		factory.WaitForCacheSync(t.Context().Done())
		node := clustertest.NewNode("n", "spot", "m/a")
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		nodes := client.CoreV1().Nodes()
		for _, step := range []struct {
			name                 string
			change               func() error
			changed, nodeChanged int
		}{
			{"added", func() error { _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); return err }, 1, 0},
			{"heartbeat", func() error {
				node.Status.Conditions = slices.Clone(node.Status.Conditions)
				node.Status.Conditions[0].LastHeartbeatTime, node.ResourceVersion = metav1.NewTime(time.Now()), "2"
				_, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{})
				return err
			}, 1, 0},
			{"tainted", func() error {
				node.Spec.Taints, node.ResourceVersion = []v1.Taint{{Key: "signal"}}, "3"
				_, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{})
				return err
			}, 1, 1},
			{"deleted", func() error { return nodes.Delete(t.Context(), "n", metav1.DeleteOptions{}) }, 1, 1},
		} {
			if err := step.change(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(l.changed) != step.changed || len(l.nodeChanged) != step.nodeChanged {
				t.Errorf("%s: %d rounds and %d early rounds, want %d and %d", step.name, len(l.changed), len(l.nodeChanged), step.changed, step.nodeChanged)
			}
			for len(l.changed)+len(l.nodeChanged) > 0 {
				select {
				case <-l.changed:
				case <-l.nodeChanged:
				}
			}
		}
	})
}
