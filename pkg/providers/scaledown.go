package providers

import "k8s.io/apimachinery/pkg/runtime/schema"

// DeletionCostControllers are the controllers without ReplicaSets that delete the pods with the
// lowest controller.kubernetes.io/pod-deletion-cost first when they scale down, each with its
// source.
var DeletionCostControllers = []schema.GroupKind{
	// Kruise: its documentation of CloneSet, "Scale features", "Deletion by sequence".
	{Group: "apps.kruise.io", Kind: "CloneSet"},
}
