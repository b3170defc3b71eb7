// Package workload converts pods and their owners into the values that package decision uses: the
// workload, revision and replica count of a pod, and what its own fields require. It makes no
// policy decisions.
package workload
