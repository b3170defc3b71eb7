// Package kube converts API objects into the values that package decision uses: the capacity type
// and interruption signals of a node, and the workload, revision and replica count of a pod. It
// makes no policy decisions.
package kube
