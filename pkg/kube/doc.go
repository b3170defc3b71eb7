// Package kube reads API objects into the values that package decision works with: the capacity type and the interruption signals
// of a node, and the workload, revision and replica count behind a pod. It decides nothing.
package kube
