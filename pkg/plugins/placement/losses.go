package placement

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// A loss is a spot node that the cloud took back while it ran pods. Each node counts at most once:
//
//   - a signal of an interruption appears on it, or it falls silent (kube.NodeReader.Interrupted);
//   - its deletion begins before anything drains it (NoteInterruption), which is how Karpenter starts on an interruption;
//   - it vanishes with pods on it, and nothing drained it.
//
// Whoever announces an interruption also empties the node, often before the next scheduling cycle sees it. So a node that has just been
// emptied counts as one that runs pods.

// emptiedWithin is how long ago the node may have run its last pod. AWS, the cloud with the longest usual notice, gives two minutes.
const emptiedWithin = 5 * time.Minute

// past is what a Counter remembers of a Node beyond its present state.
type past struct {
	uid     types.UID
	hadPods int64 // when pods with a policy were last seen on it, in Unix nanoseconds; 0 for never
	deleted bool  // its deletion was an interruption
	drained bool  // something drained it before it was deleted
	lost    bool  // it was counted as a loss
}

// note is what an informer has seen of a Node between two scheduling cycles.
type note struct {
	name        string
	uid         types.UID
	interrupted bool // otherwise drained
}

// notes collects notes from the goroutines of informers.
type notes struct {
	mu   sync.Mutex
	list []note
}

// maxNotes bounds what is remembered while no pod is scheduled.
const maxNotes = 10_000

func (n *notes) add(node *v1.Node, interrupted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) == maxNotes {
		n.list = slices.Delete(n.list, 0, maxNotes/2)
	}
	n.list = append(n.list, note{node.Name, node.UID, interrupted})
}

func (n *notes) take() []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

// NoteInterruption tells the Counter that the cloud takes node back. It may be called at any time, before or after the snapshot shows why.
func (c *Counter) NoteInterruption(node *v1.Node) { c.notes.add(node, true) }

// NoteDrained tells the Counter that node was drained before it was deleted. It may be called at any time.
func (c *Counter) NoteDrained(node *v1.Node) { c.notes.add(node, false) }

// readNotes takes over what informers have seen since the last Update. It comes before the snapshot, which drops nodes that are gone.
func (c *Counter) readNotes(now time.Time) {
	for _, seen := range c.notes.take() {
		n := c.nodes[seen.name]
		if n == nil || n.past.uid != seen.uid {
			continue
		}
		if seen.interrupted {
			n.past.deleted = true
			c.interrupted(n, now)
		} else {
			n.past.drained = true
		}
	}
}

// vanished counts n as a loss if it is no longer there although nothing drained it.
func (c *Counter) vanished(n *node, now time.Time) {
	if n.facts.Signal < decision.Drain && !n.past.drained && len(n.pods) > 0 {
		c.interrupted(n, now)
	}
}

// interrupted counts n, which is interrupted, as a loss of its pool unless it was counted before or ran no pods.
func (c *Counter) interrupted(n *node, now time.Time) {
	ranPods := len(n.pods) > 0 || n.past.hadPods != 0 && now.UnixNano()-n.past.hadPods <= int64(emptiedWithin)
	if n.past.lost || !ranPods {
		return
	}
	n.past.lost = true
	c.lose(n.pool, now)
}

// lose records that p has lost a node. Only pools of spot nodes lose any; nodes without instance type and zone have no pool.
func (c *Counter) lose(p *pool, at time.Time) {
	if p.capacity != decision.Spot || p.pool == (decision.Pool{}) {
		return
	}
	times := append(c.fresh[p], at)
	c.fresh[p] = times[max(0, len(times)-decision.MaxLosses):]
}

// risksPerHalfLife is how often in a half-life the risks are worked out anew. In the time between, no risk changes by more than a Rank can
// tell apart: its slope is at most a quarter per half-life, and a Rank has 1,023 steps.
const risksPerHalfLife = 256

// UpdateRisks works out the risk of every pool at now: known is what is known beforehand, and losses count half after each halfLife,
// which must be the same in every call. A call costs next to nothing unless a pool has lost a node since the last one, or a 256th of a
// half-life has passed. UpdateRisks must not run at the same time as anything else.
func (c *Counter) UpdateRisks(known map[decision.Pool]float64, halfLife time.Duration, now time.Time) {
	for ; c.withRisk < len(c.pools); c.withRisk++ {
		if p := c.pools[c.withRisk]; p.capacity == decision.Spot {
			p.known = known[p.pool]
			p.risk = p.known
		}
	}
	for p, times := range c.fresh {
		losses := c.losses[p]
		for _, at := range times {
			losses = losses.Add(at, halfLife)
		}
		c.losses[p] = losses
		p.setRisk(losses.Risk(now, halfLife))
		delete(c.fresh, p)
	}
	if now.Sub(c.risksAt) < halfLife/risksPerHalfLife {
		return
	}
	c.risksAt = now
	for p, losses := range c.losses {
		if losses.Forgotten(now, halfLife) {
			delete(c.losses, p)
			p.setRisk(0)
			continue
		}
		p.setRisk(losses.Risk(now, halfLife))
	}
}

// setRisk sets p's risk: there are two independent ways to lose it, what is known of it and what its losses stand for.
func (p *pool) setRisk(ofLosses float64) { p.risk = 1 - (1-p.known)*(1-ofLosses) }
