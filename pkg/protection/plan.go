// Package protection keeps a PodDisruptionBudget for each Deployment that asks for one, so that whoever drains a node has to wait until the
// controller has replaced the pods there (package migration, Drain). It also makes sure that no drain waits for ever: Planner relaxes the
// budget of a Deployment that the controller cannot help, and package withdrawal deletes all budgets while no controller runs.
package protection

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// Settings are what a plan depends on besides the cluster. The zero Settings keep no budget.
type Settings struct {
	// Assist: the controller replaces pods on nodes that somebody else drains. Without that no budget is kept. Cordons: also on cordoned nodes.
	Assist, Cordons bool
	// Reclaim: the controller empties nodes with a reclaim signal.
	Reclaim bool
	// Patience is how long a budget holds a pod on a drained node that the controller does not replace. After twice that time it holds none.
	Patience time.Duration
	// Selects reports whether the pods of a namespace are moved; nil: those of all are.
	Selects func(namespace string) bool
}

// Change is what is to be done to one budget.
type Change struct {
	// Kind is what is done to Budget, which is the object as it is to be, or for Delete as it is.
	Kind   Kind
	Budget *policyv1.PodDisruptionBudget
	// Deployment is what the budget is for; nil if it is gone or does not ask for protection any more.
	Deployment *appsv1.Deployment
	// Why says for a person why the budget allows evictions, or is deleted; "" if it allows none.
	Why string
}

// Kind is what is done to a budget.
type Kind string

// Every Kind there is.
const (
	Create Kind = "create"
	Update Kind = "update"
	Delete Kind = "delete"
)

// Refusal says why a workload that asks for protection has none.
type Refusal struct {
	Object runtime.Object
	Why    string
}

// Planner plans the budgets. It remembers since when pods have waited on drained nodes. A controller that has just started has them wait for
// Patience anew.
type Planner struct {
	settings Settings
	// waiting are the protected pods on drained nodes and those whose eviction is requested, released ones included, with since when.
	waiting map[types.UID]time.Time
	// refused is why the workloads, by their UID, have no budget; told once.
	refused map[types.UID]string
	// uncounted has the Deployments whose budgets Kubernetes fails to evaluate, by UID.
	uncounted map[types.UID]uncounted
}

// uncounted is since when the disruption controller has failed to count the pods of a budget, and its
// error. Such a budget allows no eviction, whatever its maxUnavailable is.
type uncounted struct {
	since time.Time
	why   string
}

// The controller deletes a budget if Kubernetes did not count its pods within countWithin, and
// creates it again after countAgain. It cannot find the cause itself: the informer has no completed
// pods, such as those of a Job, and Kubernetes counts them.
const countWithin, countAgain = 30 * time.Second, time.Hour

// NewPlanner returns a Planner that has seen nothing.
func NewPlanner(settings Settings) *Planner {
	return &Planner{settings: settings, waiting: map[types.UID]time.Time{}, refused: map[types.UID]string{}, uncounted: map[types.UID]uncounted{}}
}

// Plan returns what is to be done to budgets, the most urgent first, and the workloads that have lost their claim to one since the last Plan,
// or never had it.
//
// A Deployment that asks for protection has a budget of ours unless another PodDisruptionBudget selects its pods, because the API server evicts
// no pod that two select, or its selector also selects pods of another workload. The budget allows no eviction, or those that allows says.
//
// requested are pods whose eviction somebody waits for, whatever becomes of their node.
func (p *Planner) Plan(s *cluster.Snapshot, requested map[types.UID]bool) ([]Change, []Refusal) {
	r := &round{
		Planner: p, snapshot: s, neverSurges: migration.NeverSurges(s), waits: map[*cluster.Workload][]wait{},
		wanted: map[types.NamespacedName]Change{}, refused: map[types.UID]string{},
	}
	r.observe(requested)
	p.observeCounts(s)
	if p.settings.Assist {
		for _, w := range s.Workloads {
			r.claim(w)
		}
	}
	for _, budgets := range s.Budgets {
		for _, has := range budgets {
			r.compare(has)
		}
	}
	for _, create := range r.wanted {
		r.changes = append(r.changes, create)
	}
	p.refused = r.refused
	return inTurn(r.changes), r.refusals
}

