package interruption

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Breaker is the state of the breaker for reclaim signals. A handler that is broken, or a mistake
// in the table of signals, may announce the reclaim of every spot node. It opens by itself in two
// cases:
//
//   - More spot nodes than controller.Breaker allows have a reclaim signal now, and no fact about
//     the node itself shows its end (ends). It opens for these nodes.
//   - Most nodes outlive their notice (judge). It opens for all nodes with that signal.
//
// A node for which it has opened is unconfirmed until a fact about the node shows its end, its
// reclaim signals end, or a second source confirms them, one that few spot nodes have (sources). So
// a node never becomes confirmed because other nodes have vanished, have lost their signals or were
// added: in a false alarm, an autoscaler deletes the nodes that are empty by then, and users remove
// the taints one by one. The state annotation of a node records this for a new leader.
//
// If a user has opened the breaker, all nodes with a reclaim signal are unconfirmed whose kubelet
// is not silent. If a user has closed it, none is.
type Breaker struct {
	Open bool
	// Unconfirmed are the nodes whose reclaim is not confirmed, by name.
	Unconfirmed []*snapshot.Node
	// Reclaims counts the spot nodes with a reclaim signal, and SpotNodes all spot nodes.
	Reclaims  map[Reclaim]int
	SpotNodes int
}

// Reclaim is a kind of reclaim: the name of the newest reclaim signal of a node (Signal.String of
// package providers), and what confirms it. The values are labels of a metric.
type Reclaim struct{ Signal, Confirmation string }

// All values of Reclaim.Confirmation.
const (
	// ConfirmedByNode: a fact about the node itself shows its end.
	ConfirmedByNode = "node"
	// ConfirmedBySignal: a second signal, or a cordon, confirms the signal.
	ConfirmedBySignal = "signal"
	// NotConfirmed: nothing confirms it.
	NotConfirmed = "none"
)

// besideWindow is the longest time between a signal and a drain or a cordon that confirms it. A
// later one may be a reaction: an autoscaler removes nodes that are empty by then, and an operator
// cordons nodes.
const besideWindow = time.Minute

// kubeletShutdown is the name of the signal of a kubelet that ends the pods of its node.
var kubeletShutdown = providers.KubeletShutdown.String()

func (p *planner) observeBreaker(nodes []observedNode) (b Breaker) {
	b = Breaker{Reclaims: map[Reclaim]int{}, SpotNodes: p.spotNodes}
	if !p.Interruption.Enabled {
		return b
	}
	percent := int(p.Interruption.Breaker.MaxPercent)
	isOff := percent == 0 || percent >= 100
	bound := max(int(p.Interruption.Breaker.MinNodes), p.spotNodes*percent/100)
	var reclaimed []*observedNode
	unproven, bySource := 0, map[string]int{} // spot nodes
	for i := range nodes {
		n := &nodes[i]
		if n.notice.newest.IsZero() { // limitUnreachable limits unreachable kubelets
			continue
		}
		reclaimed = append(reclaimed, n)
		n.sources, n.ends = p.sources(n), p.ends(n)
		if n.Facts.Capacity.Type != decision.Spot {
			continue
		}
		if !n.ends {
			unproven++
		}
		for _, source := range n.sources {
			bySource[source]++
		}
	}
	for _, n := range reclaimed {
		isSpot := n.Facts.Capacity.Type == decision.Spot
		doubted := !isOff && slices.ContainsFunc(n.signals, func(a node.Announcement) bool { return p.Memory.verdicts.doubtful(a.Name) })
		n.inBurst = !isOff && (n.state.Burst || !n.ends && (doubted || isSpot && unproven > bound))
		if n.common = n.state.Common; len(n.sources) > 1 {
			n.common = slices.DeleteFunc(slices.Clone(n.sources), func(source string) bool {
				return !doubted && bySource[source] <= bound && !slices.Contains(n.state.Common, source)
			})
		}
		bySignal := len(n.sources) > 1 && len(n.common) < len(n.sources)
		if n.unconfirmed = n.inBurst && !n.ends && !bySignal; p.ForcedBreaker != nil {
			n.unconfirmed = *p.ForcedBreaker && !slices.ContainsFunc(n.signals, isUnreachable)
		}
		if n.unconfirmed {
			b.Unconfirmed = append(b.Unconfirmed, n.Node)
		}
		if isSpot {
			b.Reclaims[Reclaim{n.newestSignal(), confirmation(n.ends, bySignal)}]++
		}
	}
	b.Open = ptr.Deref(p.ForcedBreaker, len(b.Unconfirmed) > 0)
	return b
}

