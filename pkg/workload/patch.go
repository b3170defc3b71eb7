package workload

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// PodPatch is a change of a pod. A nil field changes nothing, and a nil value removes an annotation
// or a label.
type PodPatch struct {
	Annotations     map[string]*string      `json:"annotations,omitzero"`
	Labels          map[string]*string      `json:"labels,omitzero"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitzero"`
	Spec            *PodSpecPatch           `json:"-"`
}

// PodSpecPatch is a change of the specification of a pod with scheduling gates.
type PodSpecPatch struct {
	Affinity        *v1.Affinity           `json:"affinity,omitzero"`
	SchedulingGates []v1.PodSchedulingGate `json:"schedulingGates,omitzero"`
}

// PatchPod changes exactly the version of the pod that was planned for: the patch contains its UID
// and its resource version.
func PatchPod(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, patch PodPatch) error {
	type metadata struct {
		PodPatch
		ResourceVersion string    `json:"resourceVersion"`
		UID             types.UID `json:"uid"`
	}
	data, err := json.Marshal(struct {
		Metadata metadata      `json:"metadata"`
		Spec     *PodSpecPatch `json:"spec,omitzero"`
	}{metadata{patch, pod.ResourceVersion, pod.UID}, patch.Spec})
	if err != nil {
		return fmt.Errorf("cannot encode the patch: %w", err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}
