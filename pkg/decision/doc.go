// Package decision holds every placement decision of the project: which capacity type a node has, how many replicas of a
// workload must survive the loss of all spot (its floor), how many may therefore stand on spot (its budget), whether one
// pod may go to one node, and which of the nodes that it may go to is best.
//
// It is pure: facts in, decision and reasons out. It imports the standard library only, reads no clock and keeps no state,
// so the scheduler, the extender, the rebalancer and `explain` give the same answer for the same facts.
//
// The way of one decision:
//
//	Policy.Settings(pod)            rules and annotations  -> Settings (and the annotations that do not parse)
//	NewPlan(pod, settings, counts)  floor, budget, grants  -> Plan
//	Plan.Admit(node, ...)           may it go there        -> Verdict   (Plan.Reason says it in words)
//	Plan.Rank(node, ...)            how good is it         -> Rank      (ScoreBands maps the ranks to 0..100; Losses.Risk is a pool's risk)
package decision
