package gating

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/turns"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// workers limits how many revisions are reconciled concurrently, and maxPatches how many pods are
// patched concurrently. On 2 shared cores, 128 concurrent patches placed 3,000 pods in a seventh
// less time than 32 (test/performance, arm gated), because the scheduler has fewer gated pods to
// inspect.
const (
	workers    = 32
	maxPatches = 128
)

// maxPerReconcile is how many pods of a revision are assigned before other revisions have their
// turn.
const maxPerReconcile = 100

// ownerRetry is the retry interval for a pod whose owner is unknown or outdated.
const ownerRetry = 50 * time.Millisecond

// Settings configures an Assigner.
type Settings struct {
	// Scope selects the pods to assign.
	Scope  workload.Scope
	Policy *decision.Policy
	Labels *Labels
	// NodeStartup is how long a pod waits for a node that an autoscaler starts for it, before it
	// falls back.
	NodeStartup time.Duration
	// Provisioning is the evidence about the nodes that autoscalers add. The Assigner records
	// their refusals there, for planners.
	Provisioning *simulation.Provisioning
	Paused       safety.Paused
	// EvictableOwners are kinds of controllers, such as "CloneSet.apps.kruise.io", that recreate a
	// pod after its deletion.
	EvictableOwners []string
}

// Assigner assigns gated pods and removes their gates.
type Assigner struct {
	settings Settings
	client   kubernetes.Interface
	recorder events.EventRecorder
	clock    clock.Clock
	// admissionPolicy is updated while this replica leads.
	admissionPolicy *AdmissionPolicy

	owners *workload.Owners
	pods   cache.Indexer // indexed by revision
	nodes  corelisters.NodeLister
	// feasibility is the input of couldRun.
	feasibility feasibility
	queue       workqueue.TypedRateLimitingInterface[workload.OwnerKey]
	patchSlots  chan struct{} // limits concurrent patches
	leading     atomic.Bool

	mu sync.Mutex
	// pending contains the pods that are not bound.
	pending map[types.UID]*pendingPod
	// replaced contains the last replacement of a revision.
	replaced map[workload.OwnerKey]replacement
	// gateRemovedAt contains when the gate of a pod was last removed, by namespace.
	gateRemovedAt map[string]time.Time
}

// pendingPod contains what the Assigner knows about a pod that is not bound.
type pendingPod struct {
	// assigned is the assignment of a pod whose gate was removed, until the cache shows that.
	assigned *choice
	// gatedSince is when the gated pod first had no other gate. It is zero without the gate.
	gatedSince time.Time
	// eventsRead is when the events of the pod were last read for refusals. startingUntil is until
	// when an autoscaler may be starting a node for the pod.
	eventsRead, startingUntil time.Time
	// reported means that the pod has an event of recordNoSuccessor.
	reported bool
	// orphaned means that the pod has been observed without a controller.
	orphaned bool
}

// record returns the record of a pod and creates it if necessary. The caller must hold a.mu.
func (a *Assigner) record(pod types.UID) *pendingPod {
	p := a.pending[pod]
	if p == nil {
		p = &pendingPod{}
		a.pending[pod] = p
	}
	return p
}

// recorded returns a copy of the record of a pod. It is zero if there is none.
func (a *Assigner) recorded(pod types.UID) pendingPod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ptr.Deref(a.pending[pod], pendingPod{})
}

const podsByRevision = "spot-aware-scheduler.io/pods-by-revision"

