// Package extender decides placements for a stock kube-scheduler, over the scheduler-extender protocol. It is a third door to the same
// decisions: package decision answers, as in the plugins, from what informers say instead of from the scheduler's own snapshot.
//
//	index.go     where the pods of every revision stand, and what is known of every node
//	asked.go     the pods that were asked about and are not known to be bound yet: what they were approved for
//	decide.go    Filter and Prioritize: one decision
//	message.go   requests and answers, as JSON
//	serve.go     HTTP
//	forward.go   from a replica that stands by to the one that leads
//
// What differs from the plugins: a scheduler assumes a pod on its node at once, and an extender learns of a binding from a watch, some
// time later. So an answer is an approval, and counts like a pod until the pod is seen to be bound. docs/design/extender.md has the
// argument.
package extender
