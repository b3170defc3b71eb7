package providers

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MayScaleDown reports whether an autoscaler may remove the node. karpenter reports whether the
// cluster has NodePools: Karpenter removes only the nodes of NodePools, and the cluster autoscaler
// is then expected to remove none.
func MayScaleDown(node *v1.Node, karpenter bool) bool {
	_, owned := node.Labels[NodePoolLabel]
	return (owned || !karpenter) && node.Annotations[NodePools.Group+"/do-not-disrupt"] != "true" &&
		node.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] != "true"
}

// DeletionCostControllers are the controllers without ReplicaSets that delete the pods with the
// lowest controller.kubernetes.io/pod-deletion-cost first when they scale down, each with its
// source.
var DeletionCostControllers = []schema.GroupKind{
	// Kruise: its documentation of CloneSet, "Scale features", "Deletion by sequence".
	{Group: "apps.kruise.io", Kind: "CloneSet"},
}
