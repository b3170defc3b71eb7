// Package decision makes every placement decision of the project: the capacity type of a node, how
// many replicas of a workload must survive the loss of all spot nodes (its floor), how many may
// therefore run on spot (its budget), whether a pod may run on a node, and which feasible node is
// best.
//
// The package is pure: values in, decision and reasons out. It imports only the standard library
// and the names in package spot, reads no clock and stores no state. The scheduler, the extender,
// the rebalancer and `explain` therefore give the same answer for the same values.
//
// A decision has four steps:
//
//	Policy.Settings(pod)                    rules, annotations   -> WorkloadSettings
//	NewPlan(pod, settings, placed, waited)  floor, budget, grant -> Plan
//	Plan.Admit(node, ...)                   may the pod run here -> Verdict (Plan.Reason explains it)
//	Plan.Rank(node, ...)                    how good is the node -> Rank
//
// ScoreBands maps ranks to scores of 0 to MaxScore. Losses.Risk is the risk of a pool. Next to
// these steps, Policy.Capacity determines the capacity type of a node, and NewFloorStatus compares
// the pods of a workload with its floor.
package decision
