// Package placement is what the plugins ReplicaSafety and SpotPreference share: the count of every workload's pods, kept from the
// scheduler's own snapshot; the state of one scheduling cycle; and the memory of the pods that wait.
//
// ReplicaSafety makes the State at PreFilter and SpotPreference reads it, so that neither plugin knows the other.
package placement
