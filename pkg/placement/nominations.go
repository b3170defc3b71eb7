package placement

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Nominations contains the unbound pods with a nominated node according to the API server, by
// revision. It includes pods that an earlier leader nominated. All methods may be called
// concurrently.
type Nominations struct {
	mu   sync.Mutex
	pods workload.Groups[workload.OwnerKey, *v1.Pod]
}

// NewNominations returns an empty registry.
func NewNominations() *Nominations {
	return &Nominations{pods: workload.Groups[workload.OwnerKey, *v1.Pod]{}}
}

// Has reports whether a pod of the revision is nominated.
func (n *Nominations) Has(revision workload.OwnerKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pods[revision]) > 0
}

// HasPod reports whether the pod is nominated.
func (n *Nominations) HasPod(pod types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pods := range n.pods {
		if pods[pod] != nil {
			return true
		}
	}
	return false
}

// Set records the change of a pod from before, nil for a new pod, to after, nil for a deleted pod.
// It reports whether a nomination ended and the pod is not bound to that node. Its place in the
// budget is then free.
func (n *Nominations) Set(before, after *v1.Pod) (ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if before != nil && workload.Nominated(before) {
		n.pods.Delete(workload.RevisionOf(before), before.UID)
		ended = after == nil || after.Spec.NodeName != before.Status.NominatedNodeName
	}
	if after != nil && workload.Nominated(after) {
		n.pods.Put(workload.RevisionOf(after), after.UID, after)
		ended = ended && after.Status.NominatedNodeName != before.Status.NominatedNodeName
	}
	return ended
}

// Siblings returns the nominated pods of the revision that pod counts.
func (n *Nominations) Siblings(pod *v1.Pod) (siblings []UnboundPod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	revision := n.pods[workload.RevisionOf(pod)]
	for uid, other := range revision {
		if uid != pod.UID {
			siblings = append(siblings, UnboundPod{Pod: other, Node: other.Status.NominatedNodeName})
		}
	}
	return CountedNominations(pod, revision[pod.UID] != nil, siblings)
}

// CountedNominations returns the nominated siblings that pod counts: all, or only those before it
// (workload.OlderNominated) if it is nominated too.
func CountedNominations(pod *v1.Pod, nominated bool, siblings []UnboundPod) []UnboundPod {
	return slices.DeleteFunc(siblings, func(other UnboundPod) bool { return nominated && !workload.OlderNominated(other.Pod, pod) })
}
