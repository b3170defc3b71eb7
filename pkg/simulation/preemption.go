package simulation

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The reasons that Replace returns with a node on which the scheduler would preempt pods of lower
// priority. By convention, pods of negative priority are placeholders that only reserve room.
const (
	AfterPlaceholders = "after the preemption of placeholders (pods of negative priority)"
	AfterPreemption   = "after the preemption of pods of lower priority"
)

// victims are the pods that the scheduler would preempt on a node.
type victims struct {
	// pods are sorted by importance, the most important first. leaving pods are terminating.
	pods, leaving []*snapshot.Pod
	// violations is the number of pods whose PodDisruptionBudgets allow no disruption.
	violations int
	// enough reports whether the pod fits after the preemption.
	enough bool

	version, charges int // of the site and the Room when the victims were chosen
}

// preempt returns the node on which the scheduler would preempt pods for p, a pod of class c. It
// returns nil if there is none. examined is false if the time of the Room ended during the search.
// find must have found no node for the same pod. A replica beyond the floor preempts nothing on
// on-demand.
func (r *Room) preempt(p *snapshot.Pod, c *class, plan *decision.Plan) (best *site, preempted *victims, examined bool) {
	priority := corev1.PodPriority(p.Pod)
	if p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == v1.PreemptNever || priority <= r.lowestPriority() {
		return nil, nil, true
	}
	left := maxCandidates
	for _, placeholders := range []bool{true, false} {
		for _, g := range r.ranked {
			if plan != nil && plan.Overflows() && g.facts.Capacity.Type == decision.OnDemand {
				continue
			}
			if r.expired() {
				return nil, nil, false
			}
			for _, at := range g.sites {
				if at.lowest >= priority || (at.lowest < 0) != placeholders || best != nil && !r.mayImprove(at, best, preempted) || !r.enough(at, c, priority) {
					continue
				}
				v := r.victimsOn(at, c, priority)
				if !v.enough {
					continue
				}
				if order := compareVictims(v, preempted); best == nil || order < 0 || order == 0 && at.index < best.index {
					best, preempted = at, v
				}
				if left--; left == 0 || left%64 == 0 && r.expired() {
					return best, preempted, true
				}
			}
		}
	}
	return best, preempted, true
}

// maxCandidates is the number of nodes with enough victims after which the search ends. The
// scheduler ends its search after at least as many. Nodes with placeholders are searched first.
const maxCandidates = 100

// mayImprove reports whether the victims on the node may be better than those on best: at least one
// pod of the node's lowest priority, unless terminating pods are enough.
func (r *Room) mayImprove(at, best *site, preempted *victims) bool {
	if preempted.violations > 0 || at.leaving {
		return true
	}
	order := cmp.Or(cmp.Compare(int64(at.lowest), preempted.highest()), cmp.Compare(relative(at.lowest), preempted.sum()))
	return order < 0 || order == 0 && at.index < best.index
}

// enough reports whether the node has the resources for a pod of class c without its pods of lower
// priority. It reads the pods of the node again only if they or the priority have changed.
func (r *Room) enough(at *site, c *class, priority int32) bool {
	if at.without == nil || at.withoutFor != priority || at.withoutVersion != at.version {
		at.measure()
		at.without, at.withoutFor, at.withoutVersion = at.free.Clone(), priority, at.version
		for _, p := range at.Pods {
			if r.preemptible(p, priority) {
				at.without.Add(p.Requests, 1)
			}
		}
	}
	return at.without.Covers(&c.needs) && c.suits(at)
}

// preemptible reports whether the pod has a lower priority, and is still on its node. A pod that
// may never end is not preemptible.
func (r *Room) preemptible(p *snapshot.Pod, priority int32) bool {
	return corev1.PodPriority(p.Pod) < priority && len(r.changes.moved[p]) == 0 && !p.Overdue(r.now)
}

// lowestPriority returns the lowest priority of a pod on an open node. The first call computes it
// for each node.
func (r *Room) lowestPriority() int32 {
	if r.lowest == nil {
		r.lowest = new(int32(math.MaxInt32))
		for i := range r.sites {
			at := &r.sites[i]
			at.lowest = math.MaxInt32
			for _, p := range at.Pods {
				at.lowest, at.leaving = min(at.lowest, corev1.PodPriority(p.Pod)), at.leaving || p.DeletionTimestamp != nil
			}
			if at.group != nil {
				*r.lowest = min(*r.lowest, at.lowest)
			}
		}
	}
	return *r.lowest
}

// compareVictims orders victims as the scheduler does. The pods of the smaller ones are preempted.
func compareVictims(a, b *victims) int {
	if b == nil {
		return -1
	}
	return cmp.Or(cmp.Compare(a.violations, b.violations), cmp.Compare(a.highest(), b.highest()), cmp.Compare(a.sum(), b.sum()))
}

// highest returns the highest priority of the pods, or less than any priority if there are none.
func (v *victims) highest() int64 {
	if len(v.pods) == 0 {
		return math.MinInt64
	}
	return int64(corev1.PodPriority(v.pods[0].Pod))
}

