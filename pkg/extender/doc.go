// Package extender makes placement decisions for a stock kube-scheduler, over the
// scheduler-extender protocol. It adapts the protocol to package placement, which the scheduler
// plugins use too, and feeds it from informers instead of the scheduler's snapshot.
//
// The extender differs from the plugins in one point. A scheduler assumes a pod on its node at
// once, but an extender learns of the binding later, from a watch. Therefore an answer is an
// approval: it counts like a pod until the watch shows that the pod is bound.
// docs/design/extender.md explains why this is safe.
package extender
