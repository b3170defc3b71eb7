package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// window is the time for which the scheduler may still act on a value after the value
	// changed.
	window = 2 * time.Second
	// settle is the time between a binding and its check, so that slower watches can deliver
	// earlier changes.
	settle = 3 * time.Second
	// clockTolerance is the time by which a wait may seem too short, because its start was
	// written or delivered late. The scheduler writes the condition some time after it has read
	// its clock.
	clockTolerance = time.Second
)

// BreachKind is one way to break the policy.
type BreachKind string

const (
	// OverBudget means that a revision has more pods on spot than its budget.
	OverBudget BreachKind = "over budget"
	// OrdinalOnSpot means that a StatefulSet's ordinal below the floor is on spot.
	OrdinalOnSpot BreachKind = "ordinal on spot"
	// OverPoolCap means that a revision has more pods in a spot pool than maxPerPool.
	OverPoolCap BreachKind = "over pool cap"
	// Overflow means that a replica beyond the floor is on on-demand although overflow is Never.
	Overflow BreachKind = "overflow"
	// UnknownOwner means that a pod is on spot although the number of its workload's replicas is
	// unknown.
	UnknownOwner BreachKind = "unknown owner"
	// YoungNode means that a floor pod is on a node that may still get its capacity label.
	YoungNode BreachKind = "young node"
	// SignalledNode means that a pod was bound to a node with an interruption signal.
	SignalledNode BreachKind = "signalled node"
	// Rebound means that the node of a pod changed.
	Rebound BreachKind = "rebound"
)

// Breach is one binding that the policy forbids.
type Breach struct {
	Kind BreachKind
	At   time.Time // of the binding, as seen by the watch
	Pod  string    // namespace/name
	Node string
	// Detail contains the numbers and the observations behind them, for a person.
	Detail string
}

func (b Breach) String() string {
	return fmt.Sprintf("breach (%s): pod %s bound to node %s at %s: %s", b.Kind, b.Pod, b.Node, clock(b.At), b.Detail)
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// binding is a pod that the scheduler bound to a node.
type binding struct {
	pod    *pod
	node   string
	before string    // an earlier node of the pod, normally ""
	seen   stamp     // when the watch delivered it
	at     time.Time // earliest possible time, not after seen
}

// from returns the start of the window in which a value justifies the binding.
func (b binding) from() time.Time { return b.at.Add(-window) }

// settle checks the bindings whose settling time has passed.
func (c *core) settle(now time.Time) {
	for len(c.bindings) > 0 && !now.Before(c.bindings[0].seen.at.Add(settle)) {
		if breach := c.breachOf(c.bindings[0]); breach != nil {
			c.findings = append(c.findings, *breach)
		}
		c.bindings = c.bindings[1:]
	}
}

// checksPending reports whether a pending binding or move may turn out to be a finding.
func (c *core) checksPending() bool {
	return len(c.moves.pairs) > 0 || len(c.nodeChanges) > 0 || slices.ContainsFunc(c.bindings, func(b binding) bool {
		n := c.nodes[b.node]
		return n == nil || len(n.facts) == 0 || c.breachOf(b) != nil
	})
}

// breachOf returns the breach if the binding is one, and nil otherwise.
func (c *core) breachOf(b binding) *Breach {
	p := b.pod
	breach := &Breach{At: b.seen.at, Pod: p.name(), Node: b.node}
	if b.before != "" {
		breach.Kind, breach.Detail = Rebound, "it was on node "+b.before
		return breach
	}
	if p.member.kind == noOpinion || p.member.kind == released {
		return nil
	}
	facts := c.factsDuring(b.node, b.from(), b.seen)
	if since, signal := signalledSince(facts); signal != "" && since.Before(b.from()) {
		breach.Kind, breach.Detail = SignalledNode, fmt.Sprintf("the node has had a signal since %s: %s", clock(since), signal)
		return breach
	}
	target := c.targetKind(facts, b)
	deny := c.deny
	if target == onDemandTarget {
		if !c.certainlyOnDemand(facts, b) {
			return nil
		}
		deny = c.denyOverflow
	}
	var denials []string
	for _, r := range c.readings(p, b.from(), b.seen) {
		kind, denial := deny(r, b, target)
		if denial == "" {
			return nil
		}
		breach.Kind = kind
		if !slices.Contains(denials, denial) {
			denials = append(denials, denial)
		}
	}
	breach.Detail = strings.Join(denials, "; or before: ") + "; " + c.history(p, b)
	return breach
}

// factsDuring returns the node's facts in the window, without the times at which the node did not
// exist.
func (c *core) factsDuring(name string, from time.Time, to stamp) []entry[nodeFacts] {
	n := c.nodes[name]
	if n == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.facts.during(from, to)), func(e entry[nodeFacts]) bool { return !e.value.exists })
}

