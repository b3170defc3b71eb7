// Package replay replays recorded spot capacity on a local control plane and measures what each way
// to use spot costs and how available it is.
//
// A plan is computed from the inputs alone: which nodes exist when, which nodes are reclaimed, and
// how many replicas each service has. Every arm replays the same plan with another scheduler or
// configuration. Measurements come from watches of the API server. docs/design/replay.md explains
// the design and its limits.
//
// All times in a plan and in a result are times of the trace, as durations since the start of the
// window. Only Clock converts them from and to real time.
package replay
