package workload

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// revisionController returns the controller of a ReplicaSet that keeps its revisions in
// ReplicaSets; nil if it has none.
func revisionController(rs *appsv1.ReplicaSet) (*metav1.OwnerReference, *providers.RevisionController) {
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		for i := range providers.RevisionControllers {
			if c := &providers.RevisionControllers[i]; isKind(owner, c.Group, c.Kind) {
				return owner, c
			}
		}
	}
	return nil, nil
}

// OlderRevisions returns the keys of the ReplicaSets of s's workload that are older than its own
// (see Subject.RevisionKey). It returns none for other workloads.
func (o *Owners) OlderRevisions(s *Subject) ([]OwnerKey, error) {
	if s.WorkloadKey == s.RevisionKey {
		return nil, nil
	}
	objs, err := o.replicaSetIndex.ByIndex(replicaSetsByController, s.WorkloadKey.Index())
	if err != nil {
		return nil, err
	}
	var older []OwnerKey
	for _, obj := range objs {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok && rs.UID != s.RevisionKey.UID && RevisionNumber(rs) < s.RevisionNumber {
			key, _ := ControllerKey(rs)
			older = append(older, key)
		}
	}
	return older, nil
}

// OtherRevision reports whether other belongs to another revision of pod's workload.
func (o *Owners) OtherRevision(pod, other *v1.Pod) bool {
	if pod.Namespace != other.Namespace || RevisionOf(pod) == RevisionOf(other) {
		return false
	}
	a, b := o.revisedBy(pod), o.revisedBy(other)
	return a != OwnerKey{} && a == b
}

// revisedBy returns the key of the workload that has the pod's ReplicaSet as a revision. It is zero
// if there is none, or if the ReplicaSet is not in the cache.
func (o *Owners) revisedBy(pod *v1.Pod) OwnerKey {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || !isKind(ref, appsv1.GroupName, "ReplicaSet") {
		return OwnerKey{}
	}
	rs, err := get(o.replicaSets.ReplicaSets(pod.Namespace).Get, pod.Namespace, ref)
	if err != nil {
		return OwnerKey{}
	}
	if owner, _ := revisionController(rs); owner != nil {
		return KeyOf(pod.Namespace, owner)
	}
	return OwnerKey{}
}

// RevisionNumber orders the ReplicaSets of a workload: the newest has the highest number. It is 0
// if the controller has not assigned one. After a rollback, the old ReplicaSet has the highest
// number.
func RevisionNumber(rs *appsv1.ReplicaSet) int64 {
	_, controller := revisionController(rs)
	if controller == nil {
		return 0
	}
	n, _ := strconv.ParseInt(rs.Annotations[controller.Revision], 10, 64)
	return n
}
