package migration

import (
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// replacements counts the ready replacements of released pods.
type replacements struct {
	*planner
	// released contains the time of the first release of each revision.
	released map[*snapshot.Revision]time.Time
	// needed is how many released pods of a revision wait for a replacement, and used how many
	// have got one.
	needed, used map[*snapshot.Revision]int
	// ready is how many of the released pods have a ready replacement that serves the goal.
	ready map[goal]int
}

// goal is where the replacement of a pod of a revision must be.
type goal struct {
	revision *snapshot.Revision
	reason   Reason
}

func (p *planner) newReplacements(observed []*observation) *replacements {
	r := &replacements{p, map[*snapshot.Revision]time.Time{}, map[*snapshot.Revision]int{}, map[*snapshot.Revision]int{}, map[goal]int{}}
	for _, o := range observed {
		release, revision := o.Pod.Release, o.Pod.ReleasedFrom
		if at, known := r.released[revision]; release != nil && (!known || release.At.Before(at)) {
			r.released[revision] = release.At
		}
	}
	return r
}

// take reports whether a released pod has a ready replacement. The other released pods of the
// revision then need another one.
func (r *replacements) take(o *observation) bool {
	to := goal{o.Pod.ReleasedFrom, o.Reason}
	if _, known := r.ready[to]; !known {
		r.ready[to] = 0 // remains if the count panics
		r.ready[to] = r.needed[to.revision] + r.available(to) + r.unready(to.revision) - desiredPods(to.revision)
	}
	if r.ready[to] <= r.used[to.revision] {
		return false
	}
	r.used[to.revision]++
	return true
}

// available counts the available pods of a revision that are not about to be removed. It omits pods
// that were created since the first release, in whole seconds, and are not where the goal requires
// them: on a node that remains, of the capacity type of its destination, and for an advisory move
// on one without an advisory signal.
func (r *replacements) available(to goal) int {
	n := 0
	capacity, required := to.reason.destination()
	for _, pod := range to.revision.Pods {
		original := pod.CreationTimestamp.Time.Before(r.released[to.revision].Truncate(time.Second))
		serves := original || pod.Node.Remains() && (!required || pod.Node.Facts.Capacity.Type == capacity) &&
			(to.reason != Advisory || pod.Node.Facts.Signal != decision.Advisory)
		if serves && r.isAvailable(pod) {
			n++
		}
	}
	return n
}

// unready counts the pods of a revision that were already unready when its first released pod was
// released, although they had had as much time as a replacement gets. They replace no released pod,
// and an eviction leaves as many serving pods as before. Waiting for them might never end.
func (r *replacements) unready(revision *snapshot.Revision) int {
	n, released := 0, r.released[revision]
	for _, pod := range revision.Pods {
		since, ready := pod.Ready()
		lost := pod.Node == nil && pod.Spec.NodeName != ""
		old := !pod.CreationTimestamp.Add(r.replacementTimeout(revision, Unknown)).After(released)
		if !ready && old && !lost && !since.After(released) {
			n++
		}
	}
	return n
}

// isAvailable reports whether the pod has been ready for minReadySeconds of its ReplicaSet, and is
// not about to be removed. If minReadySeconds is 0, the time does not matter, as in Kubernetes: the
// clock of the node may be ahead.
func (p *planner) isAvailable(pod *snapshot.Pod) bool {
	since, ready := pod.Ready()
	least := minReady(pod.Revision)
	return ready && !p.progress[pod.UID].leaving() && (least == 0 || !p.now.Before(since.Add(least)))
}

// replacementTimeout returns how long the replacement for a pod of the revision may take to be
// available, if the pod is moved for this reason.
func (p *planner) replacementTimeout(revision *snapshot.Revision, reason Reason) time.Duration {
	timeout := p.settings.Migration.SurgeTimeout.Duration
	if slices.Contains(p.settings.ProvisionFor, reason) {
		timeout = max(timeout, p.settings.NodeStartup)
	}
	return timeout + minReady(revision)
}

// minReady returns how long a pod of a ReplicaSet must be ready to be available; 0 if the revision
// is not a ReplicaSet.
func minReady(revision *snapshot.Revision) time.Duration {
	if revision.ReplicaSet == nil {
		return 0
	}
	return time.Duration(revision.ReplicaSet.Spec.MinReadySeconds) * time.Second
}

func desiredPods(r *snapshot.Revision) int {
	switch {
	case r.ReplicaSet != nil:
		return workload.Replicas(r.ReplicaSet.Spec.Replicas)
	case r.Workload.StatefulSet != nil:
		return workload.Replicas(r.Workload.StatefulSet.Spec.Replicas)
	}
	return r.Workload.Desired
}
