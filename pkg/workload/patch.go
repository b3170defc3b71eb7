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

// PatchPod merges metadata and spec into a pod; nil removes a field, and a nil spec changes none.
// The UID and the resource version guarantee that it changes exactly the version of the pod that
// was planned for. PatchPod adds them to metadata.
func PatchPod(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, metadata, spec map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = pod.UID, pod.ResourceVersion
	patch := map[string]any{"metadata": metadata}
	if spec != nil {
		patch["spec"] = spec
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("cannot encode the patch: %w", err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}
