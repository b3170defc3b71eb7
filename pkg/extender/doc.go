// Package extender makes placement decisions for a stock kube-scheduler, over the
// scheduler-extender protocol. It is the third user of package decision, after the scheduler
// plugins and the controller. It reads the cluster from informers instead of the scheduler's
// snapshot.
//
//	index.go        pods of every revision by node, and the facts of every node
//	pending.go      pods that the scheduler asked about and that are not bound yet
//	extender.go     one decision: subject, siblings, plan and verdicts
//	filter.go       which nodes a pod may use, and what the answer approves
//	score.go        scores of nodes
//	preemption.go   nodes on which the pod may preempt other pods
//	unlabeled.go    nodes without a capacity label, withheld for pods that need on-demand
//	watch.go        informer events, takeover from an earlier leader, cleanup
//	message.go      requests and answers, as JSON
//	handler.go      HTTP
//	forwarder.go    forwarding from a standby replica to the leader
//
// The extender differs from the plugins in one point. A scheduler assumes a pod on its node at
// once, but an extender learns of the binding later, from a watch. Therefore an answer is an
// approval: it counts like a pod until the watch shows that the pod is bound.
// docs/design/extender.md explains why this is safe.
package extender