// signalledSince returns the start of the first of the facts, and its signal. The signal is "" if
// one of the facts has none.
func signalledSince(facts []entry[nodeFacts]) (time.Time, string) {
	if len(facts) == 0 || slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool { return e.value.signal == "" }) {
		return time.Time{}, ""
	}
	return facts[0].since.at, facts[len(facts)-1].value.signal
}

type targetKind int

const (
	onDemandTarget targetKind = iota
	spotTarget
	youngTarget
)

// targetKind returns how the policy treats the node throughout the window.
func (c *core) targetKind(facts []entry[nodeFacts], b binding) targetKind {
	if len(facts) == 0 {
		return onDemandTarget
	}
	allSpot := !slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool { return !e.value.spot })
	if allSpot {
		return spotTarget
	}
	if slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool { return e.value.spot || e.value.labelled }) {
		return onDemandTarget
	}
	grace := c.shortestGrace(b.from(), b.seen)
	// creationTimestamp has whole seconds: the node may be up to one second younger, never older.
	if b.seen.at.Before(facts[0].value.created.Add(grace)) {
		return youngTarget
	}
	return onDemandTarget
}

func (c *core) shortestGrace(from time.Time, to stamp) time.Duration {
	policies := c.policies.during(from, to)
	return slices.MinFunc(policies, func(a, b entry[*Policy]) int {
		return int(a.value.labelGrace - b.value.labelGrace)
	}).value.labelGrace
}

// deny returns the reason for which a reading forbids the binding, and "" if the reading allows
// it.
func (c *core) deny(r reading, b binding, target targetKind) (BreachKind, string) {
	p := b.pod
	if !r.known {
		return UnknownOwner, fmt.Sprintf("its owner %s %s, or that object's owner, is unknown", p.controllerKind(), p.member.name)
	}
	if r.anyway || r.exempt || r.granted || r.exemptions == "Allow" && c.excludes(p.object, false) ||
		c.waitedForFallback(r, p, b.seen.at.Add(clockTolerance)) || c.relievedAt(r, b) {
		return "", ""
	}
	kind := OverBudget
	if target == youngTarget {
		kind = YoungNode
	}
	workload := fmt.Sprintf("%s %s (desired %d, floor %d)", r.kind, r.name, r.desired, r.floor)
	others := c.onSpot(p, b.from(), b.seen)
	if ordinal, ok := r.ordinal(p.object.Name); ok {
		if ordinal >= r.start && ordinal < r.start+r.floor {
			if target == spotTarget {
				kind = OrdinalOnSpot
			}
			return kind, fmt.Sprintf("ordinal %d of %s must be on on-demand: ordinals %d to %d", ordinal, workload, r.start, r.start+r.floor-1)
		}
	} else if len(others) >= r.budget() {
		return kind, fmt.Sprintf("%d on spot with this pod, but the budget of %s is %d; the others: %s",
			len(others)+1, workload, r.budget(), describe(others))
	}
	if r.maxPerPool == nil || target != spotTarget {
		return "", ""
	}
	most := max(1, r.maxPerPool.count(r.desired))
	pool := c.poolDuring(b.node, b.from(), b.seen)
	inPool := slices.DeleteFunc(others, func(q *pod) bool {
		return pool == "" || c.poolDuring(q.node, b.from(), b.seen) != pool
	})
	if len(inPool) >= most {
		return OverPoolCap, fmt.Sprintf("%d in pool %s with this pod, but %s may have %d; the others: %s",
			len(inPool)+1, pool, workload, most, describe(inPool))
	}
	return "", ""
}

// certainlyOnDemand reports whether the scheduler must have seen the node as on-demand throughout
// the window.
func (c *core) certainlyOnDemand(facts []entry[nodeFacts], b binding) bool {
	policies := c.policies.during(b.from(), b.seen)
	grace := slices.MaxFunc(policies, func(a, b entry[*Policy]) int { return int(a.value.labelGrace - b.value.labelGrace) }).value.labelGrace
	return len(facts) > 0 && !slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool {
		// creationTimestamp has whole seconds.
		return e.value.spot || !e.value.labelled && b.from().Before(e.value.created.Add(grace+time.Second))
	})
}

