package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Release is the value of spot.ReleasedAnnotation on a released pod, as JSON. It contains
// everything that the controller needs to finish or undo the release, also after a restart.
type Release struct {
	// ReplicaSet and ReplicaSetUID identify the ReplicaSet that the pod was released from. Hash is
	// the previous value of the pod's label pod-template-hash.
	ReplicaSet    string    `json:"replicaSet"`
	ReplicaSetUID types.UID `json:"replicaSetUID"`
	// Pod is the UID of the released pod. A copy of the pod, such as a restored one, is not
	// released.
	Pod  types.UID `json:"pod"`
	Hash string    `json:"hash"`
	// Reason is the reason of the release, a migration.Reason.
	Reason string `json:"reason"`
	// ToSpot: in the autoscaler mode, the replacement must require spot.
	ToSpot bool `json:"toSpot,omitempty"`
	// At is the time of the release.
	At time.Time `json:"at"`
}

// Released reports whether the pod claims to be released, by ReleaseAnnotation, by ReleasedHash or
// by its owners. Anyone who may write the pod can make this claim. Package snapshot decides whether
// to trust it.
func Released(pod *v1.Pod) bool {
	_, annotated := pod.Annotations[spot.ReleasedAnnotation]
	return annotated || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == spot.ReleasedHash || releasedByOwners(pod) >= 0
}

// releasedByOwners returns the index of the owner reference to the ReplicaSet of a pod that a
// Deployment controls, else -1. A pod has such owners only after a release.
func releasedByOwners(pod *v1.Pod) int {
	if !ControlledByDeployment(pod) {
		return -1
	}
	return slices.IndexFunc(pod.OwnerReferences, func(ref metav1.OwnerReference) bool { return isKind(&ref, appsv1.GroupName, "ReplicaSet") })
}

// ReadRelease returns the release that a pod claims, if it names a ReplicaSet and its hash, and
// otherwise the defect of the claim. If someone has removed the annotation, the owners show the
// release, without its reason and with the zero time.
func ReadRelease(pod *v1.Pod) (release *Release, defect string) {
	release = &Release{}
	text, annotated := pod.Annotations[spot.ReleasedAnnotation]
	owner := releasedByOwners(pod)
	switch {
	case annotated:
		if err := json.Unmarshal([]byte(text), release); err != nil {
			return nil, fmt.Sprintf("annotation %s does not parse: %v", spot.ReleasedAnnotation, err)
		}
	case owner >= 0:
		rs := pod.OwnerReferences[owner]
		hash, _ := strings.CutPrefix(rs.Name, metav1.GetControllerOfNoCopy(pod).Name+"-")
		release.ReplicaSet, release.ReplicaSetUID, release.Hash = rs.Name, rs.UID, hash
	default:
		return nil, "it has the label of a release without the annotation"
	}
	if release.ReplicaSet == "" || release.ReplicaSetUID == "" || release.Hash == "" || release.Hash == spot.ReleasedHash {
		return nil, fmt.Sprintf("annotation %s does not name a ReplicaSet, its UID and a hash", spot.ReleasedAnnotation)
	}
	if annotated && release.Pod != pod.UID {
		return nil, fmt.Sprintf("annotation %s belongs to another pod: this one is a copy", spot.ReleasedAnnotation)
	}
	return release, ""
}

// maxText limits the length of the annotation that FormerRelease reads.
const maxText = 2048

// FormerRelease returns the release of another pod, if this one is a copy of it; nil if the pod has
// no such annotation, or none with a hash that a label can have. The pod is not released, but it
// may still have the label of a released pod.
func FormerRelease(pod *v1.Pod) *Release {
	text, release := pod.Annotations[spot.ReleasedAnnotation], &Release{}
	if len(text) > maxText || json.Unmarshal([]byte(text), release) != nil || release.Pod == "" || release.Pod == pod.UID ||
		release.Hash == "" || release.Hash == spot.ReleasedHash || len(validation.IsValidLabelValue(release.Hash)) > 0 {
		return nil
	}
	return release
}

// ControlledByDeployment reports whether the controller of the pod is a Deployment, as that of a
// released pod.
func ControlledByDeployment(pod *v1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && IsDeployment(controller)
}

// Restoration returns the patch that gives a released pod back to its ReplicaSet. A pod without a
// controller retains the annotation until the ReplicaSet has adopted it, unless it is a copy.
func (r *Release) Restoration(pod *v1.Pod) PodPatch {
	patch := PodPatch{Labels: map[string]*string{appsv1.DefaultDeploymentUniqueLabelKey: &r.Hash}, Annotations: map[string]*string{}}
	if FormerRelease(pod) != nil && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != spot.ReleasedHash {
		patch.Labels = nil // a template may contain the annotation
	}
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller != nil || r.Pod != pod.UID {
		patch.Annotations[spot.ReleasedAnnotation] = nil
	}
	if ControlledByDeployment(pod) {
		refs := slices.DeleteFunc(slices.Clone(pod.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == controller.UID })
		patch.OwnerReferences = WithController(refs, r.ReplicaSetUID)
	}
	return patch
}

// WithController returns refs in which only the first reference with this UID is a controller; none
// if the UID is "". Other fields stay unchanged, including an explicit "controller: false", because
// the admission policy compares them.
func WithController(refs []metav1.OwnerReference, controller types.UID) []metav1.OwnerReference {
	refs = slices.Clone(refs)
	for i := range refs {
		if ptr.Deref(refs[i].Controller, false) {
			refs[i].Controller = nil
		}
	}
	if i := slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == controller }); i >= 0 && controller != "" {
		refs[i].Controller = new(true)
	}
	return refs
}

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