// inTurn orders changes: changes that may block a drain come before the rest. Among equals the first
// change of each namespace comes before the second of any. A round makes few changes, and one
// namespace may have thousands, or a quota that rejects all of its budgets.
func inTurn(changes []Change) []Change {
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(a.Budget.Namespace, b.Budget.Namespace), cmp.Compare(a.Budget.Name, b.Budget.Name))
	})
	type place struct {
		rank      int
		namespace string
	}
	type turn struct {
		Change
		number int
	}
	turns, next := make([]turn, len(changes)), map[place]int{}
	for i, c := range changes {
		at := place{c.rank(), c.Budget.Namespace}
		turns[i] = turn{c, next[at]}
		next[at]++
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Or(a.rank()-b.rank(), a.number-b.number) })
	for i, t := range turns {
		changes[i] = t.Change
	}
	return changes
}

// rank is 0 if a drain may wait for the change, else 1.
func (c *Change) rank() int {
	if c.Kind == Delete || c.Kind == Update && c.Why != "" {
		return 0
	}
	return 1
}

// wait is a pod whose eviction a drain or a request waits for. since is when that began, or when the
// pod was released, because its replacement starts then.
type wait struct {
	pod   *cluster.Pod
	since time.Time
}

// round is one run of Plan.
type round struct {
	*Planner
	snapshot    *cluster.Snapshot
	neverSurges func(*cluster.Pod) string
	// waits are the pods whose eviction is waited for, by workload.
	waits    map[*cluster.Workload][]wait
	overlaps *overlaps // of the namespace of the last workload that asked; nil at first
	// wanted are the budgets that are to be, as they would be created.
	wanted   map[types.NamespacedName]Change
	changes  []Change
	refused  map[types.UID]string
	refusals []Refusal
}

// claim decides whether a workload is to have a budget, and which.
func (r *round) claim(w *cluster.Workload) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	if !w.Settings.Protect || w.Desired == 0 || r.settings.Selects != nil && !r.settings.Selects(w.Namespace) {
		return
	}
	if w.Deployment == nil {
		// A rule may ask for it by namespace, and then means Deployments.
		if set := w.StatefulSet; set != nil && set.Annotations[decision.ProtectAnnotation] != "" {
			r.refuse(set, set.UID, "a pod of a StatefulSet cannot be replaced before it is evicted")
		}
		return
	}
	if w.Deployment.DeletionTimestamp != nil {
		return
	}
	if r.overlaps == nil || r.overlaps.namespace != w.Namespace {
		r.overlaps = findOverlaps(r.snapshot, w.Namespace)
	}
	if other := r.overlaps.of(w); other != "" {
		r.refuse(w.Deployment, w.Deployment.UID, other)
		return
	}
	if failed, ok := r.uncounted[w.Deployment.UID]; ok && r.snapshot.Now.Sub(failed.since) >= countWithin {
		r.refuse(w.Deployment, w.Deployment.UID, fmt.Sprintf("Kubernetes cannot count the pods that its selector selects: %.256s", failed.why))
		return
	}
	allowed, why := r.allows(w)
	budget := newBudget(w.Deployment, allowed)
	r.wanted[nameOf(budget)] = Change{Create, budget, w.Deployment, why}
}

func (r *round) refuse(object runtime.Object, uid types.UID, why string) {
	r.refused[uid] = why
	if r.Planner.refused[uid] != why {
		r.refusals = append(r.refusals, Refusal{object, why})
	}
}

// compare compares a budget with what is wanted under its name.
func (r *round) compare(has *policyv1.PodDisruptionBudget) {
	name := nameOf(has)
	want, ok := r.wanted[name]
	delete(r.wanted, name)
	switch {
	case !kube.OwnBudget(has):
		if ok {
			r.refuse(want.Deployment, want.Deployment.UID, fmt.Sprintf("the PodDisruptionBudget %s is not the controller's", has.Name))
		}
	case !ok || !metav1.IsControlledBy(has, want.Deployment):
		r.changes = append(r.changes, Change{Kind: Delete, Budget: has, Why: "no Deployment is to have it"})
	case !equality.Semantic.DeepEqual(has.Spec, want.Budget.Spec):
		want.Kind, want.Budget.UID, want.Budget.ResourceVersion = Update, has.UID, has.ResourceVersion
		r.changes = append(r.changes, want)
	}
}

