// Package placement decides on which nodes a pod may run, and how good they are, for the scheduler
// plugins and for the extender. It contains the pod counts of every workload, the state of one
// decision, and the registries of waiting and nominated pods.
//
//	counter.go       pods of every revision by pool, and the facts about every node
//	losses.go        losses of spot nodes, and the risk of their pools
//	snapshot.go      nodes and pods from the scheduler's snapshot
//	cluster.go       nodes and pods from the events of informers
//	state.go         the decision for one pod
//	search.go        which nodes a scheduling cycle searches
//	waiting.go       pods that were found unschedulable, and wakeups.go when they are retried
//	nominations.go   pods with a nominated node
//	reservations.go  nodes that are reserved for pods that wait for on-demand capacity
//	refusals.go      the statuses of one scheduling cycle
//
// ReplicaSafety creates the State at PreFilter and SpotPreference reads it, so neither plugin
// depends on the other.
package placement
