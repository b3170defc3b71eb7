package interruption

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// Memory is what Plan knows from earlier rounds of this process, by its own clock. It is not safe
// for concurrent use.
type Memory struct {
	nodes    map[types.UID]*nodeMemory
	verdicts verdicts
	passedOn *leader.Memory
	loaded   bool
}

// NewMemory returns the Memory of a process that has just started. passedOn passes verdicts on to
// later leaders; nil passes nothing on.
func NewMemory(passedOn *leader.Memory) *Memory {
	return &Memory{nodes: map[types.UID]*nodeMemory{}, verdicts: verdicts{}, passedOn: passedOn}
}

// nodeMemory is what this process has seen of a node.
type nodeMemory struct {
	round time.Time // the last round that saw the node
	// began contains, for each fact about the node in that round, the last round that saw the node
	// without the fact; zero if none did.
	began   map[string]time.Time
	reclaim reclaimMemory
	// pending are the signals of the node whose verdict is open.
	pending []string
}

// reclaimMemory is what this process has seen of a node since its reclaim signals began. It is zero
// if there are none, except for calm.
type reclaimMemory struct {
	// calm: an earlier round saw the node without a reclaim signal. held: moves were not possible
	// in an earlier round, because of a pause or the breaker. outlived: the deadline means nothing.
	calm, held, outlived bool
	// free is since when the controller may act; zero if it may not.
	free time.Time
}

// see records that a round at now sees a node with these facts.
func (m *Memory) see(uid types.UID, facts []string, now time.Time) *nodeMemory {
	n, known := m.nodes[uid]
	if !known {
		n = &nodeMemory{}
		m.nodes[uid] = n
	}
	if n.round.Equal(now) {
		return n
	}
	last := n.began
	n.began = nil // most nodes have no fact
	for _, fact := range facts {
		at, lasts := last[fact]
		if !lasts {
			at = n.round
		}
		if n.began == nil {
			n.began = map[string]time.Time{}
		}
		n.began[fact] = at
	}
	n.round = now
	return n
}

// The names of facts about a node that are not announcements.
const factCordon, factNotReady = "cordon", "not ready"

// facts returns the names of the facts about the node whose start matters.
func (o *observedNode) facts() (all []string) {
	for _, a := range o.signals {
		all = append(all, a.Name)
	}
	if o.Spec.Unschedulable {
		all = append(all, factCordon)
	}
	if _, ready := nodeutil.GetNodeCondition(&o.Status, v1.NodeReady); ready != nil && ready.Status != v1.ConditionTrue {
		all = append(all, factNotReady)
	}
	return all
}

// since returns when a fact about the node began: the time on the Node, which the clock of another
// machine wrote, but not before the last round in which this process saw the node without the fact.
func (o *observedNode) since(fact string, onNode time.Time) time.Time {
	if at := o.memory.began[fact]; at.After(onNode) {
		return at.UTC().Truncate(time.Second)
	}
	return onNode
}

// freeSince returns since when the controller may act on the notice of the node, which began at
// first: later than that after a pause or an open breaker, or for a new leader after the deadline.
// It is zero if the controller may not.
func (p *planner) freeSince(n *observedNode, first time.Time) time.Time {
	m := &n.memory.reclaim
	continued := m.calm || len(n.state.Starts) > 0 && p.now.Before(n.notice.deadline) // by a new leader
	switch {
	case n.unconfirmed || p.Paused.Stops(safety.Reclaim) || p.Paused.Stops(safety.Deadline):
		m.held, m.free = true, time.Time{}
	case !m.free.IsZero():
	case continued && !m.held:
		m.free = first
	default:
		m.free = p.now
	}
	return m.free
}

const (
	// outlivedAfter is how long after its notice a node must be ready to be evidence against its
	// signal. The evidence counts for verdictWindow, and minOutlived such nodes are required.
	outlivedAfter = 30 * time.Second
	verdictWindow = time.Hour
	minOutlived   = 3
	// maxPassedOn is how many verdicts about a signal a later leader reads: the newest.
	maxPassedOn = 50
)

// verdicts contains what became of nodes after their notice, by the name of the signal. Later
// versions read it, so the names of its JSON fields must not change.
type verdicts map[string]map[types.UID]verdict

type verdict struct {
	At       time.Time `json:"at"`
	Outlived bool      `json:"outlived,omitempty"`
}

// doubtful reports whether most of the nodes with a signal have outlived it.
func (v verdicts) doubtful(signal string) bool {
	outlived := 0
	for _, one := range v[signal] {
		if one.Outlived {
			outlived++
		}
	}
	return outlived >= minOutlived && 2*outlived > len(v[signal])
}

// add adds a verdict, unless the node has one.
func (v verdicts) add(signal string, node types.UID, one verdict) {
	if v[signal] == nil {
		v[signal] = map[types.UID]verdict{}
	}
	if known, judged := v[signal][node]; !judged || one.At.Sub(known.At) > outlivedAfter {
		v[signal][node] = one
	}
}

// newest returns at most maxPassedOn verdicts about each signal.
func (v verdicts) newest() verdicts {
	newest := verdicts{}
	for signal, nodes := range v {
		uids := slices.SortedFunc(maps.Keys(nodes), func(a, b types.UID) int {
			return cmp.Or(nodes[b].At.Compare(nodes[a].At), cmp.Compare(a, b))
		})
		for _, uid := range uids[:min(len(uids), maxPassedOn)] {
			newest.add(signal, uid, nodes[uid])
		}
	}
	return newest
}

// judge records verdicts about signals that have a notice of their own. A spot node is judged when
// outlivedAfter of its notice has passed, by whether its kubelet is alive. If the Node is gone
// before, it counts for the signal, unless another actor drained it.
func (p *planner) judge(nodes []observedNode) {
	m := p.Memory
	type passedOn struct{ Verdicts verdicts }
	if !m.loaded {
		m.passedOn.Load(&passedOn{m.verdicts})
		m.loaded = true
	}
	for i := range nodes {
		n := &nodes[i]
		n.memory.pending = nil
		for _, a := range n.signals {
			if a.Class != decision.Reclaim || !a.Timed || a.Signal == nil || n.Facts.Capacity.Type != decision.Spot {
				continue
			}
			switch at := n.notice.starts[a.Name].Add(a.Notice + outlivedAfter); {
			case p.now.Before(at) && !n.drained():
				n.memory.pending = append(n.memory.pending, a.Name)
			case p.now.Before(at) || n.alive && p.renewed != nil && !p.renewed(n.Name, at):
			default:
				m.verdicts.add(a.Name, n.UID, verdict{at, n.alive})
			}
		}
	}
	for uid, n := range m.nodes {
		if !n.round.Equal(p.at) {
			for _, signal := range n.pending {
				m.verdicts.add(signal, uid, verdict{At: p.now})
			}
			delete(m.nodes, uid)
		}
	}
	for _, nodes := range m.verdicts { // the clock of an earlier leader may have been ahead
		maps.DeleteFunc(nodes, func(_ types.UID, one verdict) bool { return p.now.Sub(one.At).Abs() >= verdictWindow })
	}
	if len(m.verdicts) > 0 {
		m.passedOn.Store(passedOn{m.verdicts.newest()})
	}
}