// sum returns the sum of the relative priorities.
func (v *victims) sum() (total int64) {
	for _, p := range v.pods {
		total += relative(corev1.PodPriority(p.Pod))
	}
	return total
}

// relative returns a priority relative to the lowest one, so that a sum is lower with fewer pods.
func relative(priority int32) int64 { return int64(priority) - math.MinInt32 }

// victimsOn returns the pods that the scheduler would preempt on the node for a pod of class c. As
// in the scheduler, pods are spared one by one: first those whose preemption violates a
// PodDisruptionBudget, then the most important ones. Pods that have left the node in this
// simulation are no victims.
func (r *Room) victimsOn(at *site, c *class, priority int32) *victims {
	if known := c.victims[at]; known != nil && c.terms == nil && known.version == at.version && known.charges == r.charges {
		return known
	}
	v := &victims{version: at.version, charges: r.charges}
	if c.victims == nil {
		c.victims = map[*site]*victims{}
	}
	c.victims[at] = v
	for _, p := range at.Pods {
		switch {
		case !r.preemptible(p, priority):
		case p.DeletionTimestamp == nil:
			v.pods = append(v.pods, p)
		default:
			v.leaving = append(v.leaving, p)
		}
	}
	if len(v.pods)+len(v.leaving) == 0 {
		return v
	}
	slices.SortStableFunc(v.pods, func(a, b *snapshot.Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.Pod), corev1.PodPriority(a.Pod)), startOf(a).Compare(startOf(b).Time))
	})
	removed := func(by int) {
		for _, p := range slices.Concat(v.pods, v.leaving) {
			r.occupy(at, p, by, c.terms != nil)
		}
	}
	removed(-1)
	defer removed(1) // the pods that are not spared
	if v.enough, _ = c.fits(at); v.enough {
		r.spare(at, c, v)
	}
	return v
}

// spare returns to the node the pods that need not be preempted, and removes them from v.
func (r *Room) spare(at *site, c *class, v *victims) {
	violates := r.violations(v.pods)
	for _, first := range []bool{true, false} {
		v.pods = slices.DeleteFunc(v.pods, func(p *snapshot.Pod) bool {
			if violates[p] != first {
				return false
			}
			r.occupy(at, p, 1, c.terms != nil)
			if fits, _ := c.fits(at); fits {
				return true
			}
			r.occupy(at, p, -1, c.terms != nil)
			if first {
				v.violations++
			}
			return false
		})
	}
}

// startOf returns when the pod was started, by the kubelet if it is known.
func startOf(p *snapshot.Pod) *metav1.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime
	}
	return &p.CreationTimestamp
}

// violations returns the pods, the most important first, whose preemption would violate a
// PodDisruptionBudget.
func (r *Room) violations(pods []*snapshot.Pod) map[*snapshot.Pod]bool {
	violates, charged := map[*snapshot.Pod]bool{}, map[*policyv1.PodDisruptionBudget]int32{}
	for _, p := range pods {
		for _, budget := range r.budgetsOf(p) {
			charged[budget]++
			violates[p] = violates[p] || charged[budget] > budget.Status.DisruptionsAllowed-r.charged[budget]
		}
	}
	return violates
}

// budgetsOf returns the PodDisruptionBudgets that select the pod.
func (r *Room) budgetsOf(p *snapshot.Pod) (selecting []*policyv1.PodDisruptionBudget) {
	for _, budget := range r.budgets[p.Namespace] {
		if workload.Selector(budget.Spec.Selector).Matches(labels.Set(p.Labels)) {
			selecting = append(selecting, budget)
		}
	}
	return selecting
}

// occupy adds what a pod of the node occupies there (by 1) or removes it (by -1). count includes
// the terms of other pods, which is expensive.
func (r *Room) occupy(at *site, p *snapshot.Pod, by int, count bool) {
	at.free.Add(p.Requests, int64(-by))
	used := at.usedPorts()
	for _, port := range hostPorts(p.Pod) {
		if by > 0 {
			used.Add(port.HostIP, string(port.Protocol), port.HostPort)
		} else {
			used.Remove(port.HostIP, string(port.Protocol), port.HostPort)
		}
	}
	if count {
		r.changes.count(p, at.Node, by)
	}
}

// evict removes the victims from the node for the rest of the simulation.
func (r *Room) evict(at *site, v *victims) {
	for _, p := range slices.Concat(v.pods, v.leaving) {
		r.occupy(at, p, -1, true)
		r.changes.record(p, at.Node, -1)
		if p.Live() {
			r.distributionOf(cmp.Or(p.Revision, p.ReleasedFrom)).add(at, -1)
		}
	}
	for _, p := range v.pods {
		for _, budget := range r.budgetsOf(p) {
			r.charged[budget]++
			r.charges++
		}
	}
	// Smaller pods may have room on the node again.
	for _, equal := range r.classes {
		for _, c := range equal {
			c.next[at.group.index] = 0
		}
	}
}

// reason returns the reason that Replace returns with the node.
func (v *victims) reason() string {
	switch {
	case len(v.pods) == 0:
		return ""
	case corev1.PodPriority(v.pods[0].Pod) < 0:
		return AfterPlaceholders
	}
	return AfterPreemption
}