// shortHalf is the longest half of a notice that a fair end does not wait for.
const shortHalf = time.Minute

// fairEnd returns when the fair end of pods begins while the breaker is open: after half of the
// notice, so that users can react to a false alarm; at once if that is shortHalf or less.
func fairEnd(n notice) time.Time {
	if half := n.deadline.Sub(n.first) / 2; half > shortHalf {
		return n.first.Add(half)
	}
	return n.first
}

func confirmation(byNode, bySignal bool) string {
	switch {
	case byNode:
		return ConfirmedByNode
	case bySignal:
		return ConfirmedBySignal
	}
	return NotConfirmed
}

// newestSignal returns the name of the newest reclaim signal, the first of several.
func (o *observedNode) newestSignal() (newest string) {
	for _, a := range o.signals {
		if a.Class == decision.Reclaim && !isUnreachable(a) && o.notice.starts[a.Name].After(o.notice.starts[newest]) {
			newest = a.Name
		}
	}
	return newest
}

// sources returns the tools that announce the end of a node with a reclaim signal
// (providers.Signal.Source): by its reclaim signals, and by drains and a cordon that began within
// besideWindow of the newest one.
func (p *planner) sources(n *observedNode) (all []string) {
	for _, a := range n.signals {
		source := a.Name
		if a.Signal != nil {
			source = a.Signal.Source()
		}
		isDrain := a.Class == decision.Drain && a.Name != node.Deletion && n.besideReclaim(n.since(a.Name, a.Since))
		if (isDrain || a.Class == decision.Reclaim && !isUnreachable(a)) && !slices.Contains(all, source) {
			all = append(all, source)
		}
	}
	if n.isCordoned() {
		all = append(all, factCordon)
	}
	return all
}

// ends reports whether a fact about the node itself shows its end: its kubelet is unreachable, as
// far as limitUnreachable believes it, shuts down, or has not been ready for NotReadyAfter; the
// Node, or the object that owns it, is being deleted.
func (p *planner) ends(n *observedNode) bool {
	if owner := p.owner(n); n.DeletionTimestamp != nil || owner != nil && owner.GetDeletionTimestamp() != nil {
		return true
	}
	_, ready := nodeutil.GetNodeCondition(&n.Status, v1.NodeReady)
	return ready != nil && ready.Status == v1.ConditionFalse &&
		!p.at.Before(n.since(factNotReady, ready.LastTransitionTime.Time).Add(p.reader.LostAfter())) ||
		slices.ContainsFunc(n.signals, func(a node.Announcement) bool { return isUnreachable(a) || a.Name == kubeletShutdown })
}

// drained reports whether another actor drains the node, or deletes the Node.
func (o *observedNode) drained() bool {
	return slices.ContainsFunc(o.signals, func(a node.Announcement) bool { return a.Class == decision.Drain })
}

// besideReclaim reports whether something that began then began within besideWindow of the newest
// reclaim signal.
func (o *observedNode) besideReclaim(began time.Time) bool {
	return began.Sub(o.notice.newest).Abs() <= besideWindow
}

// isCordoned reports whether another actor than the source of the reclaim signals has cordoned the
// node beside them. It returns false unless all signals are conditions of the node: tools that set
// a taint often cordon as well.
func (o *observedNode) isCordoned() bool {
	noCondition := func(a node.Announcement) bool {
		return a.Class == decision.Reclaim && a.Signal != nil && a.Signal.Kind != providers.ConditionSignal
	}
	return !slices.ContainsFunc(o.signals, noCondition) && slices.ContainsFunc(o.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeUnschedulable && t.TimeAdded != nil && o.besideReclaim(o.since(factCordon, t.TimeAdded.Time))
	})
}
