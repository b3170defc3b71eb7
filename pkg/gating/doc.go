// Package gating writes on pods what the scheduler's Filter would keep them off, so that autoscalers see it. Autoscalers simulate only
// kube-scheduler's own plugins: without a word on the pod they take a free spot node for good enough.
//
// An admission policy (manifests/overlays/autoscaler) adds the scheduling gate kube.CapacityGate to new pods. For each, the leader decides
// with package decision, and in one patch adds required node affinity and removes the gate. While the gate is on a pod, and never after, the
// API server lets affinity be tightened.
//
//	labels.go    which expressions mean spot and not spot, and how they are added to a pod
//	decide.go    which of them a gated pod is to have
//	gater.go     the work queue, one item for each revision: count, decide, patch
//	relief.go    pods that wait in vain: they are deleted, and their successors granted spot
//	nodes.go     nodes that an autoscaler takes for another capacity type than the policy does
//	wishes.go    replacements that are to run on spot
//	expire.go    the scheduler's part: gates that the controller has not removed in time
//
// What counts is what is written: a pod belongs to the floor if its own required affinity excludes spot, whether or not it is bound. Where the
// controller does not run, the scheduler removes the gate after gateTimeout. The Filter keeps every floor in any case.
package gating
