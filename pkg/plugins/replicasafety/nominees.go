package replicasafety

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// nomineesOf returns the siblings of pod to which preemption has promised a node, and the node that it has promised pod itself. The framework
// runs Filter with the nominees of the same node only. Without those of other nodes, every pending replica would evict pods from spot for a
// budget of one.
//
// A nominated pod counts only the siblings before it (kube.NominatedBefore).
//
// Only the scheduler's own list is up to date in the next cycle, and it can only be asked node by node. So it is asked only if an
// eviction was simulated for a pod of the revision, or one is known to be nominated, and if that matters to the plan.
func (p *Plugin) nomineesOf(pod *v1.Pod, subject *kube.Subject, settings decision.Settings, nodes []fwk.NodeInfo) (nominees []placement.Nominee, nominated string) {
	if !settings.Counts(&subject.Pod.Workload) || !p.waiting.Preempts(subject.RevisionKey) && !p.nominations.has(subject.RevisionKey) {
		return nil, ""
	}
	type sibling struct {
		placement.Nominee
		pod *v1.Pod
	}
	var siblings []sibling
	for _, node := range nodes {
		name := node.Node().Name
		for _, info := range p.nominator.NominatedPodsForNode(name) {
			other := info.GetPod()
			switch {
			case other.UID == pod.UID:
				nominated = name
			case kube.RevisionOf(other) == subject.RevisionKey && kube.Live(other) && !holds(node, other.UID):
				siblings = append(siblings, sibling{placement.Nominee{UID: other.UID, Node: name}, other})
			}
		}
	}
	for _, s := range siblings {
		if nominated == "" || kube.NominatedBefore(s.pod, pod) {
			nominees = append(nominees, s.Nominee)
		}
	}
	return nominees, nominated
}

// watchNomination wakes the siblings of a nominated pod, which found no node in this cycle, if the scheduler then takes the nomination back.
// It may do so before it has written the nomination to the API server: then no event reports it.
func (p *Plugin) watchNomination(revision kube.OwnerKey, of placement.Nominee) {
	p.waiting.After(time.Second, func() {
		still := slices.ContainsFunc(p.nominator.NominatedPodsForNode(of.Node), func(info fwk.PodInfo) bool { return info.GetPod().UID == of.UID })
		if !still {
			p.waiting.WakeCounted(revision)
		}
	})
}

// holds reports whether the pod is on the node in the snapshot, where it is counted: a pod that is assumed may still be nominated.
func holds(node fwk.NodeInfo, pod types.UID) bool {
	return slices.ContainsFunc(node.GetPods(), func(info fwk.PodInfo) bool { return info.GetPod().UID == pod })
}

// nominations are the pods that have no node and are nominated to one, as the API server knows them, by revision. They include pods that an
// earlier leader nominated. All methods may be called concurrently.
type nominations struct {
	mu   sync.Mutex
	pods map[kube.OwnerKey]map[types.UID]struct{}
}

func newNominations() *nominations {
	return &nominations{pods: map[kube.OwnerKey]map[types.UID]struct{}{}}
}

// has reports whether a pod of the revision is nominated.
func (n *nominations) has(revision kube.OwnerKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pods[revision]) > 0
}

// set records a pod that has changed from before to after; nil for one that is new or gone. It reports whether a nomination ended without
// the pod being bound to that node: its place in the budget is free.
func (n *nominations) set(before, after *v1.Pod) (ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if before != nil && kube.Nominated(before) {
		revision := kube.RevisionOf(before)
		delete(n.pods[revision], before.UID)
		if len(n.pods[revision]) == 0 {
			delete(n.pods, revision)
		}
		ended = after == nil || after.Spec.NodeName != before.Status.NominatedNodeName
	}
	if after != nil && kube.Nominated(after) {
		revision := kube.RevisionOf(after)
		if n.pods[revision] == nil {
			n.pods[revision] = map[types.UID]struct{}{}
		}
		n.pods[revision][after.UID] = struct{}{}
		ended = ended && after.Status.NominatedNodeName != before.Status.NominatedNodeName
	}
	return ended
}