// New returns an Assigner that reads from factory, which must not have been started. client must
// not block in order to retry refused calls.
func New(
	factory informers.SharedInformerFactory, client kubernetes.Interface, recorder events.EventRecorder, clock clock.WithTicker,
	admissionPolicy *AdmissionPolicy, settings Settings,
) (*Assigner, error) {
	owners, err := workload.NewOwners(factory, settings.Policy)
	if err != nil {
		return nil, err
	}
	pods := factory.Core().V1().Pods().Informer()
	a := &Assigner{
		settings: settings, client: client,
		recorder: recorder, clock: clock, admissionPolicy: admissionPolicy,
		owners: owners, pods: pods.GetIndexer(),
		queue: turns.NewQueue("gating", ownerRetry, 5*time.Second, func(revision workload.OwnerKey) string {
			return revision.Namespace
		}),
		patchSlots: make(chan struct{}, maxPatches), pending: map[types.UID]*pendingPod{}, replaced: map[workload.OwnerKey]replacement{},
		gateRemovedAt: map[string]time.Time{},
		nodes:         factory.Core().V1().Nodes().Lister(), feasibility: feasibility{volumesOf: workload.VolumesOf(factory)},
	}
	err = pods.AddIndexers(cache.Indexers{podsByRevision: func(obj any) ([]string, error) {
		if pod, ok := obj.(*v1.Pod); ok && workload.PolicyApplies(pod) {
			return []string{workload.RevisionOf(pod).Index()}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return nil, err
	}
	_, err = pods.AddEventHandler(informer.Handler[*v1.Pod]{
		Add: func(pod *v1.Pod) {
			a.observe(pod)
			a.reportIgnoredOptIn(pod)
		},
		Update: func(before, pod *v1.Pod) {
			a.observe(pod)
			if before.Spec.NodeName == "" && pod.Spec.NodeName != "" {
				a.observeBinding(pod)
			}
		},
		Delete: a.forgetPod,
	})
	return a, err
}

// Run assigns gated pods until ctx is done. The caches must be synced. It may be called once.
func (a *Assigner) Run(ctx context.Context) {
	klog.FromContext(ctx).Info("Started assigning capacity types to gated pods",
		"labels", slices.Concat(a.settings.Labels.notSpot, a.settings.Labels.spot))
	a.leading.Store(true)
	for _, obj := range a.pods.List() {
		a.observe(obj.(*v1.Pod))
	}
	var watching sync.WaitGroup
	watching.Go(func() { a.admissionPolicy.watch(ctx, a.client) })
	turns.Process(ctx, a.queue, workers, a.reconcile)
	watching.Wait()
}

// observe queues the revision of a pod that may need work. A gated pod that is out of scope needs
// work too: nothing else removes its gate.
func (a *Assigner) observe(pod *v1.Pod) {
	if !a.leading.Load() {
		return
	}
	gated := workload.Gated(pod)
	if pod.Spec.NodeName != "" || !workload.Live(pod) || !gated && !a.settings.Scope.Includes(pod) {
		a.forget(pod.UID)
		return
	}
	needsWork := gated && !workload.HasOtherGates(pod) || !gated && workload.Unschedulable(pod)
	a.mu.Lock()
	p := a.record(pod.UID)
	p.orphaned = p.orphaned || metav1.GetControllerOfNoCopy(pod) == nil
	switch {
	case !gated:
		p.assigned, p.gatedSince = nil, time.Time{}
	case needsWork && p.gatedSince.IsZero():
		p.gatedSince = a.clock.Now()
	}
	a.mu.Unlock()
	if needsWork {
		a.queue.Add(workload.RevisionOf(pod))
	}
}

// reportIgnoredOptIn records an event on a new pod whose label has no effect.
func (a *Assigner) reportIgnoredOptIn(pod *v1.Pod) {
	if !a.leading.Load() || pod.Spec.NodeName != "" || !workload.Live(pod) {
		return
	}
	if why := a.settings.Scope.IgnoredOptIn(pod); why != "" {
		a.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonOptInIgnored, "Assign", "%s", why)
	}
}

func (a *Assigner) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, uid)
}

// forgetPod removes the record of a deleted pod. With the last pod it forgets the namespace.
func (a *Assigner) forgetPod(pod *v1.Pod) {
	a.forget(pod.UID)
	if left, err := a.pods.ByIndex(cache.NamespaceIndex, pod.Namespace); err == nil && len(left) == 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.gateRemovedAt, pod.Namespace)
	}
}

type sibling struct {
	pod      *v1.Pod
	subject  *workload.Subject
	settings decision.WorkloadSettings
	invalid  []decision.InvalidAnnotation
}

// counts are the numbers of the pods of a revision that are part of a floor that is a requirement,
// and of one that is a preference; of the pods with a grant; and of all that require nothing.
type counts struct{ assigned, preferred, granted, others int }

func (n *counts) add(required, preferred, granted bool) {
	switch {
	case required:
		n.assigned, n.preferred = n.assigned+1, n.preferred+1
		return
	case preferred:
		n.preferred++
	}
	if n.others++; granted {
		n.granted++
	}
}

// reconcile assigns the gated pods of a revision and deletes unschedulable pods whose affinity must
// change. It returns when to reconcile again; 0 if an event will trigger it. The queue prevents
// concurrent calls for one revision.
func (a *Assigner) reconcile(ctx context.Context, revision workload.OwnerKey) (again time.Duration, err error) {
	defer recovery.Recover(recovery.Workload, klog.KRef(revision.Namespace, string(revision.UID)))
	pods, assignments, err := a.livePodsWithAssignments(revision)
	if err != nil {
		return 0, err
	}
	var gated, waiting []sibling
	var outOfScope []*v1.Pod
	subjects, n := a.owners.Subjects(), counts{}
	for _, pod := range pods {
		pending := workload.Gated(pod)
		if pending && workload.HasOtherGates(pod) {
			continue // their owners may still change what the decision depends on
		}
		if made, done := assignments[pod.UID]; done {
			n.add(made.ofFloor(), false, false)
			continue
		}
		if pending && !a.settings.Scope.Includes(pod) {
			outOfScope, again = append(outOfScope, pod), earlier(again, ownerRetry)
			continue
		}
		if !pending {
			required, preferred := a.countsToFloor(pod)
			n.add(required, preferred, workload.GrantOf(pod) != decision.NotGranted)
		}
		if pending || pod.Spec.NodeName == "" && workload.Unschedulable(pod) {
			s, wait, err := a.resolve(subjects, pod, len(pods))
			switch {
			case err != nil:
				return 0, err
			case wait > 0:
				again = earlier(again, wait)
			case pending:
				gated = append(gated, s)
			default:
				waiting = append(waiting, s)
			}
		}
	}
	if len(gated) > 0 && a.outdated(revision, gated[0].pod, len(pods)) {
		return ownerRetry, nil
	}
	if len(gated) > maxPerReconcile {
		gated, again = gated[:maxPerReconcile], time.Nanosecond // other revisions have their turn in between
	}
	if s := slices.Concat(gated, waiting); len(s) > 0 && s[0].settings.WhenUnsatisfiable == decision.ScheduleAnyway {
		n.assigned = n.preferred
	}
	// A warning about the pods beyond the floor is recorded on the first one. Pods of the
	// floor may have been assigned before.
	n.assigned, err = a.assignGated(ctx, revision, gated, n.assigned, a.unreplaced(revision, pods, assignments), n.others == 0)
	next, failed := a.replaceWaiting(ctx, revision, waiting, n.assigned, n.granted)
	if err = errors.Join(err, failed, a.ungate(ctx, outOfScope)); err != nil {
		err = fmt.Errorf("assigning capacity types to the pods of %+v: %w", revision, err)
	}
	return earlier(again, next), err
}

