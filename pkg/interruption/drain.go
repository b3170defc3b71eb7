package interruption

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
)

// assist requests moves of the pods on a node that another program drains. It returns the pods that
// are or were released for the drain. A pod that migration.Plan returned to its ReplicaSet gets no
// second move, so that it is released once for each drain.
func (p *planner) assist(n *cluster.Node, had state) (released []types.UID) {
	if !p.Assist {
		return nil
	}
	for _, pod := range n.Pods {
		if pod.DeletionTimestamp != nil || !kube.HasOpinion(pod.Pod) || p.Selects != nil && !p.Selects(pod.Namespace) {
			continue
		}
		ours := pod.Release != nil && pod.Release.Reason == string(migration.Drain)
		before := slices.Contains(had.Released, pod.UID)
		if ours || before {
			released = append(released, pod.UID)
		}
		if ours || !before {
			p.moves = append(p.moves, migration.Move{Pod: pod, Reason: migration.Drain, OnlySurge: true})
		}
	}
	slices.Sort(released)
	return released
}
