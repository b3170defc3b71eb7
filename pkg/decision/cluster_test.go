package decision_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// cluster is a minimal simulated cluster for placement by policy: a node has slots, and each pod
// uses one slot and is Ready immediately after binding.
type cluster struct {
	policy    decision.Policy
	now       time.Duration
	nodes     []*node     // in any order: placement breaks ties by name
	workloads []*workload // in the order of creation
	// warnings lists each skipped annotation once.
	warnings []string
	// onBind, if not nil, is called after each binding.
	onBind func(*pod)
}

type node struct {
	name     string
	labels   map[string]string
	pool     decision.Pool
	slots    int
	used     int
	created  time.Duration
	signal   decision.SignalClass
	risk     float64
	capacity decision.Capacity // as of the last refresh
}

type pod struct {
	name     string
	revision *revision
	ordinal  int
	node     *node // nil while the pod is pending
	// unschedulable is the time when the pod was first found unschedulable; negative if it never
	// was.
	unschedulable time.Duration
	outcome       decision.Outcome // the reason for the placement
}

// option is the evaluation of one node for one pod.
type option struct {
	node     *node
	siblings decision.Siblings
	rank     decision.Rank
	verdict  decision.Verdict
	refusal  string // the reason against the node; "" if it is feasible
}

func newCluster() *cluster {
	return &cluster{policy: decision.Policy{
		Defaults:       decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second},
		LabelGrace:     30 * time.Second,
		CapacityLabels: providers.CapacityLabels(),
	}}
}

// refresh updates every node's capacity type, which depends on labels and time.
func (c *cluster) refresh() {
	for _, n := range c.nodes {
		n.capacity = c.policy.Capacity(n.labels, c.now-n.created)
	}
}

func (n *node) decisionNode() decision.Node {
	return decision.Node{Capacity: n.capacity, Pool: n.pool, Signal: n.signal}
}

// decisionPod converts p to the type of package decision.
func (c *cluster) decisionPod(p *pod) *decision.Pod {
	w := p.revision.workload
	return &decision.Pod{
		Namespace:     w.namespace,
		Labels:        w.labels,
		Annotations:   w.podAnnotations,
		PriorityClass: w.priorityClass,
		Priority:      w.priority,
		QOSClass:      w.qosClass,
		OnlySpot:      w.onlySpot,
		OnlyOnDemand:  w.onlyOnDemand,
		Workload: decision.Workload{
			Kind:        w.kind,
			Revision:    w.namespace + "/" + p.revision.name,
			Annotations: w.annotations,
			Desired:     w.desired(),
			Ordinal:     p.ordinal,
			Ordered:     w.kind == "StatefulSet",
			BlocksLater: w.kind == "StatefulSet" && !w.parallel,
			Batch:       w.batch(),
		},
	}
}

func (r *revision) placed() (placed decision.PlacedPods) {
	for _, p := range r.pods {
		switch {
		case p.node == nil:
		case p.node.capacity.Type == decision.Spot:
			placed.Spot++
		default:
			placed.OnDemand++
		}
	}
	return placed
}

