// Package placement is the shared part of the plugins ReplicaSafety and SpotPreference. It contains
// the pod counts of every workload, the state of one scheduling cycle, and the registry of waiting
// pods. The counts are maintained from the scheduler's own snapshot.
//
// ReplicaSafety creates the State at PreFilter and SpotPreference reads it, so neither plugin
// depends on the other.
package placement
