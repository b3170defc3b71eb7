package cluster

import (
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
)

// Forget lets the reader read every pod again.
func (r *Reader) Forget() { r.known = known{} }

// ForgetIndex has the next Room or Demand read the labels of all nodes and pods again.
func (s *Snapshot) ForgetIndex() { s.index = nil }

// LoseReplicaSets lets every ReplicaSet go after the reader has seen that it owns a pod, and before it looks at it.
func (r *Reader) LoseReplicaSets() {
	r.replicaSets = appslisters.NewReplicaSetLister(cache.NewIndexer(nil, cache.Indexers{}))
}

// BreakNodes makes every read of a node panic.
func (r *Reader) BreakNodes() { r.reader = nil }
