// Package protection maintains a PodDisruptionBudget for each Deployment that requests one. A drain
// must then wait until the controller has replaced the pods on the node (package migration, Drain).
// The package also guarantees that no drain waits forever: Planner relaxes the budget of a
// Deployment that the controller cannot help, and package failsafe deletes all budgets while no
// controller runs.
//
// In this package a budget is such a PodDisruptionBudget.
package protection

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Settings are the inputs of a plan besides the cluster. With the zero Settings no budget exists.
type Settings struct {
	// Interruption is how the controller reacts to the signals of nodes. Without Drain.Assist no
	// budget exists. If Selects is set, only the selected namespaces have budgets.
	Interruption interruption.Settings
	// ReplacementTimeout is how long a budget blocks the eviction of a pod on a draining node that
	// the controller does not replace. After twice that time it allows all evictions.
	ReplacementTimeout time.Duration
}

// Change is a change of one budget.
type Change struct {
	// Kind is the operation. Budget is the desired object, or the existing object for Delete.
	Kind   Kind
	Budget *policyv1.PodDisruptionBudget
	// Deployment is the Deployment of the budget; nil if it is gone or no longer requests
	// protection.
	Deployment *appsv1.Deployment
	// Why explains to users why the budget allows evictions or is deleted; "" if it allows none.
	Why string
}

// Kind is an operation on a budget.
type Kind string

// All values of Kind.
const (
	Create Kind = "create"
	Update Kind = "update"
	Delete Kind = "delete"
)

// Refusal explains why a workload that requests protection has none.
type Refusal struct {
	Object client.Object
	Why    string
}

// Planner plans the budgets. It remembers since when pods have waited on draining nodes. After a
// restart of the controller, these pods wait for ReplacementTimeout again.
type Planner struct {
	settings Settings
	// waitingSince contains the protected pods on draining nodes, with the time since when they
	// wait. Released pods are included.
	waitingSince map[types.UID]time.Time
	// refused is why workloads, by UID, have no budget. Each reason is reported once.
	refused map[types.UID]string
	// syncFailures contains the Deployments whose budgets Kubernetes fails to evaluate, by
	// namespace and UID. A budget may claim an owner in another namespace.
	syncFailures map[types.NamespacedName]syncFailure
}

// syncFailure is since when the disruption controller has failed to count the pods of a budget, and
// its error. Such a budget allows no eviction, independent of its maxUnavailable.
type syncFailure struct {
	since time.Time
	why   string
}

// The controller deletes a budget if Kubernetes did not count its pods within syncTimeout, and
// creates it again after syncRetry. It cannot find the cause itself: the informer has no completed
// pods, such as pods of a Job, and Kubernetes counts them.
const syncTimeout, syncRetry = 30 * time.Second, time.Hour

// NewPlanner returns a Planner without memory.
func NewPlanner(settings Settings) *Planner {
	return &Planner{settings: settings, waitingSince: map[types.UID]time.Time{}, refused: map[types.UID]string{},
		syncFailures: map[types.NamespacedName]syncFailure{}}
}

// Plan returns the changes of budgets, the most urgent first, and the workloads that have newly
// been refused a budget since the last Plan.
//
// A Deployment that requests protection has a budget, with two exceptions. Another
// PodDisruptionBudget may select its pods, because the API server evicts no pod with two
// PodDisruptionBudgets. Or its selector may also select pods of another workload. The method allows
// decides how many evictions the budget allows.
func (p *Planner) Plan(s *snapshot.Snapshot) ([]Change, []Refusal) {
	r := &round{
		Planner: p, snapshot: s, neverSurges: migration.NoSurgeReason(s), waiting: map[*snapshot.Workload][]*snapshot.Pod{},
		desired: map[types.NamespacedName]Change{}, refused: map[types.UID]string{},
	}
	r.conflicts = sync.OnceValue(func() map[*snapshot.Workload]string { return findConflicts(s) })
	r.observe()
	p.observeSyncFailures(s)
	if p.settings.Interruption.Drain.Assist {
		for _, w := range s.Workloads {
			r.plan(w)
		}
	}
	for _, budgets := range s.Budgets {
		for _, budget := range budgets {
			r.reconcile(budget)
		}
	}
	p.refused = r.refused
	return inOrder(slices.AppendSeq(r.changes, maps.Values(r.desired))), r.refusals
}

func inOrder(changes []Change) []Change {
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(a.Rank()-b.Rank(), cmp.Compare(a.Budget.Namespace, b.Budget.Namespace), cmp.Compare(a.Budget.Name, b.Budget.Name))
	})
	return changes
}