// denyOverflow is deny for a binding to on-demand. Only overflow Never forbids such a binding.
func (c *core) denyOverflow(r reading, b binding, _ targetKind) (BreachKind, string) {
	others := c.onCapacity(b.pod, b.from(), b.seen, false)
	if !r.known || r.hardSpread || !r.beyondFloor(b.pod.object.Name, len(others)) || c.excludes(b.pod.object, true) {
		return "", ""
	}
	return Overflow, fmt.Sprintf("the pod is beyond the floor of %s %s (desired %d, floor %d) with overflow Never; the others on "+
		"on-demand: %s",
		r.kind, r.name, r.desired, r.floor, describe(others))
}

// beyondFloor reports whether overflow Never forbids on-demand for the pod if `onDemand` other
// pods of its revision are there.
func (r reading) beyondFloor(podName string, onDemand int) bool {
	if r.overflow != "Never" || r.onlyOnDemand {
		return false
	}
	if ordinal, ok := r.ordinal(podName); ok {
		return r.floor == 0 || ordinal >= r.start+r.floor
	}
	return onDemand >= r.floor
}

// waitedForFallback reports whether the pod had waited for at least fallbackAfter.
func (c *core) waitedForFallback(r reading, p *pod, now time.Time) bool {
	return !p.unschedulableSince.IsZero() && now.Sub(p.unschedulableSince) >= r.fallbackAfter
}

// relievedAt reports whether the pod had waited for at least rolloutRelief for on-demand capacity
// that another revision of its Deployment used.
func (c *core) relievedAt(r reading, b binding) bool {
	p := b.pod
	if p.unschedulableSince.IsZero() || b.seen.at.Add(clockTolerance).Sub(p.unschedulableSince) < r.rolloutRelief {
		return false
	}
	own := c.owners[p.member.revision]
	if own == nil {
		return false
	}
	for uid := range c.siblings[own.facts.last().parent()] {
		if uid == p.member.revision {
			continue
		}
		for _, q := range c.revisions[uid] {
			if !q.occupied(b) {
				continue
			}
			if slices.ContainsFunc(c.factsDuring(q.node, b.from(), b.seen), func(e entry[nodeFacts]) bool { return !e.value.spot }) {
				return true
			}
		}
	}
	return false
}

// occupied reports whether the pod used resources of a node at any time in the window of a
// binding.
func (p *pod) occupied(b binding) bool {
	return p.node != "" && !p.bound.after(b.seen) && (p.deleted.IsZero() || p.deleted.After(b.from()))
}

// onSpot returns the other pods of p's revision that were on spot throughout the window and
// counted at its end, ordered by name. A pod that was released and returned within the window does
// not count: the scheduler may not have seen its return.
func (c *core) onSpot(p *pod, from time.Time, to stamp) []*pod {
	return c.onCapacity(p, from, to, true)
}

// onCapacity is onSpot for either capacity type.
func (c *core) onCapacity(p *pod, from time.Time, to stamp, spot bool) []*pod {
	var out []*pod
	for _, q := range c.revisions[p.member.revision] {
		if q == p || q.node == "" || q.bound.after(to) || q.joined.After(from) || (!q.live() && !q.ended.after(to)) {
			continue
		}
		if c.throughout(q.node, from, to, spot) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b *pod) int {
		return strings.Compare(a.name()+string(a.uid), b.name()+string(b.uid))
	})
	return out
}

// throughout reports whether a node existed as spot, or as on-demand, for the whole window, or
// since its creation within the window.
func (c *core) throughout(name string, from time.Time, to stamp, spot bool) bool {
	n := c.nodes[name]
	if n == nil {
		return false
	}
	facts := n.facts.during(from, to)
	return len(facts) > 0 && !slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool { return !e.value.exists || e.value.spot != spot })
}

// poolDuring returns the node's pool, or "" if it changed in the window.
func (c *core) poolDuring(name string, from time.Time, to stamp) string {
	facts := c.factsDuring(name, from, to)
	if len(facts) == 0 || slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool { return e.value.pool != facts[0].value.pool }) {
		return ""
	}
	return facts[0].value.pool
}

func describe(pods []*pod) string {
	if len(pods) == 0 {
		return "none"
	}
	var out []string
	for _, p := range pods {
		out = append(out, fmt.Sprintf("%s on %s since %s", p.object.Name, p.node, clock(p.bound.at)))
	}
	return strings.Join(out, ", ")
}

// history describes the pod's waiting time for the message.
func (c *core) history(p *pod, b binding) string {
	if p.unschedulableSince.IsZero() {
		return "the scheduler had not found it unschedulable before"
	}
	return fmt.Sprintf("first found unschedulable at %s, %s before", clock(p.unschedulableSince),
		b.seen.at.Sub(p.unschedulableSince).Round(time.Millisecond))
}
