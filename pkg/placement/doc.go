// Package placement decides on which nodes a pod may run, and how good they are, for the scheduler
// plugins and for the extender. It contains the pod counts of every workload, the state of one
// decision, and the registries of waiting and nominated pods.
//
// ReplicaSafety creates the State at PreFilter and SpotPreference reads it, so neither plugin
// depends on the other.
package placement
