package snapshot

import (
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
)

// Forget makes the reader read every pod again.
func (r *Reader) Forget() { r.podCache = podCache{} }

// LoseReplicaSets makes all ReplicaSets disappear between the lookup of a pod's owner and the read
// of the ReplicaSet.
func (r *Reader) LoseReplicaSets() {
	r.replicaSets = appslisters.NewReplicaSetLister(cache.NewIndexer(nil, cache.Indexers{}))
}

// BreakNodes makes every read of a node panic.
func (r *Reader) BreakNodes() { r.reader = nil }
