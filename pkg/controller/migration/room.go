package migration

import (
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Room finds nodes for replacements. *simulation.Room implements it.
type Room interface {
	// Replace reserves room for the replacement of a pod, or for the pod itself if it is pending.
	// requires is the capacity type that the replacement will require. to is nil if no node has
	// room; why then explains this to users. Otherwise why is "", simulation.AfterPlaceholders or
	// simulation.AfterPreemption.
	Replace(p *snapshot.Pod, requires decision.AssignedCapacity) (to *snapshot.Node, why string)
}

// reserveExpected reserves room for expected replacements that the caches do not show yet, so that
// no other replacement gets it. These replace pods that are about to be removed, and pods that the
// revisions of terminating and released pods still lack.
func (p *planner) reserveExpected() {
	missing := map[*snapshot.Revision]int{}
	for _, pod := range p.snapshot.Pods {
		revision := pod.Revision
		switch {
		case p.progress[pod.UID].InFlight != "" && p.progress[pod.UID].InFlight != Restore && pod.Live():
			if !irreplaceable(pod) {
				p.reserve(pod, p.now)
			}
			continue
		case pod.Release != nil:
			revision = pod.ReleasedFrom
		case pod.DeletionTimestamp == nil:
			continue
		}
		if revision == nil {
			continue
		}
		n, counted := missing[revision]
		if !counted {
			n = desiredPods(revision) - len(revision.Pods)
		}
		if n > 0 {
			p.reserve(pod, removedAt(pod))
			n--
		}
		missing[revision] = n
	}
}

// reserve reserves room for a pending pod or for the replacement of a pod. since is when the wait
// for the scheduler began.
func (p *planner) reserve(pod *snapshot.Pod, since time.Time) {
	recovery.Guard(recovery.Pod, klog.KObj(pod), func() {
		to, _ := p.room.Replace(pod, decision.Unassigned)
		p.replacementPending = p.replacementPending || to != nil && p.now.Before(since.Add(maxPending))
		p.roomPromised = p.roomPromised || to != nil && pod.DeletionTimestamp != nil && !pod.Node.Remains() &&
			p.now.Before(pod.DeletionTimestamp.Add(maxPending))
	})
}

// removedAt returns when a released or terminating pod was released, or when its termination began.
func removedAt(pod *snapshot.Pod) time.Time {
	if pod.Release != nil {
		return pod.Release.At
	}
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
	return pod.DeletionTimestamp.Add(-grace)
}
