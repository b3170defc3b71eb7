package interruption

import (
	"slices"
	"strings"
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
// in the table of signals, may announce the reclaim of every spot node.
//
// The breaker opens if more spot nodes than controller.Breaker allows get a reclaim signal within
// burstWindow, and no second fact confirms them. These nodes are unconfirmed. Signals before and
// after the burst, advisory signals and drains have their usual effect.
//
// A node stays unconfirmed until a second fact confirms its end, its reclaim signals end, or it
// vanishes. The breaker is open while such a node exists. So a node never becomes confirmed because
// other nodes have vanished, have lost their signals or were added: in a false alarm, an
// autoscaler deletes the nodes that are empty by then, and users remove the taints one by one.
// The state annotation of a node records that it belongs to a burst. A new leader reads it there.
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

// burstWindow is the longest time between the first and the last signal of a burst, and between a
// signal and a drain or a cordon that confirms it.
const burstWindow = time.Minute

func (p *planner) observeBreaker(nodes []observedNode) (b Breaker) {
	if !p.Interruption.Enabled {
		return Breaker{}
	}
	percent := int(p.Interruption.Breaker.MaxPercent)
	isOff := percent == 0 || percent >= 100
	var doubtful, spotNodes []*observedNode
	for i := range nodes {
		n := &nodes[i]
		if n.reclaimStart = p.reclaimStart(n); n.reclaimStart.IsZero() {
			continue
		}
		n.inBurst = n.state.Burst && !isOff
		if p.confirmed(n) {
			continue
		}
		doubtful = append(doubtful, n)
		if n.Facts.Capacity.Type == decision.Spot {
			spotNodes = append(spotNodes, n)
		}
	}
	if !isOff {
		findBursts(spotNodes, max(int(p.Interruption.Breaker.MinNodes), p.spotNodes*percent/100))
	}
	for _, n := range doubtful {
		if n.unconfirmed = ptr.Deref(p.ForcedBreaker, n.inBurst); n.unconfirmed {
			b.Unconfirmed = append(b.Unconfirmed, n.Node)
		}
	}
	b.Open = ptr.Deref(p.ForcedBreaker, len(b.Unconfirmed) > 0)
	return b
}

// findBursts sets inBurst of the nodes whose signals began within burstWindow of more than bound
// signals.
func findBursts(nodes []*observedNode, bound int) {
	slices.SortStableFunc(nodes, func(a, b *observedNode) int { return a.reclaimStart.Compare(b.reclaimStart) })
	end, marked := 0, 0
	for first, n := range nodes {
		for end < len(nodes) && nodes[end].reclaimStart.Sub(n.reclaimStart) <= burstWindow {
			end++
		}
		if end-first > bound {
			for marked = max(marked, first); marked < end; marked++ {
				nodes[marked].inBurst = true
			}
		}
	}
}

// reclaimStart returns when the newest reclaim signal of the node began; zero without one. An
// unreachable kubelet is not such a signal: limitUnreachable has its own limit.
func (p *planner) reclaimStart(n *observedNode) (newest time.Time) {
	for _, a := range n.signals {
		if a.Class == decision.Reclaim && !isUnreachable(a) {
			if start, _ := p.start(n, a); start.After(newest) {
				newest = start
			}
		}
	}
	return newest
}

// confirmed reports whether a second fact confirms that a node with a reclaim signal will end:
//
//   - a reclaim signal of another source (providers.Signal.Source), or an unreachable kubelet, as
//     far as limitUnreachable believes it
//   - a drain, a deletion or, see isCordoned, a cordon that began within burstWindow of the signal.
//     A later one may be a reaction to the signal: an autoscaler removes nodes that are empty by
//     then, and an operator cordons nodes.
//   - the kubelet reports that the node shuts down, or has not been ready for NotReadyAfter
func (p *planner) confirmed(n *observedNode) bool {
	sources := map[string]bool{}
	for _, a := range n.signals {
		source := a.Name
		if a.Signal != nil {
			source = a.Signal.Source()
		}
		if a.Class == decision.Reclaim || a.Class == decision.Drain && n.besideReclaim(a.Since) {
			sources[source] = true
		}
	}
	_, ready := nodeutil.GetNodeCondition(&n.Status, v1.NodeReady)
	ends := ready != nil && ready.Status == v1.ConditionFalse &&
		(strings.Contains(ready.Message, kubeletShutdown) || !p.at.Before(ready.LastTransitionTime.Add(p.reader.LostAfter())))
	return len(sources) > 1 || ends || n.isCordoned()
}

// kubeletShutdown is what a kubelet with a graceful node shutdown reports
// (pkg/kubelet/nodeshutdown).
const kubeletShutdown = "node is shutting down"

// besideReclaim reports whether something that began then began within burstWindow of the newest
// reclaim signal.
func (o *observedNode) besideReclaim(began time.Time) bool {
	return began.Sub(o.reclaimStart).Abs() <= burstWindow
}

// isCordoned reports whether another actor than the source of the reclaim signals has cordoned the
// node beside them. It returns false unless all signals are conditions of the node: tools that set
// a taint often cordon as well.
func (o *observedNode) isCordoned() bool {
	noCondition := func(a node.Announcement) bool {
		return a.Class == decision.Reclaim && a.Signal != nil && a.Signal.Kind != providers.ConditionSignal
	}
	return !slices.ContainsFunc(o.signals, noCondition) && slices.ContainsFunc(o.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeUnschedulable && t.TimeAdded != nil && o.besideReclaim(t.TimeAdded.Time)
	})
}
