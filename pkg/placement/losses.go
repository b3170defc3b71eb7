package placement

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// nodeHistory is the history of a Node that a Counter needs beyond the Node's current state.
// Package node decides whether the Node counts as lost.
type nodeHistory struct {
	uid  types.UID
	loss node.LossDetector
}

// readEvents applies the informer events since the last call. It must run before the snapshot is
// read, because that removes the nodes that no longer exist.
func (c *Counter) readEvents() {
	for _, event := range c.Events.Take() {
		if n := c.nodes[event.Name]; n != nil && n.history.uid == event.UID {
			n.history.loss.Record(event)
			n.until = math.MinInt64 // read the node again even if its generation is unchanged
			c.nextChange = math.MinInt64
		}
	}
}

// recordDeletion records the deletion of n. If that counts as a loss, it also records a loss of the
// pool.
func (c *Counter) recordDeletion(n *nodeState, now time.Time) {
	if n.history.loss.ObserveDeletion(now) {
		c.recordLoss(n.pool, decision.Losses{Count: 1, Latest: now})
	}
}

// checkLoss records a change of the losses of the pool because of n, which was just read.
func (c *Counter) checkLoss(n *nodeState, now time.Time) {
	object := n.info.Node()
	occupied := false
	for pod := range n.info.Pods() {
		if workload.Occupies(pod, object) {
			occupied = true
			break
		}
	}
	if change, at := n.history.loss.Observe(object, c.reader.Disruption(object, now), occupied, now); change != 0 {
		c.recordLoss(n.pool, decision.Losses{Count: float64(change), Latest: at})
	}
}

// recordLoss records that p has lost a node, or that this is withdrawn. It ignores on-demand pools
// and nodes without instance type and zone, which have no pool.
func (c *Counter) recordLoss(p *pool, of decision.Losses) {
	if p.key.Capacity != decision.Spot || p.key.Pool == (decision.Pool{}) {
		return
	}
	losses := append(c.newLosses[p], of)
	c.newLosses[p] = losses[max(0, len(losses)-decision.MaxLosses):]
}

// risksPerHalfLife is how often the risks are recomputed per half-life. Between two computations no
// risk changes by more than a Rank can represent: its slope is at most a quarter per half-life, and
// a Rank has 1,023 steps.
const risksPerHalfLife = 256

// UpdateRisks computes the risk of every pool at now. prior contains the prior risks. A loss counts
// half after each halfLife, which must be the same in every call. A call is cheap unless a pool has
// lost a node since the last call, or a 256th of a half-life has passed. The first call adds losses
// of earlier leaders. UpdateRisks must not run concurrently with any other method.
func (c *Counter) UpdateRisks(prior map[decision.Pool]float64, halfLife time.Duration, now time.Time) {
	var stored map[*pool]decision.Losses
	if c.risksAt.IsZero() {
		stored = c.storedLosses()
	}
	for ; c.poolsWithPrior < len(c.pools); c.poolsWithPrior++ {
		if p := c.pools[c.poolsWithPrior]; p.key.Capacity == decision.Spot {
			p.prior = prior[p.key.Pool]
			p.risk = p.prior
		}
	}
	if len(c.newLosses) > 0 {
		defer c.storeLosses()
	}
	for p, changes := range c.newLosses {
		losses := c.losses[p]
		for _, of := range changes {
			losses = losses.Add(of.Count, of.Latest, halfLife)
		}
		c.losses[p] = losses
		p.setRisk(losses.Risk(now, halfLife))
		delete(c.newLosses, p)
	}
	for p, losses := range stored { // both may have counted a node that still exists
		if losses.Weight(now, halfLife) > c.losses[p].Weight(now, halfLife) {
			c.losses[p] = losses
		}
	}
	if now.Sub(c.risksAt) < halfLife/risksPerHalfLife {
		return
	}
	c.risksAt = now
	for p, losses := range c.losses {
		if losses.Expired(now, halfLife) {
			delete(c.losses, p)
			p.setRisk(0)
			continue
		}
		p.setRisk(losses.Risk(now, halfLife))
	}
}

func (c *Counter) storedLosses() map[*pool]decision.Losses {
	var stored map[decision.Pool]decision.Losses
	c.Memory.Load(&stored)
	losses := map[*pool]decision.Losses{}
	for lost, of := range stored {
		losses[c.pool(decision.SpreadPool{Capacity: decision.Spot, Pool: lost, Zone: lost.Zone})] = of
	}
	return losses
}

func (c *Counter) storeLosses() {
	known := map[decision.Pool]decision.Losses{}
	for p, losses := range c.losses {
		known[p.key.Pool] = losses
	}
	c.Memory.Store(known)
}

// setRisk combines the prior risk of p and the risk from its losses as independent probabilities.
func (p *pool) setRisk(ofLosses float64) { p.risk = 1 - (1-p.prior)*(1-ofLosses) }
