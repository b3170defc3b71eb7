// Package audit is the second opinion on placement: it watches the API beside a test, works out floors and budgets from the
// objects with its own small code, and reports what the placement policy forbids. It shares no code with the scheduler,
// so that a mistake there is not repeated here. Of the controller it also sees whether two pods of a workload are moved at once, whether a
// pod is forgotten that was taken out of its ReplicaSet, and whether it touches what others have put on a node.
//
// The state machine (core) is pure: it is fed with what was seen and when, and with the passing of time. Live watches are
// a thin shell around it (Start, Watch).
//
// Several watches are not ordered relative to each other, and the scheduler itself sees every change late. Therefore a
// binding is judged only after a settling time, and it is a breach only if it was wrong under every value that the
// policy, the pod and its owners had within the two seconds before it. Where two objects carry resource versions of the
// same etcd, those decide what came first; otherwise the time of observation does.
package audit
