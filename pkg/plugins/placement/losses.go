package placement

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// past is what a Counter remembers of a Node beyond its present state. Whether the Node counts as lost is decided in package kube.
type past struct {
	uid  types.UID
	loss kube.NodeLoss
}

// Note records what an informer has seen of a Node. It may be called at any time, before or after the snapshot shows the same.
func (c *Counter) Note(event kube.NodeEvent) { c.notes.Add(event) }

// readNotes records what informers have seen since the last Update. It comes before the snapshot, which drops nodes that are gone.
func (c *Counter) readNotes(now time.Time) {
	for _, event := range c.notes.Take() {
		if n := c.nodes[event.Name]; n != nil && n.past.uid == event.UID {
			n.past.loss.Note(event)
			n.until = math.MinInt64 // look at it again, although its generation may stay
			c.next = math.MinInt64
		}
	}
}

// vanished counts n, which does not exist any more, as a loss of its pool if it is one.
func (c *Counter) vanished(n *node, now time.Time) {
	if n.past.loss.Vanish(now) {
		c.lose(n.pool, now)
	}
}

// checkLoss counts n, which was counted again, as a loss of its pool if it is one from now on.
func (c *Counter) checkLoss(n *node, now time.Time) {
	object := n.info.Node()
	occupied := slices.ContainsFunc(n.info.GetPods(), func(p fwk.PodInfo) bool { return kube.Occupies(p.GetPod(), object) })
	if n.past.loss.See(c.reader.Disruption(object, now), occupied, now) {
		c.lose(n.pool, now)
	}
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
