package simulation

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// The reasons that Replace returns with a node on which the scheduler would preempt pods of lower
// priority. By convention, pods of negative priority are placeholders that only reserve room.
const (
	AfterPlaceholders = "after the preemption of placeholders (pods of negative priority)"
	AfterPreemption   = "after the preemption of pods of lower priority"
)

// maxCandidates is the number of nodes with enough victims after which the search ends. The
// scheduler ends its search after at least as many.
const maxCandidates = 100

// preempt evicts the pods that the scheduler would preempt for p, a pod of class c. It returns
// their node, and the reason that Replace returns with it; nil if there is none. examined is false
// if the time of the Room ended during the search. find must have found no node for the same pod. A
// replica beyond the floor preempts nothing on on-demand.
func (r *Room) preempt(p *snapshot.Pod, c *class, plan *decision.Plan) (best *site, why string, examined bool) {
	if p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == v1.PreemptNever {
		return nil, "", true
	}
	priority := corev1.PodPriority(p.Pod)
	var preempted []*snapshot.Pod
	var least []int64
	candidates := 0
	for i, at := range r.byLowestPriority() {
		// From here on, no cost is lower than that of one pod of the lowest priority.
		if at.lowest >= priority || candidates == maxCandidates || best != nil && slices.Compare(at.cost(0, at.lowest), least) >= 0 {
			break
		}
		if i%64 == 0 && r.expired() {
			return nil, "", false
		}
		if !at.group.admitted || plan != nil && plan.Overflows() && at.Facts.Capacity.Type == decision.OnDemand || !r.enough(at, c, priority) {
			continue
		}
		victims, cost := r.victimsOn(at, c, priority)
		if cost == nil {
			continue
		}
		candidates++
		if best == nil || slices.Compare(cost, least) < 0 {
			best, preempted, least = at, victims, cost
		}
	}
	if best != nil {
		why = r.evict(best, preempted)
	}
	return best, why, true
}

// byLowestPriority returns the open nodes with pods by the lowest priority of their pods, then by
// name. A node with a terminating pod is among the first, because it may need no other victim.
func (r *Room) byLowestPriority() []*site {
	if r.byLowest == nil {
		r.byLowest = []*site{}
		for i := range r.sites {
			at := &r.sites[i]
			if at.group == nil || len(at.Pods) == 0 {
				continue
			}
			at.lowest = math.MaxInt32
			for _, p := range at.Pods {
				if at.lowest = min(at.lowest, corev1.PodPriority(p.Pod)); p.DeletionTimestamp != nil {
					at.lowest = math.MinInt32
				}
			}
			r.byLowest = append(r.byLowest, at)
		}
		slices.SortStableFunc(r.byLowest, func(a, b *site) int { return cmp.Compare(a.lowest, b.lowest) })
	}
	return r.byLowest
}

// cost returns what the preemption of pods with these priorities costs on the node. The scheduler
// chooses the lowest cost: by violations of PodDisruptionBudgets, by the highest priority, by the
// sum of the priorities relative to the lowest one, and here also by the node's name.
func (at *site) cost(violations int, priorities ...int32) []int64 {
	highest, sum := int64(math.MinInt64), int64(0)
	for _, priority := range priorities {
		highest, sum = max(highest, int64(priority)), sum+int64(priority)-math.MinInt32
	}
	return []int64{int64(violations), highest, sum, int64(at.index)}
}

// enough reports whether the node has the resources for a pod of class c without its pods of lower
// priority. It caches the sum of the resources until the sum decreases or the priority differs.
func (r *Room) enough(at *site, c *class, priority int32) bool {
	if at.without == nil || at.withoutFor != priority {
		at.without, at.withoutFor = at.unused().Clone(), priority
		for _, p := range at.Pods {
			if r.preemptible(p, priority) {
				at.without.Add(p.Requests, 1)
			}
		}
	}
	return at.without.Covers(&c.Needs) && c.suits(at)
}

// preemptible reports whether the pod has a lower priority, and is still on its node. A pod that
// may never end is not preemptible.
func (r *Room) preemptible(p *snapshot.Pod, priority int32) bool {
	return corev1.PodPriority(p.Pod) < priority && len(r.changes.moved[p]) == 0 && !p.Overdue(r.snapshot.Now)
}

