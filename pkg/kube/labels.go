package kube

import (
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// LabelHistory remembers whether a node with a capacity label was ever seen, so that the label grace still applies after all such nodes were
// reclaimed: the new ones are the ones whose labels are awaited. Only Nodes feed it, which no tenant may write. The zero value has seen none.
// All methods may be called concurrently.
type LabelHistory struct{ seen atomic.Bool }

// Seen reports whether a node with a capacity label was ever seen. It is the othersLabeled of decision.Policy.Capacity.
func (h *LabelHistory) Seen() bool { return h.seen.Load() }

// Remember remembers that such a node was seen, by this process or by an earlier leader.
func (h *LabelHistory) Remember() { h.seen.Store(true) }

// Note remembers that a node of this capacity was seen.
func (h *LabelHistory) Note(capacity decision.Capacity) {
	if capacity.Labeled() && !h.seen.Load() {
		h.seen.Store(true)
	}
}

// Handler returns a handler for the informer of nodes that notes every node. It runs in a replica that stands by, too, so a new leader knows
// what was there before its term.
func (h *LabelHistory) Handler(policy *decision.Policy) cache.ResourceEventHandler {
	note := func(obj any) {
		// An unlabeled node is never Labeled, whatever its age.
		h.Note(policy.Capacity(obj.(*v1.Node).Labels, 0, false))
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) }}
}

// GraceLeft returns how long node has to wait for its capacity label from now on; 0 if it has a label or is too old.
func GraceLeft(policy *decision.Policy, node *v1.Node, now time.Time) time.Duration {
	age := now.Sub(node.CreationTimestamp.Time)
	if policy.Capacity(node.Labels, age, true).Source != decision.Settling {
		return 0
	}
	return policy.LabelGrace - age
}
