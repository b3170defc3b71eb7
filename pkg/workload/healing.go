package workload

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// HealReason is the Reason of a Release whose replacement must run on on-demand.
const HealReason = "heal"

// maxHeal limits how long the claim to have been released for a heal counts.
const maxHeal = time.Hour

// indexHealed is the index podsByHealedReplicaSet.
func indexHealed(obj any) ([]string, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok || pod.Annotations[spot.ReleasedAnnotation] == "" {
		return nil, nil
	}
	release, _ := ReadRelease(pod)
	if release == nil || release.Reason != HealReason {
		return nil, nil
	}
	return []string{string(release.ReplicaSetUID)}, nil
}

// Healing reports whether a live pod of the ReplicaSet was released for a heal within the last
// hour. Its replacement must run on on-demand: on spot it would heal nothing, and the released pod
// serves meanwhile. A user who forges the claim delays only pods of the own namespace.
func (o *Owners) Healing(revision OwnerKey, now time.Time) bool {
	pods, _ := o.podIndex.ByIndex(podsByHealedReplicaSet, string(revision.UID)) // NewOwners has added the index
	return slices.ContainsFunc(pods, func(obj any) bool {
		pod := obj.(*v1.Pod)
		release, _ := ReadRelease(pod)
		return pod.Namespace == revision.Namespace && Live(pod) && release != nil && now.Sub(release.At).Abs() < maxHeal
	})
}
