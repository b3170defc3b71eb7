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
	for _, g := range r.ranked {
		if plan != nil && plan.Overflows() && g.facts.Capacity.Type == decision.OnDemand {
			continue
		}
		for _, at := range g.sites {
			if at.lowest >= priority {
				continue
			}
			if r.expired() {
				return nil, nil, false
			}
			v := r.victimsOn(at, c, priority)
			if !v.enough {
				continue
			}
			if order := compareVictims(v, preempted); best == nil || order < 0 || order == 0 && at.index < best.index {
				best, preempted = at, v
			}
		}
	}
	return best, preempted, true
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
				at.lowest = min(at.lowest, corev1.PodPriority(p.Pod))
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
	highest := func(v *victims) int64 {
		if len(v.pods) == 0 {
			return math.MinInt64
		}
		return int64(corev1.PodPriority(v.pods[0].Pod))
	}
	sum := func(v *victims) (total int64) {
		for _, p := range v.pods { // relative to the lowest priority, so that fewer pods are better
			total += int64(corev1.PodPriority(p.Pod)) + math.MaxInt32 + 1
		}
		return total
	}
	return cmp.Or(cmp.Compare(a.violations, b.violations), cmp.Compare(highest(a), highest(b)), cmp.Compare(sum(a), sum(b)), cmp.Compare(len(a.pods), len(b.pods)))
}

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
	if !c.suits(at) {
		return v
	}
	at.measure()
	after := at.free.Clone()
	for _, p := range at.Pods {
		switch {
		case corev1.PodPriority(p.Pod) >= priority || len(r.changes.moved[p]) > 0:
			continue
		case p.DeletionTimestamp == nil:
			v.pods = append(v.pods, p)
		case p.Overdue(r.now):
			continue
		default:
			v.leaving = append(v.leaving, p)
		}
		after.Add(p.Requests, 1)
	}
	if len(v.pods)+len(v.leaving) == 0 || !after.Covers(&c.needs) {
		return v
	}
	slices.SortStableFunc(v.pods, func(a, b *snapshot.Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.Pod), corev1.PodPriority(a.Pod)), startOf(a).Compare(startOf(b).Time))
	})
	removed := func(by int) {
		for _, p := range slices.Concat(v.pods, v.leaving) {
			r.occupy(at, p, by)
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
			r.occupy(at, p, 1)
			if fits, _ := c.fits(at); fits {
				return true
			}
			r.occupy(at, p, -1)
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

// occupy adds what a pod of the node occupies there (by 1) or removes it (by -1).
func (r *Room) occupy(at *site, p *snapshot.Pod, by int) {
	at.free.Add(p.Requests, int64(-by))
	used := at.usedPorts()
	for _, port := range hostPorts(p.Pod) {
		if by > 0 {
			used.Add(port.HostIP, string(port.Protocol), port.HostPort)
		} else {
			used.Remove(port.HostIP, string(port.Protocol), port.HostPort)
		}
	}
	r.changes.count(p, at.Node, by)
}

// evict removes the victims from the node for the rest of the simulation.
func (r *Room) evict(at *site, v *victims) {
	for _, p := range slices.Concat(v.pods, v.leaving) {
		r.occupy(at, p, -1)
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