// evaluate returns the plan for a pod and the evaluation of every node, best node first.
func (c *cluster) evaluate(p *pod) (decision.Plan, []option) {
	subject := c.decisionPod(p)
	settings, invalid := c.policy.Settings(subject)
	for _, i := range invalid {
		if text := i.String(); !slices.Contains(c.warnings, text) {
			c.warnings = append(c.warnings, text)
		}
	}
	var waiting decision.WaitTime
	if p.unschedulable >= 0 {
		waiting.For = c.now - p.unschedulable
	}
	for _, other := range p.revision.workload.revisions {
		if other.number < p.revision.number && other.placed().OnDemand > 0 {
			waiting.OlderRevisionOnDemand = true
		}
	}
	plan := decision.NewPlan(subject, settings, p.revision.placed(), waiting)
	options := make([]option, 0, len(c.nodes))
	for _, n := range c.nodes {
		o := option{node: n}
		for _, sibling := range p.revision.pods {
			if sibling.node != nil {
				o.siblings.OnNode += count(sibling.node == n)
				o.siblings.InZone += count(sibling.node.pool.Zone == n.pool.Zone)
				o.siblings.InPool += count(sibling.node.pool == n.pool && sibling.node.capacity.Type == n.capacity.Type)
			}
		}
		o.verdict = plan.Admit(n.decisionNode(), 0, o.siblings.InPool)
		switch w := p.revision.workload; {
		case w.onlySpot && n.capacity.Type != decision.Spot:
			o.refusal = "node is not spot, which the pod requires"
		case w.onlyOnDemand && n.capacity.Type == decision.Spot:
			o.refusal = "node is not on-demand, which the pod requires"
		case w.zone != "" && w.zone != n.pool.Zone:
			o.refusal = "node is not in zone " + w.zone
		case o.verdict != decision.Admitted:
			o.refusal = plan.Reason(o.verdict)
		case n.used >= n.slots:
			o.refusal = "node is full"
		}
		o.rank = plan.Rank(n.decisionNode(), o.siblings, n.risk)
		options = append(options, o)
	}
	slices.SortFunc(options, func(a, b option) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.node.name, b.node.name))
	})
	return plan, options
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// place binds a pod to the best feasible node, and reports whether one exists.
func (c *cluster) place(p *pod) bool {
	plan, options := c.evaluate(p)
	for _, o := range options {
		if o.refusal == "" {
			p.node, p.outcome = o.node, plan.Outcome(o.node.decisionNode(), o.siblings.InPool)
			p.node.used++
			if c.onBind != nil {
				c.onBind(p)
			}
			return true
		}
	}
	if p.unschedulable < 0 {
		p.unschedulable = c.now
	}
	return false
}

// pending returns the pods to place, in the order of their creation.
func (c *cluster) pending() (pods []*pod) {
	for _, w := range c.workloads {
		for _, r := range w.revisions {
			for _, p := range r.pods {
				if p.node == nil && !w.gated {
					pods = append(pods, p)
				}
			}
		}
	}
	return pods
}

// step runs every controller once, tries every pending pod once, and reports whether anything
// changed.
func (c *cluster) step() (changed bool) {
	c.refresh()
	for _, w := range c.workloads {
		changed = c.reconcile(w) || changed
	}
	for _, p := range c.pending() {
		changed = c.place(p) || changed
	}
	return changed
}

// settle runs steps until nothing changes.
func (c *cluster) settle() {
	for c.step() {
	}
}

// wait advances the time by d in steps of a second, and settles the cluster after each step.
func (c *cluster) wait(d time.Duration) {
	for end := c.now + d; c.now < end; {
		c.now = min(c.now+time.Second, end)
		c.settle()
	}
}

// removeNode removes a node and its pods.
func (c *cluster) removeNode(n *node) {
	c.nodes = slices.DeleteFunc(c.nodes, func(other *node) bool { return other == n })
	for _, w := range c.workloads {
		for _, r := range w.revisions {
			r.pods = slices.DeleteFunc(r.pods, func(p *pod) bool { return p.node == n })
		}
	}
}

func (p *pod) remove() {
	if p.node != nil {
		p.node.used--
	}
	p.revision.pods = slices.DeleteFunc(p.revision.pods, func(other *pod) bool { return other == p })
}

// pendingReason returns, in one line, why a pod is not bound.
func (c *cluster) pendingReason(p *pod) string {
	if p.revision.workload.gated {
		return "gated"
	}
	_, options := c.evaluate(p)
	nodes := map[string]int{}
	for _, o := range options {
		if o.refusal != "" {
			nodes[o.refusal]++
		}
	}
	var parts []string
	for _, refusal := range slices.Sorted(maps.Keys(nodes)) {
		parts = append(parts, fmt.Sprintf("%d x %s", nodes[refusal], refusal))
	}
	return cmp.Or(strings.Join(parts, "; "), "no nodes")
}

// victims returns the names of the nodes that become feasible for a pod if one pod of lower
// priority is evicted.
func (c *cluster) victims(p *pod) (names []string) {
	plan, options := c.evaluate(p)
	for _, o := range options {
		for _, w := range c.workloads {
			for _, r := range w.revisions {
				for _, victim := range r.pods {
					if victim.node != o.node || w.priority >= p.revision.workload.priority {
						continue
					}
					own := count(r == p.revision)
					freed := own * count(o.node.capacity.Type == decision.Spot)
					evicts := o.node.capacity.Type == decision.Spot || !plan.Overflows()
					if evicts && plan.Admit(o.node.decisionNode(), -freed, o.siblings.InPool-own) == decision.Admitted && !slices.Contains(names, o.node.name) {
						names = append(names, o.node.name)
					}
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