// Rank is 0 if a drain may wait for the change, else 1.
func (c *Change) Rank() int {
	if c.Kind == Delete || c.Kind == Update && c.Why != "" {
		return 0
	}
	return 1
}

type round struct {
	*Planner
	snapshot    *snapshot.Snapshot
	neverSurges func(*snapshot.Pod) string // migration.NoSurgeReason
	// waiting are the pods that a drain or a request waits for, by workload.
	waiting map[*snapshot.Workload][]*snapshot.Pod
	// conflicts returns findConflicts, which is needed only if a workload is protected.
	conflicts func() map[*snapshot.Workload]string
	// desired are the desired budgets, as Create changes.
	desired  map[types.NamespacedName]Change
	changes  []Change
	refused  map[types.UID]string
	refusals []Refusal
}

// plan adds the desired budget of a workload to desired, or refuses it.
func (r *round) plan(w *snapshot.Workload) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	selects := r.settings.Interruption.Selects
	if !w.Settings.Protect || w.Desired == 0 || selects != nil && !selects(w.Namespace) {
		return
	}
	if w.Deployment == nil {
		// A rule that requests protection for a namespace applies to Deployments only.
		if set := w.StatefulSet; set != nil && set.Annotations[spot.ProtectAnnotation] != "" {
			r.refuse(set, "a pod of a StatefulSet cannot be replaced before it is evicted")
		}
		return
	}
	if w.Deployment.DeletionTimestamp != nil {
		return
	}
	if other := r.conflicts()[w]; other != "" {
		r.refuse(w.Deployment, other)
		return
	}
	if failed, ok := r.syncFailures[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Deployment.UID)}]; ok &&
		r.snapshot.Now.Sub(failed.since) >= syncTimeout {
		r.refuse(w.Deployment, fmt.Sprintf("Kubernetes cannot count the pods that its selector selects: %.256s", failed.why))
		return
	}
	allowed, why := r.allows(w)
	budget := newBudget(w.Deployment, allowed)
	r.desired[client.ObjectKeyFromObject(budget)] = Change{Create, budget, w.Deployment, why}
}

func (r *round) refuse(object client.Object, why string) {
	r.refused[object.GetUID()] = why
	if r.Planner.refused[object.GetUID()] != why {
		r.refusals = append(r.refusals, Refusal{object, why})
	}
}

func (r *round) reconcile(existing *policyv1.PodDisruptionBudget) {
	name := client.ObjectKeyFromObject(existing)
	want, ok := r.desired[name]
	delete(r.desired, name)
	switch {
	case !workload.ManagedDisruptionBudget(existing):
		if ok {
			r.refuse(want.Deployment, fmt.Sprintf("PodDisruptionBudget %s does not belong to the controller", existing.Name))
		}
	case !ok || !metav1.IsControlledBy(existing, want.Deployment):
		r.changes = append(r.changes, Change{Kind: Delete, Budget: existing, Why: "no Deployment requires it"})
	case !equality.Semantic.DeepEqual(existing.Spec, want.Budget.Spec):
		want.Kind, want.Budget.UID, want.Budget.ResourceVersion = Update, existing.UID, existing.ResourceVersion
		r.changes = append(r.changes, want)
	}
}

// observe finds the pods that a drain waits for.
func (r *round) observe() {
	waiting := map[types.UID]time.Time{}
	for _, n := range r.snapshot.Nodes {
		if r.drainOf(n) == notDrained {
			continue
		}
		for _, pod := range n.Pods {
			workload, since := pod.Workload, r.snapshot.Now
			if pod.ReleasedFrom != nil { // the time before a restore counts too
				workload, since = pod.ReleasedFrom.Workload, pod.Release.At
			}
			if workload == nil || !workload.Settings.Protect {
				continue
			}
			if known, ok := r.waitingSince[pod.UID]; ok {
				since = known
			}
			waiting[pod.UID] = since
			r.waiting[workload] = append(r.waiting[workload], pod)
		}
	}
	r.waitingSince = waiting
}

func (p *Planner) observeSyncFailures(s *snapshot.Snapshot) {
	maps.DeleteFunc(p.syncFailures, func(_ types.NamespacedName, u syncFailure) bool { return s.Now.Sub(u.since) >= syncRetry })
	for _, budgets := range s.Budgets {
		for _, budget := range budgets {
			owner := metav1.GetControllerOfNoCopy(budget)
			if !workload.ManagedDisruptionBudget(budget) || owner == nil {
				continue
			}
			key := types.NamespacedName{Namespace: budget.Namespace, Name: string(owner.UID)}
			message, failed := workload.SyncFailure(budget)
			if !failed {
				delete(p.syncFailures, key)
			} else if _, known := p.syncFailures[key]; !known {
				p.syncFailures[key] = syncFailure{s.Now, message}
			}
		}
	}
}

