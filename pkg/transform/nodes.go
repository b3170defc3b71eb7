package transform

import v1 "k8s.io/api/core/v1"

// NodeTrimmer trims the nodes in the cache of one informer. It drops managedFields, and shares
// equal parts between the nodes of one instance type, such as their resources, and between nodes
// without the label of the instance type. Its zero value is ready for use.
type NodeTrimmer struct {
	// types contains the most recently trimmed node of each instance type.
	types latest[v1.Node]
}

// Trim is a cache.TransformFunc. It changes the node in place, because the informer owns it until
// Trim returns: a copy of each Node at every heartbeat would waste memory. It returns a node
// without managedFields, which is already trimmed, and any other object unchanged.
func (t *NodeTrimmer) Trim(obj any) (any, error) {
	node, ok := obj.(*v1.Node)
	if !ok || node.ManagedFields == nil {
		return obj, nil
	}
	node.ManagedFields = nil
	t.types.replace(node.Labels[v1.LabelInstanceTypeStable], node, func(other *v1.Node) {
		shareFields(&node.Spec, &other.Spec)
		shareFields(&node.Status, &other.Status)
	})
	return node, nil
}
