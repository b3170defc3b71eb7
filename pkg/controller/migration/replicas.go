package migration

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// workloadKey returns the key of the workload that loses the pod; the key of its revision if the
// workload is unknown.
func workloadKey(pod *snapshot.Pod) workload.OwnerKey {
	if w := pod.OwnWorkload(); w != nil {
		return w.Key
	}
	return workload.RevisionOf(pod.Pod)
}

// podsOfWorkload counts the live pods of the pod's workload; 0 if the workload is unknown.
func podsOfWorkload(pod *snapshot.Pod) int {
	n := 0
	if pod.Workload != nil {
		for _, r := range pod.Workload.Revisions {
			n += len(r.Pods)
		}
	}
	return n
}

// desiredPods returns how many pods a revision asks for.
func desiredPods(r *snapshot.Revision) int {
	switch {
	case r.ReplicaSet != nil:
		return workload.Replicas(r.ReplicaSet.Spec.Replicas)
	case r.Workload.StatefulSet != nil:
		return workload.Replicas(r.Workload.StatefulSet.Spec.Replicas)
	}
	return r.Workload.Desired
}

// available reports whether the pod has been ready for minReadySeconds of its ReplicaSet. If that
// is 0, the time does not matter, as in Kubernetes: the clock of the node may be ahead.
func available(pod *snapshot.Pod, rs *appsv1.ReplicaSet, now time.Time) bool {
	since, ok := pod.Ready()
	return ok && (rs.Spec.MinReadySeconds == 0 || !now.Before(since.Add(minReady(rs))))
}

// minReady returns how long a pod of the ReplicaSet must be ready to be available; 0 if it is nil.
func minReady(rs *appsv1.ReplicaSet) time.Duration {
	if rs == nil {
		return 0
	}
	return time.Duration(rs.Spec.MinReadySeconds) * time.Second
}

// inFlight reports whether an action for the pod is in flight, or was performed and the caches do
// not show it yet.
func (p *planner) inFlight(pod *snapshot.Pod) bool { return p.progress[pod.UID].InFlight != "" }

// leaving reports whether the pod is being evicted or deleted but the caches do not show it yet.
// Such a pod no longer counts.
func (p *planner) leaving(pod *snapshot.Pod) bool {
	kind := p.progress[pod.UID].InFlight
	return kind == EvictPod || kind == DeletePod
}

// serves reports whether the pod is ready, not terminating, and not about to be removed.
func (p *planner) serves(pod *snapshot.Pod) bool {
	_, ok := pod.Ready()
	return ok && pod.DeletionTimestamp == nil && !p.leaving(pod)
}

// replicas counts pods of a workload. Pods that this plan evicts or deletes count as gone.
type replicas struct {
	// serving, terminating and released (or being released) are the numbers of such pods. safe
	// counts the serving pods on nodes that remain.
	serving, safe, terminating, released int
}

// of returns the replicas of the workload that the pod belongs to or was released from.
func (p *planner) of(pod *snapshot.Pod) *replicas {
	key := workloadKey(pod)
	if p.replicas[key] == nil {
		p.replicas[key] = &replicas{}
	}
	return p.replicas[key]
}

// count adds n times a pod to the replicas of its workload.
func (p *planner) count(pod *snapshot.Pod, n int) {
	r := p.of(pod)
	if p.serves(pod) {
		r.serving += n
		if pod.Node.Remains() {
			r.safe += n
		}
	}
	if pod.DeletionTimestamp != nil {
		r.terminating += n
	} else if pod.Release != nil || p.progress[pod.UID].InFlight == Release {
		r.released += n
	}
}

// missingWithout returns how many replicas the workload lacks once the pod is gone.
func (p *planner) missingWithout(pod *snapshot.Pod) (missing, replicas int) {
	r := p.of(pod)
	replicas = max(pod.OwnWorkload().Desired, 1)
	if workload.HasUnsupportedController(pod.Pod) {
		replicas += r.terminating // Desired is the number of its live pods
	}
	missing = replicas - r.serving
	if p.serves(pod) {
		missing++
	}
	return missing, replicas
}

// safeWithout reports whether another replica of the pod's workload serves on a node that remains.
func (p *planner) safeWithout(pod *snapshot.Pod) bool {
	others := p.of(pod).safe
	if p.serves(pod) && pod.Node.Remains() {
		others--
	}
	return others > 0
}

// lowerOrdinalUnready reports whether the pod belongs to an ordered StatefulSet in which a pod with
// a lower ordinal does not serve. Kubernetes then creates no later pod again.
func (p *planner) lowerOrdinalUnready(pod *snapshot.Pod) bool {
	if pod.Subject == nil || pod.Workload.StatefulSet == nil || pod.Workload.StatefulSet.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		return false
	}
	missing := pod.Subject.Pod.Workload.Ordinal
	for _, sibling := range pod.Revision.Pods {
		if at := sibling.Subject.Pod.Workload.Ordinal; at >= 0 && at < pod.Subject.Pod.Workload.Ordinal && p.serves(sibling) {
			missing--
		}
	}
	return missing > 0
}

// changedSince reports whether a pod of the pod's workload is missing, terminating or was created
// since then.
func (p *planner) changedSince(pod *snapshot.Pod, since time.Time) bool {
	w := pod.Workload
	for _, r := range w.Revisions {
		if slices.ContainsFunc(r.Pods, func(pod *snapshot.Pod) bool { return !pod.CreationTimestamp.Time.Before(since) }) {
			return true
		}
	}
	return p.of(pod).terminating > 0 || podsOfWorkload(pod) < w.Desired
}
