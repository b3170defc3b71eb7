// Package audit checks the scheduler's placement independently. It watches the API during a test,
// computes floors and budgets from the objects with its own small code, and reports bindings that
// the placement policy forbids. It shares no code with the scheduler, so it does not repeat the
// scheduler's mistakes. It also checks the controller in three ways: two pods of a workload are
// not moved at once, no pod that was released from its ReplicaSet is forgotten, and the
// controller does not change other actors' taints and cordons on nodes.
//
// The state machine (core) is pure: its inputs are observations, their times, and the passing of
// time. Live watches are a thin shell around it (Start, Watch).
//
// Several watches are not ordered relative to each other, and the scheduler itself sees every
// change late. Therefore the auditor checks a binding only after a settling time. The binding is
// a breach only if it was wrong under every value of the policy, the pod and its owners within
// the two seconds before it. If two objects have resource versions of the same etcd, these
// determine their order; otherwise the time of observation does.
package audit
