package workload

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// HealReason is the Reason of a Release whose replacement must run on on-demand.
const HealReason = "heal"

// maxRelease limits how long the claim to have been released counts.
const maxRelease = time.Hour

// indexReleased is the index releasedPodsByReplicaSet.
func indexReleased(obj any) ([]string, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok || pod.Annotations[spot.ReleasedAnnotation] == "" {
		return nil, nil
	}
	if release, _ := ReadRelease(pod); release != nil {
		return []string{string(release.ReplicaSetUID)}, nil
	}
	return nil, nil
}

// HasReleased reports whether a live pod was released from the ReplicaSet within the last hour, for
// this reason, or for any if it is "". The pod serves until its replacement reaches the goal of the
// release. So the replacement of a heal, for example, must wait for on-demand.
func (o *Owners) HasReleased(revision OwnerKey, reason string, now time.Time) bool {
	return len(o.Released(revision, now, func(_ *v1.Pod, r *Release) bool { return reason == "" || r.Reason == reason })) > 0
}

// Released returns the live pods that were released from the ReplicaSet within the last hour, and
// whose release matches. A user who forges the claim affects only pods of the own namespace.
func (o *Owners) Released(revision OwnerKey, now time.Time, matches func(*v1.Pod, *Release) bool) (released []*v1.Pod) {
	pods, _ := o.podIndex.ByIndex(releasedPodsByReplicaSet, string(revision.UID)) // NewOwners has added the index
	for _, obj := range pods {
		pod := obj.(*v1.Pod)
		release, _ := ReadRelease(pod)
		if pod.Namespace == revision.Namespace && Live(pod) && release != nil &&
			now.Sub(release.At).Abs() < maxRelease && matches(pod, release) {
			released = append(released, pod)
		}
	}
	return released
}
