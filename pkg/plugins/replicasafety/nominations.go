package replicasafety

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// nominatedSiblings returns the siblings of pod with nominated nodes, and the nominated node of pod
// itself, own. The framework runs Filter with the nominated pods of the same node only. If the
// nominated pods of other nodes did not count, every pending replica would preempt pods on spot for
// a budget of one.
//
// Only the scheduler's own list is up to date in the next cycle, and it must be read node by node.
// So PreFilter calls nominatedSiblings only if the plan depends on it, and if preemption was
// simulated for a pod of the revision or one of its pods is known to be nominated.
func (p *Plugin) nominatedSiblings(pod *v1.Pod, nodes []fwk.NodeInfo) (siblings []placement.UnboundPod, own string) {
	revision := workload.RevisionOf(pod)
	for _, node := range nodes {
		name := node.Node().Name
		for _, info := range p.nominator.NominatedPodsForNode(name) {
			other := info.GetPod()
			switch {
			case other.UID == pod.UID:
				own = name
			case workload.RevisionOf(other) == revision && workload.Live(other) && !placement.HasPod(node, other.UID):
				siblings = append(siblings, placement.UnboundPod{Pod: other, Node: name})
			}
		}
	}
	return placement.CountedNominations(pod, own != "", siblings), own
}

// watchNomination wakes the siblings of a nominated pod that found no node in this cycle, if the
// scheduler then clears the nomination. The scheduler may do so before it has written the
// nomination to the API server. In that case no event reports the change.
func (p *Plugin) watchNomination(pod *v1.Pod, node string) {
	check := func() {
		still := slices.ContainsFunc(p.nominator.NominatedPodsForNode(node), func(info fwk.PodInfo) bool { return info.GetPod().UID == pod.UID })
		if !still {
			p.wakeAfterNomination(pod)
		}
	}
	// Use a goroutine, because a clock may call the function while the clock is locked.
	p.clock.AfterFunc(time.Second, func() { go check() })
}

// wakeAfterNomination wakes the siblings of a pod whose nomination ended. The attempts of a gang
// nominate its pods and clear their nominations. If each such change woke the gang, the scheduler
// would try it again and again as long as a victim terminates. The gang plugin retries a gang that
// no event wakes.
func (p *Plugin) wakeAfterNomination(pod *v1.Pod) {
	if !p.waiting.GangWaits(p.gangOf(pod)) {
		p.waiting.WakeSiblings(workload.RevisionOf(pod))
	}
}