// victimsOn returns the pods that the scheduler would preempt on the node for a pod of class c, and
// their cost. The most important pods are first, and terminating pods, which cost nothing, are
// last. cost is nil if the pod would not fit. As in the scheduler, pods are spared one by one:
// first those whose preemption violates a PodDisruptionBudget, then the most important ones.
func (r *Room) victimsOn(at *site, c *class, priority int32) (all []*snapshot.Pod, cost []int64) {
	var victims, leaving []*snapshot.Pod
	for _, p := range at.Pods {
		switch {
		case !r.preemptible(p, priority):
		case p.DeletionTimestamp == nil:
			victims = append(victims, p)
		default:
			leaving = append(leaving, p)
		}
	}
	slices.SortStableFunc(victims, func(a, b *snapshot.Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.Pod), corev1.PodPriority(a.Pod)), startOf(a).Compare(startOf(b).Time))
	})
	occupy := func(by int, pods ...*snapshot.Pod) {
		for _, p := range pods {
			if at.occupy(p, by); c.terms != nil { // otherwise the counts of other classes do not matter
				r.changes.count(p, at.Node, by)
			}
		}
	}
	occupy(-1, victims...)
	occupy(-1, leaving...)
	defer func() { // the victims that are not spared
		occupy(1, victims...)
		occupy(1, leaving...)
	}()
	if fits, _ := c.fits(at); !fits {
		return nil, nil
	}
	violates, violations := r.violations(victims), 0
	for _, first := range []bool{true, false} {
		victims = slices.DeleteFunc(victims, func(p *snapshot.Pod) bool {
			if violates[p] != first {
				return false
			}
			occupy(1, p)
			if fits, _ := c.fits(at); fits {
				return true
			}
			occupy(-1, p)
			if first {
				violations++
			}
			return false
		})
	}
	var priorities []int32
	for _, p := range victims {
		priorities = append(priorities, corev1.PodPriority(p.Pod))
	}
	return slices.Concat(victims, leaving), at.cost(violations, priorities...)
}

// startOf returns when the pod was started, by the kubelet if it is known.
func startOf(p *snapshot.Pod) *metav1.Time { return cmp.Or(p.Status.StartTime, &p.CreationTimestamp) }

// violations returns the pods, the most important first, whose preemption would violate a
// PodDisruptionBudget.
func (r *Room) violations(pods []*snapshot.Pod) map[*snapshot.Pod]bool {
	violates, charged := map[*snapshot.Pod]bool{}, map[*policyv1.PodDisruptionBudget]int32{}
	for _, p := range pods {
		for _, budget := range r.snapshot.BudgetsOf(p) {
			charged[budget]++
			violates[p] = violates[p] || charged[budget] > budget.Status.DisruptionsAllowed-r.charged[budget]
		}
	}
	return violates
}

// occupy adds what a pod occupies on the node (by 1) or removes it (by -1).
func (at *site) occupy(p *snapshot.Pod, by int) {
	at.unused().Add(p.Requests, int64(-by))
	countPorts(at.usedPorts(), hostPorts(p.Pod), by)
}

// evict removes the victims from the node for the rest of the simulation. It returns the reason
// that Replace returns with the node.
func (r *Room) evict(at *site, victims []*snapshot.Pod) (why string) {
	for _, p := range victims {
		at.occupy(p, -1)
		r.changes.count(p, at.Node, -1)
		r.changes.record(p, at.Node, -1)
		if p.Live() {
			r.distributionOf(p.OwnRevision()).add(at, -1)
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		for _, budget := range r.snapshot.BudgetsOf(p) {
			r.charged[budget]++
		}
		if why == "" { // the most important victim
			why = AfterPreemption
			if corev1.PodPriority(p.Pod) < 0 {
				why = AfterPlaceholders
			}
		}
	}
	// Smaller pods may have room on the node again.
	for _, equal := range r.classes {
		for _, c := range equal {
			c.next[at.group.index] = 0
		}
	}
	return why
}
