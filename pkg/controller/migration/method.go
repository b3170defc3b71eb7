package migration

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// methodOf returns the gentlest method by which a pod can be moved now. If that is Evict, noSurge
// explains why it is not Surge. At the last moment it is Delete. It is "" if the pod waits: nothing
// is done for the pod before its last moment, unless a later plan decides otherwise.
func (p *planner) methodOf(m Move) (method Method, noSurge string) {
	switch {
	case p.lastMomentReached(m):
		created := m.Pod.CreationTimestamp.Time
		if !m.Noticed.IsZero() && !created.Before(m.Noticed) && !created.Before(p.lastMoment(m)) {
			return "", "" // the successor of a pod that was deleted at its own last moment
		}
		return Delete, ""
	case !p.recreated(m.Pod):
		return "", "" // the pod runs as long as possible
	case m.Deadline.IsZero() && workload.HasUnsupportedController(m.Pod.Pod):
		return "", "" // only a reclaim is worth the risk that the controller does not recreate the pod
	case m.Reason == Drain && m.Deadline.IsZero() && !p.needsReplacementFirst(m.Pod):
		return "", "" // the draining client evicts the pod
	case m.Reason == Drain && !m.Deadline.IsZero() && m.Pod.Revision != nil &&
		p.now.Before(p.lastMoment(m).Add(-p.replacementTimeout(m.Pod.Revision, m.Reason))):
		return "", "" // the draining client spares the pod, and its replacement can start later
	}
	if noSurge = p.surgeObstacle(m.Pod); noSurge != "" {
		return Evict, noSurge
	}
	return Surge, ""
}

// recreated reports whether a controller creates the pod again after its eviction. A pod with a
// controller of an unknown kind may do work that is not repeated. It counts as recreated only if
// the kind is one of Settings.EvictableOwners, or if a PodDisruptionBudget selects the pod, which
// shows that its owner expects evictions.
func (p *planner) recreated(pod *snapshot.Pod) bool {
	switch {
	case irreplaceable(pod):
		return false
	case !workload.HasUnsupportedController(pod.Pod):
		return true
	}
	owner := workload.RevisionOf(pod.Pod)
	return slices.Contains(p.settings.EvictableOwners, schema.GroupKind{Group: owner.Group, Kind: owner.Kind}) || p.budgets.selects(pod)
}

// irreplaceable reports whether no controller creates another pod for a live pod. The pod has no
// controller, or it belongs to a Job that fails with the loss of a pod.
func irreplaceable(pod *snapshot.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil || pod.Subject != nil && pod.Subject.Workload.Batch == decision.NotRetriable
}

// needsReplacementFirst reports whether a pod on a draining node needs a replacement before its
// eviction. That is so if its PodDisruptionBudget currently allows no eviction, or if
// chooseFirstReplaced chooses it. It is false if several PodDisruptionBudgets select the pod,
// because the API server never evicts such a pod, with or without a replacement.
//
// On a node that a user or a tool drains, the controller only releases pods, so that their
// replacements start first. The draining client evicts the pods: it retries evictions that a
// PodDisruptionBudget refused. Once the replacement is ready, the PodDisruptionBudget allows the
// eviction of the released pod.
func (p *planner) needsReplacementFirst(pod *snapshot.Pod) bool {
	budgets := p.budgets.selecting(pod)
	if len(budgets) > 1 || !p.serves(pod) {
		return false
	}
	if len(budgets) == 1 && budgets[0].allowed <= 0 {
		return true
	}
	if p.firstReplaced == nil {
		p.firstReplaced = p.chooseFirstReplaced()
	}
	return p.firstReplaced[workloadKey(pod)] == pod
}

// chooseFirstReplaced returns one serving pod of each workload that serves only on nodes that do
// not remain, while none of its pods is released: the first by name that the draining client
// evicts and that can be released. If none can, it is the first that the client evicts.
func (p *planner) chooseFirstReplaced() map[workload.OwnerKey]*snapshot.Pod {
	first := map[workload.OwnerKey]*snapshot.Pod{}
	for _, pod := range p.snapshot.Pods {
		key, m, all := workloadKey(pod), p.moves[pod.UID], p.of(pod)
		if m.Reason != Drain || !m.Deadline.IsZero() || all.safe+all.released > 0 || !movable(pod) || !p.serves(pod) || len(p.budgets.selecting(pod)) > 1 {
			continue
		}
		if known := first[key]; known == nil || p.surgeObstacle(known) != "" && p.surgeObstacle(pod) == "" {
			first[key] = pod
		}
	}
	return first
}
