package simulation_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// Thousands of pending pods of one tenant that fit nowhere are searched a bounded number of times,
// whether they are equal or not. A younger pod that fits reserves its room nevertheless, unless the
// namespace has too many different pods that fit nowhere.
func TestManyPendingPods(t *testing.T) {
	const many = 2000
	for name, owners := range map[string][]metav1.OwnerReference{"equal": {clustertest.OwnedBy("ReplicaSet", "large-r")}, "different": nil} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Put(clustertest.NewNode("n1", "on-demand", "m/a", "cpu=4"), clustertest.NewNode("n2", "on-demand", "m/a", "cpu=4"))
			w.Put(clustertest.NewDeployment("large", many)...)
			for i := range many {
				pod := clustertest.NewPod(fmt.Sprintf("large-%d", i), owners...)
				pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(8, resource.DecimalSI)
				w.Put(pod)
			}
			for _, name := range []string{"small", "other"} {
				pod := clustertest.NewPod(name)
				pod.CreationTimestamp = metav1.NewTime(clustertest.Now)
				if owners == nil {
					pod.Namespace = "z"
				}
				pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(4, resource.DecimalSI)
				w.Put(pod)
			}
			running := clustertest.Run("n3", clustertest.NewPod("web"))
			running.Namespace = "z"
			w.Put(clustertest.NewNode("n3", "on-demand", "m/a", "cpu=1"), running)
			s := w.Snapshot()
			searches := 0
			room := simulation.NewRoomUntil(s, func() bool { searches++; return false })
			if searches > 0 {
				t.Errorf("%d searches without a move, want none", searches)
			}
			if to, _ := room.Replace(clustertest.Find(t, s, "web"), decision.Unassigned); to != nil {
				t.Errorf("the replacement of web fits on %s, want the room to be reserved", to.Name)
			}
			// once for each pod, and a few times for each search
			if most := many + 1000; searches > most {
				t.Errorf("%d searches for %d pending pods, want at most %d", searches, many, most)
			}
			if to, _ := room.Replace(clustertest.Find(t, s, "other"), decision.Unassigned); to == nil {
				t.Error("the younger pod has no room")
			}
		})
	}
}
