package interruption

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
)

// assistFor is how long a pod that was released for a drain waits for its eviction. kubectl drain tries every 5 s and Karpenter every 10 s at
// most, so a node whose pod nobody evicts for so long is rather cordoned than drained.
const assistFor = 10 * time.Minute

// assist asks for the pods of a node that somebody else drains, and returns those that are or were released for that. migration.Plan releases
// only those that the drain would wait for.
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
		if ours && p.at.Before(pod.Release.At.Add(assistFor)) || !ours && !before {
			p.moves = append(p.moves, migration.Move{Pod: pod, Reason: migration.Drain, OnlySurge: true})
		}
	}
	slices.Sort(released)
	return released
}