// observe finds out which pods are waited for.
func (r *round) observe(requested map[types.UID]bool) {
	waiting := map[types.UID]time.Time{}
	for _, n := range r.snapshot.Nodes {
		drained := r.drainOf(n) != notDrained
		for _, pod := range n.Pods {
			if !drained && !requested[pod.UID] {
				continue
			}
			workload, since := pod.Workload, r.snapshot.Now
			if pod.ReleasedFrom != nil { // it may be given back, and has waited all the same
				workload, since = pod.ReleasedFrom.Workload, pod.Release.At
			}
			if workload == nil || !workload.Settings.Protect {
				continue
			}
			if known, ok := r.waiting[pod.UID]; ok {
				since = known
			}
			waiting[pod.UID] = since
			if pod.ReleasedFrom != nil {
				since = pod.Release.At
			}
			r.waits[workload] = append(r.waits[workload], wait{pod, since})
		}
	}
	r.waiting = waiting
}

// observeCounts records the budgets whose pods Kubernetes fails to count.
func (p *Planner) observeCounts(s *cluster.Snapshot) {
	maps.DeleteFunc(p.uncounted, func(_ types.UID, u uncounted) bool { return s.Now.Sub(u.since) >= countAgain })
	for _, budgets := range s.Budgets {
		for _, budget := range budgets {
			owner := metav1.GetControllerOfNoCopy(budget)
			if !kube.OwnBudget(budget) || owner == nil {
				continue
			}
			allowed := meta.FindStatusCondition(budget.Status.Conditions, policyv1.DisruptionAllowedCondition)
			if allowed == nil || allowed.Reason != policyv1.SyncFailedReason {
				delete(p.uncounted, owner.UID)
			} else if _, known := p.uncounted[owner.UID]; !known {
				p.uncounted[owner.UID] = uncounted{s.Now, allowed.Message}
			}
		}
	}
}

// drain is what budgets need to know of a node.
type drain int

const (
	notDrained drain = iota // nobody drains it, or the controller itself empties it
	assisted                // somebody else drains it, and the controller replaces pods there first
	alone                   // somebody else may drain it, and the controller does not help
)

// drainOf returns what a node's signals come to.
func (p *Planner) drainOf(n *cluster.Node) drain {
	switch {
	case n.Facts.Signal == decision.Reclaim && !p.settings.Reclaim:
		return alone
	case n.Facts.Signal == decision.Reclaim:
		return notDrained
	case n.Facts.Signal == decision.Drain || n.Spec.Unschedulable && p.settings.Cordons:
		return assisted
	case n.Spec.Unschedulable:
		return alone
	}
	return notDrained
}

var (
	none = intstr.FromInt32(0)
	one  = intstr.FromInt32(1)
	all  = intstr.FromString("100%")
)

// allows returns how many pods of a Deployment its budget lets be missing, and why they are not none. It is
//
//   - none while each of its pods can be replaced first;
//   - one if none of its pods ever can, or if one of them has waited for Patience. A released pod
//     waits for Patience and minReadySeconds from its release on. Even if its replacement is ready,
//     the budget allows no eviction while other replicas are not ready;
//   - all if that is twice as long, or the controller does not help on its node.
func (r *round) allows(w *cluster.Workload) (allowed intstr.IntOrString, why string) {
	allowed = none
	for _, revision := range w.Revisions {
		if len(revision.Pods) == 0 || allowed != none {
			continue
		}
		if no := r.neverSurges(revision.Pods[0]); no != "" { // the pods of a revision are alike
			allowed, why = one, "its pods cannot be replaced before they are evicted: "+no
		}
	}
	for _, wait := range r.waits[w] {
		within := r.settings.Patience
		if wait.pod.Release != nil {
			within += time.Duration(w.Deployment.Spec.MinReadySeconds) * time.Second
		}
		waited := r.snapshot.Now.Sub(wait.since)
		switch {
		case r.drainOf(wait.pod.Node) == alone:
			return all, fmt.Sprintf("node %s may be drained, and the controller is configured not to help there", wait.pod.Node.Name)
		case waited >= 2*within:
			return all, notReplaced(wait.pod, 2*within)
		case waited >= within:
			allowed, why = one, notReplaced(wait.pod, within)
		}
	}
	return allowed, why
}

func notReplaced(pod *cluster.Pod, within time.Duration) string {
	outcome := "replaced"
	if pod.Release != nil {
		outcome = "evicted after its release"
	}
	return fmt.Sprintf("pod %s is to leave node %s, and was not %s within %s", pod.Name, pod.Node.Name, outcome, within)
}
