package interruption

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// assist requests moves of the pods on a node that a user or a tool drains. It returns the pods
// that are or were released for this drain. A pod that the controller has restored is not released
// a second time for the same drain.
func (p *planner) assist(n *snapshot.Node, current state) (released []types.UID) {
	if !p.Assist {
		return nil
	}
	for _, pod := range n.Pods {
		if pod.DeletionTimestamp != nil || !workload.PolicyApplies(pod.Pod) || p.Selects != nil && !p.Selects(pod.Namespace) {
			continue
		}
		ours := pod.Release != nil && pod.Release.Reason == string(migration.Drain)
		before := slices.Contains(current.Released, pod.UID)
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
