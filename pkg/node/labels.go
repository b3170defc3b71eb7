package node

import (
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
)

// LabelHistory records whether a node with a capacity label was ever observed. The label grace then
// still applies after all such nodes were reclaimed, when only new nodes without labels exist. Its
// only input is Node objects, which tenants cannot write. The zero value has observed none. All
// methods may be called concurrently.
type LabelHistory struct{ seen atomic.Bool }

// Seen reports whether a node with a capacity label was ever observed. The result is the
// othersLabeled argument of decision.Policy.Capacity.
func (h *LabelHistory) Seen() bool { return h.seen.Load() }

// Remember records that this process or an earlier leader observed such a node.
func (h *LabelHistory) Remember() { h.seen.Store(true) }

// Record records the capacity of an observed node.
func (h *LabelHistory) Record(capacity decision.Capacity) {
	if capacity.Labeled() && !h.seen.Load() {
		h.seen.Store(true)
	}
}

// Handler returns a handler for the node informer that records every node. It also runs in a
// standby replica, so that a new leader knows the nodes that existed before its term.
func (h *LabelHistory) Handler(policy *decision.Policy) cache.ResourceEventHandler {
	note := func(node *v1.Node) {
		// An unlabeled node is never Labeled, regardless of its age.
		h.Record(policy.Capacity(node.Labels, 0, false))
	}
	return informer.Handler[*v1.Node]{Add: note, Update: func(_, node *v1.Node) { note(node) }}
}

// LabelGraceLeft returns how long the node may still wait for its capacity label. It is 0 if the
// node has a label or its grace has ended.
func LabelGraceLeft(policy *decision.Policy, node *v1.Node, now time.Time) time.Duration {
	age := now.Sub(node.CreationTimestamp.Time)
	if policy.Capacity(node.Labels, age, true).Source != decision.Settling {
		return 0
	}
	return policy.LabelGrace - age
}