// outdated reports whether a revision no longer has n live pods. The namespace of a pod that keeps
// its scheduler may have opted in since they were listed.
func (a *Assigner) outdated(revision workload.OwnerKey, gated *v1.Pod, n int) bool {
	if !a.settings.Scope.KeepsScheduler(gated) {
		return false
	}
	pods, err := a.livePods(revision)
	return err == nil && len(pods) != n
}

// countsToFloor reports whether a pod without the gate counts as part of a floor that is a
// requirement, and of one that is a preference.
func (a *Assigner) countsToFloor(pod *v1.Pod) (required, preferred bool) {
	node, err := a.nodes.Get(pod.Spec.NodeName)
	onSpot := err == nil && a.capacity(node).IsSpot()
	p := decision.Pod{OnlyOnDemand: workload.OnlyOnDemand(pod, a.settings.Policy), Assigned: workload.AssignedCapacityOf(pod)}
	counts := pod.Spec.NodeName != "" || strings.Contains(pod.Annotations[spot.AssignedAnnotation], whyAnyway)
	return p.AssignedToFloor(onSpot), !onSpot && counts
}

func (a *Assigner) capacity(node *v1.Node) decision.Capacity {
	return a.settings.Policy.Capacity(node.Labels, a.clock.Since(node.CreationTimestamp.Time))
}

// earlier returns the shorter of two durations; 0 means never.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// livePods returns the live pods of a revision that are gated or in scope, the oldest first.
func (a *Assigner) livePods(revision workload.OwnerKey) ([]*v1.Pod, error) {
	objs, err := a.pods.ByIndex(podsByRevision, revision.Index())
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for _, obj := range objs {
		if pod := obj.(*v1.Pod); workload.Counts(pod) && (a.settings.Scope.Includes(pod) || workload.Gated(pod)) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// livePodsWithAssignments returns what livePods does, and the assignments of the pods whose gates
// the cache still shows. It holds the lock for both: otherwise observe could see that a gate was
// removed, and delete the assignment of a pod that was read with its gate.
func (a *Assigner) livePodsWithAssignments(revision workload.OwnerKey) ([]*v1.Pod, map[types.UID]*choice, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pods, err := a.livePods(revision)
	assignments := map[types.UID]*choice{}
	for _, pod := range pods {
		p := a.pending[pod.UID]
		switch {
		case p == nil:
		case !workload.Gated(pod):
			p.assigned, p.gatedSince = nil, time.Time{}
		case p.assigned != nil:
			assignments[pod.UID] = p.assigned
		}
	}
	return pods, assignments, err
}

// resolve finds the owners and settings of a pod. It returns a time to wait if the owner is
// unknown, or if the cached owner is outdated: a controller creates no more pods than replicas.
func (a *Assigner) resolve(
	subjects func(*v1.Pod) (*workload.Subject, error), pod *v1.Pod, siblings int,
) (s sibling, wait time.Duration, err error) {
	subject, err := subjects(pod)
	age := a.clock.Since(pod.CreationTimestamp.Time)
	if unknown := (*workload.UnknownOwner)(nil); errors.As(err, &unknown) {
		if age < decision.MaxOwnerDelay {
			return s, ownerRetry, nil
		}
		return s, time.Second, nil // a failsafe removes the gate after gateTimeout
	}
	if err != nil {
		return s, 0, err
	}
	settings, invalid := a.settings.Policy.Settings(&subject.Pod)
	// siblings includes the pod itself.
	left := subject.Pod.Workload.OwnerDelay() - age
	switch outdated := left > 0 && subject.Pod.OutdatedOwner(settings, decision.PlacedPods{OnDemand: siblings - 1}) != ""; {
	case outdated && subject.Pod.Workload.OrphanOf != "":
		return s, left, nil // its adoption is observed
	case outdated:
		return s, ownerRetry, nil
	}
	return sibling{pod, subject, settings, invalid}, 0, nil
}
