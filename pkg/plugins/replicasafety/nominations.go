package replicasafety

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// nominatedSiblings returns the siblings of pod with nominated nodes, and the nominated node of pod
// itself, own. The framework runs Filter with the nominated pods of the same node only. If the
// nominated pods of other nodes did not count, every pending replica would preempt pods on spot for
// a budget of one.
//
// A nominated pod counts only the siblings before it (workload.OlderNominated).
//
// Only the scheduler's own list is up to date in the next cycle, and it must be read node by node.
// So nominatedSiblings reads it only if the plan depends on it, and if preemption was simulated for
// a pod of the revision or one of its pods is known to be nominated.
func (p *Plugin) nominatedSiblings(pod *v1.Pod, subject *workload.Subject, settings decision.WorkloadSettings, nodes []fwk.NodeInfo) (siblings []placement.NominatedPod, own string) {
	if !settings.DependsOnSiblings(&subject.Pod.Workload) || !p.waiting.MayPreempt(subject.RevisionKey) && !p.nominations.has(subject.RevisionKey) {
		return nil, ""
	}
	for _, node := range nodes {
		name := node.Node().Name
		for _, info := range p.nominator.NominatedPodsForNode(name) {
			other := info.GetPod()
			switch {
			case other.UID == pod.UID:
				own = name
			case workload.RevisionOf(other) == subject.RevisionKey && workload.Live(other) && !placement.HasPod(node, other.UID):
				siblings = append(siblings, placement.NominatedPod{Pod: other, Node: name})
			}
		}
	}
	if own != "" {
		siblings = slices.DeleteFunc(siblings, func(other placement.NominatedPod) bool { return !workload.OlderNominated(other.Pod, pod) })
	}
	return siblings, own
}

// watchNomination wakes the siblings of a nominated pod that found no node in this cycle, if the
// scheduler then clears the nomination. The scheduler may do so before it has written the
// nomination to the API server. In that case no event reports the change.
func (p *Plugin) watchNomination(pod *v1.Pod, node string) {
	p.waiting.After(time.Second, func() {
		still := slices.ContainsFunc(p.nominator.NominatedPodsForNode(node), func(info fwk.PodInfo) bool { return info.GetPod().UID == pod.UID })
		if !still {
			p.wakeAfterNomination(pod)
		}
	})
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

// nominations contains the unbound pods with a nominated node according to the API server, by
// revision. It includes pods that an earlier leader nominated. All methods may be called
// concurrently.
type nominations struct {
	mu   sync.Mutex
	pods workload.Groups[workload.OwnerKey, struct{}]
}

func newNominations() *nominations {
	return &nominations{pods: workload.Groups[workload.OwnerKey, struct{}]{}}
}

// has reports whether a pod of the revision is nominated.
func (n *nominations) has(revision workload.OwnerKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pods[revision]) > 0
}

// set records the change of a pod from before, nil for a new pod, to after, nil for a deleted pod.
// It reports whether a nomination ended and the pod is not bound to that node. Its place in the
// budget is then free.
func (n *nominations) set(before, after *v1.Pod) (ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if before != nil && workload.Nominated(before) {
		n.pods.Delete(workload.RevisionOf(before), before.UID)
		ended = after == nil || after.Spec.NodeName != before.Status.NominatedNodeName
	}
	if after != nil && workload.Nominated(after) {
		n.pods.Put(workload.RevisionOf(after), after.UID, struct{}{})
		ended = ended && after.Status.NominatedNodeName != before.Status.NominatedNodeName
	}
	return ended
}
