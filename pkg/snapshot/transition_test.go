package snapshot_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// In a rollout the workload may have as many pods as it wants, although a ReplicaSet still has to
// create some.
func TestPodsInTransition(t *testing.T) {
	for name, test := range map[string]struct {
		cluster  string
		oldWants int32
		want     snapshot.PodsInTransition
	}{
		"settled":                            {"deployment web 3 od od od old=1", 1, snapshot.PodsInTransition{}},
		"fewer pods than replicas":           {"deployment web 3 od od old=1", 1, snapshot.PodsInTransition{Missing: 1}},
		"fewer pods than a ReplicaSet wants": {"deployment web 3 od od od old=1", 3, snapshot.PodsInTransition{Missing: 2}},
		"more pods than replicas":            {"deployment web 2 od od od", 0, snapshot.PodsInTransition{Excess: 1}},
		"more pods than a ReplicaSet wants":  {"deployment web 3 od od od old=2", 1, snapshot.PodsInTransition{Excess: 1}},
		"StatefulSet is scaled down":         {"statefulset db 1 od od", 0, snapshot.PodsInTransition{Excess: 1}},
		"a deleted node":                     {"deployment web 3 od od gone old=1", 1, snapshot.PodsInTransition{Waiting: 1}},
		"another profile":                    {"deployment web 3 od od old=1 profile=other", 3, snapshot.PodsInTransition{}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := clustertest.Objects("node od on-demand m/a\n" + test.cluster)
			for _, object := range objects {
				if rs, ok := object.(*appsv1.ReplicaSet); ok && rs.Name == "web-old" {
					rs.Spec.Replicas = ptr.To(test.oldWants)
				}
			}
			w := clustertest.NewWorld(t)
			w.Put(objects...)
			s := w.Snapshot()
			clustertest.Equal(t, "transition", test.want, s.PodsInTransition()[s.Workloads[0].Key])
		})
	}
}