type drain int

const (
	notDrained drain = iota // not draining, or the controller itself evicts the pods
	assisted                // a user or a tool drains it, and the controller replaces pods first
	unassisted              // a user or a tool may drain it, and the controller does not help
)

func (p *Planner) drainOf(n *snapshot.Node) drain {
	switch {
	case n.Facts.Signal == decision.Reclaim && !p.settings.Interruption.Interruption.Enabled:
		return unassisted
	case n.Facts.Signal == decision.Reclaim:
		return notDrained
	case p.settings.Interruption.Draining(n, n.Facts.Signal):
		return assisted
	case n.Spec.Unschedulable:
		return unassisted
	}
	return notDrained
}

var (
	none = intstr.FromInt32(0)
	one  = intstr.FromInt32(1)
	all  = intstr.FromString("100%")
)

// allows returns how many pods of a Deployment may be unavailable, and why that is not none. It is
//
//   - none while each pod can be replaced before its eviction;
//   - one if none of its pods can ever be replaced first, or if a pod has waited for
//     ReplacementTimeout. A released pod waits for ReplacementTimeout and minReadySeconds after its
//     release. Even if its replacement is ready, the budget allows no eviction while other replicas
//     are not ready;
//   - all after twice that time, or if the controller does not help on the node.
func (r *round) allows(w *snapshot.Workload) (allowed intstr.IntOrString, why string) {
	allowed = none
	for _, revision := range w.Revisions {
		if len(revision.Pods) == 0 || allowed != none {
			continue
		}
		if no := r.neverSurges(revision.Pods[0]); no != "" { // the pods of a revision are alike
			allowed, why = one, "its pods cannot be replaced before they are evicted: "+no
		}
	}
	for _, pod := range r.waiting[w] {
		since, within := r.waitingSince[pod.UID], r.settings.ReplacementTimeout
		if pod.Release != nil { // its replacement started then
			since = pod.Release.At
			within += time.Duration(w.Deployment.Spec.MinReadySeconds) * time.Second
		}
		waited := r.snapshot.Now.Sub(since)
		switch {
		case r.drainOf(pod.Node) == unassisted:
			return all, fmt.Sprintf("node %s may be drained, and the controller is configured not to replace its pods", pod.Node.Name)
		case waited >= 2*within:
			return all, notReplaced(pod, 2*within)
		case waited >= within:
			allowed, why = one, notReplaced(pod, within)
		}
	}
	return allowed, why
}

func notReplaced(pod *snapshot.Pod, within time.Duration) string {
	outcome := "replaced"
	if pod.Release != nil {
		outcome = "evicted after its release"
	}
	return fmt.Sprintf("pod %s must leave node %s, but was not %s within %s", pod.Name, pod.Node.Name, outcome, within)
}

// newBudget returns the PodDisruptionBudget of a Deployment. The garbage collector deletes it with
// the Deployment.
func newBudget(d *appsv1.Deployment, maxUnavailable intstr.IntOrString) *policyv1.PodDisruptionBudget {
	owner := metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	// BlockOwnerDeletion requires the right to update the finalizers of Deployments
	owner.BlockOwnerDeletion = nil
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + workload.DisruptionBudgetSuffix,
			Labels:          map[string]string{spot.ProtectLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &maxUnavailable,
			Selector:       d.Spec.Selector,
			// Unready pods need no protection.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// Apply performs a change. It updates and deletes only the object that the change was planned for.
// It returns an error if that object is gone or if its name belongs to another object.
func (c *Change) Apply(ctx context.Context, client kubernetes.Interface) error {
	budgets, name := client.PolicyV1().PodDisruptionBudgets(c.Budget.Namespace), c.Budget.Name
	var err error
	switch c.Kind {
	case Create:
		_, err = budgets.Create(ctx, c.Budget, metav1.CreateOptions{})
	case Delete:
		err = budgets.Delete(ctx, name, *metav1.NewPreconditionDeleteOptions(string(c.Budget.UID)))
	case Update:
		var body []byte
		// No resource version, because the disruption controller updates the status frequently.
		body, err = json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": c.Budget.UID},
			{"op": "replace", "path": "/spec", "value": c.Budget.Spec},
		})
		if err == nil {
			_, err = budgets.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("%s of PodDisruptionBudget %s: %w", c.Kind, klog.KObj(c.Budget), err)
	}
	return nil
}
