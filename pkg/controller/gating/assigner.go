package gating

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
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

// maxPerTurn is how many pods of a revision are assigned before other revisions have their turn.
const maxPerTurn = 100

// ownerRetry is the retry interval for a pod whose owner is unknown or outdated.
const ownerRetry = 50 * time.Millisecond

// Settings configures an Assigner.
type Settings struct {
	// Profile is the schedulerName of the pods to assign.
	Profile string
	Policy  *decision.Policy
	Labels  *Labels
	// NodeStartup is how long a pod waits for a node that an autoscaler starts for it, before it
	// falls back.
	NodeStartup time.Duration
}

// Assigner assigns gated pods and removes their gates.
type Assigner struct {
	settings Settings
	client   kubernetes.Interface
	recorder events.EventRecorder
	clock    clock.Clock
	wishes   *Requirements
	// installed is updated while this replica leads.
	installed *AdmissionPolicy

	owners  *workload.Owners
	pods    cache.Indexer // indexed by revision
	nodes   *nodes
	queue   workqueue.TypedRateLimitingInterface[workload.OwnerKey]
	slots   chan struct{} // limits concurrent patches
	leading atomic.Bool

	mu sync.Mutex
	// decided contains the assignment of each pod whose gate was removed, until the cache shows the
	// removal.
	decided map[types.UID]decision.AssignedCapacity
	// seen contains when each gated pod was first seen, until its gate is removed.
	seen map[types.UID]time.Time
	// grants contains the grants for the successors of deleted pods.
	grants map[successor][]grant
	// releasedAt contains when the gate of a pod was last removed, by namespace.
	releasedAt map[string]time.Time
	// waiting contains when each pod without a gate was first seen unschedulable.
	waiting map[types.UID]time.Time
	// reassigned contains, for each pod deleted for reassignment, until when its successor counts
	// as part of the floor.
	reassigned map[workload.OwnerKey][]time.Time
	// reported contains the last event reason that recordOnce recorded for each pod.
	reported map[types.UID]string
}

const podsByRevision = "spot-aware-scheduler.io/pods-by-revision"

// New returns an Assigner that reads from factory, which must not have been started. client must
// not block in order to retry refused calls.
func New(
	factory informers.SharedInformerFactory, client kubernetes.Interface, recorder events.EventRecorder, clock clock.WithTicker,
	wishes *Requirements, installed *AdmissionPolicy, settings Settings,
) (*Assigner, error) {
	owners, err := workload.NewOwners(factory, settings.Policy)
	if err != nil {
		return nil, err
	}
	pods := factory.Core().V1().Pods().Informer()
	g := &Assigner{
		settings: settings, client: client, recorder: recorder, clock: clock, wishes: wishes, installed: installed, owners: owners, pods: pods.GetIndexer(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[workload.OwnerKey](ownerRetry, 5*time.Second),
			workqueue.TypedRateLimitingQueueConfig[workload.OwnerKey]{Name: "gating", Clock: clock}),
		slots:   make(chan struct{}, maxPatches),
		decided: map[types.UID]decision.AssignedCapacity{}, seen: map[types.UID]time.Time{},
		grants: map[successor][]grant{}, releasedAt: map[string]time.Time{}, waiting: map[types.UID]time.Time{},
		reassigned: map[workload.OwnerKey][]time.Time{}, reported: map[types.UID]string{},
	}
	g.nodes = &nodes{settings: settings, recorder: recorder, reported: map[types.UID]string{}, lister: factory.Core().V1().Nodes().Lister()}
	err = pods.AddIndexers(cache.Indexers{podsByRevision: func(obj any) ([]string, error) {
		if pod, ok := obj.(*v1.Pod); ok && pod.Spec.SchedulerName == settings.Profile {
			return []string{workload.RevisionOf(pod).Index()}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return nil, err
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { g.observe(obj.(*v1.Pod)) },
		UpdateFunc: func(_, obj any) { g.observe(obj.(*v1.Pod)) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				g.forget(pod.UID)
			}
		},
	}); err != nil {
		return nil, err
	}
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { g.observeNode(obj) },
		UpdateFunc: func(_, obj any) { g.observeNode(obj) },
		DeleteFunc: func(obj any) { g.nodes.forget(obj) },
	})
	return g, err
}

// Run assigns gated pods until ctx is done. The caches must be synced. It may be called once.
func (g *Assigner) Run(ctx context.Context) {
	defer g.queue.ShutDown()
	klog.FromContext(ctx).Info("Started assigning capacity types to gated pods", "affinity", g.settings.Labels)
	g.leading.Store(true)
	for _, obj := range g.pods.List() {
		g.observe(obj.(*v1.Pod))
	}
	for _, obj := range g.nodes.list() {
		g.observeNode(obj)
	}
	var running sync.WaitGroup
	running.Go(func() { g.installed.watch(ctx, g.client) })
	for range workers {
		running.Go(func() {
			for g.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	g.queue.ShutDown()
	running.Wait()
}

// observe queues the revision of a pod that may need work.
func (g *Assigner) observe(pod *v1.Pod) {
	if !g.leading.Load() || pod.Spec.SchedulerName != g.settings.Profile {
		return
	}
	if pod.Spec.NodeName != "" || !workload.Live(pod) {
		g.forget(pod.UID)
		return
	}
	g.mu.Lock()
	gated, unschedulable := workload.Gated(pod), false
	if gated {
		if _, known := g.seen[pod.UID]; !known {
			g.seen[pod.UID] = g.clock.Now()
		}
	} else {
		delete(g.seen, pod.UID)
		delete(g.decided, pod.UID)
		if unschedulable = workload.Unschedulable(pod); unschedulable {
			if _, known := g.waiting[pod.UID]; !known {
				g.waiting[pod.UID] = g.clock.Now()
			}
		}
	}
	g.mu.Unlock()
	if gated || unschedulable {
		g.queue.Add(workload.RevisionOf(pod))
	}
}

func (g *Assigner) observeNode(obj any) {
	if node, ok := obj.(*v1.Node); ok && g.leading.Load() {
		g.nodes.observe(node)
	}
}

// forget removes the records of a pod.
func (g *Assigner) forget(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.decided, uid)
	delete(g.seen, uid)
	delete(g.waiting, uid)
	delete(g.reported, uid)
}

// next processes one revision. It returns false after the queue has shut down.
func (g *Assigner) next(ctx context.Context) bool {
	revision, down := g.queue.Get()
	if down {
		return false
	}
	defer g.queue.Done(revision)
	again, err := g.reconcile(ctx, revision)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to reconcile gated pods, retrying", "revision", revision)
		g.queue.AddRateLimited(revision)
	default:
		g.queue.Forget(revision)
		if again > 0 {
			g.queue.AddAfter(revision, again)
		}
	}
	return true
}

// sibling is a pod of a revision with its owners and settings.
type sibling struct {
	pod      *v1.Pod
	subject  *workload.Subject
	settings decision.WorkloadSettings
}

// reconcile assigns the gated pods of a revision and deletes unschedulable pods whose affinity must
// change. It returns when to reconcile again; 0 if an event will trigger it. The queue prevents
// concurrent calls for one revision.
func (g *Assigner) reconcile(ctx context.Context, revision workload.OwnerKey) (again time.Duration, err error) {
	defer recovery.Recover(recovery.Workload, klog.KRef(revision.Namespace, string(revision.UID)))
	pods, err := g.live(revision)
	if err != nil {
		return 0, err
	}
	var gated, waiting []sibling
	subjects := g.owners.Subjects()
	assigned, granted, others := 0, 0, 0
	for _, pod := range pods {
		pending := workload.Gated(pod)
		if made, done := g.assignmentOf(pod.UID, pending); pending && done {
			if made == decision.AssignedOnDemand {
				assigned++
			} else {
				others++
			}
			continue
		}
		switch {
		case pending:
		case workload.OnlyOnDemand(pod, g.settings.Policy):
			assigned++
		default:
			others++
			if workload.GrantOf(pod) != decision.NotGranted {
				granted++
			}
		}
		if pending || pod.Spec.NodeName == "" && workload.Unschedulable(pod) {
			s, wait, err := g.resolve(subjects, pod, len(pods))
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
	if len(gated) > maxPerTurn {
		gated, again = gated[:maxPerTurn], time.Nanosecond // other revisions have their turn in between
	}
	// A warning about the pods beyond the floor is recorded on the first one. Pods of the
	// floor may have been assigned before.
	assigned, err = g.release(ctx, revision, gated, assigned, others == 0)
	// A granted pod replaces a replica of the floor that did not fit on on-demand.
	next, failed := g.relieve(ctx, revision, waiting, assigned+granted)
	return earlier(again, next), errors.Join(err, failed)
}

// earlier returns the shorter of two durations; 0 means never.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// live returns the live pods of a revision of the profile, the oldest first.
func (g *Assigner) live(revision workload.OwnerKey) ([]*v1.Pod, error) {
	objs, err := g.pods.ByIndex(podsByRevision, revision.Index())
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for _, obj := range objs {
		if pod := obj.(*v1.Pod); workload.Live(pod) && !workload.Released(pod) && workload.PolicyApplies(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// assignmentOf returns the assignment of a pod whose gate the cache still shows; false if it has
// none.
func (g *Assigner) assignmentOf(pod types.UID, gated bool) (decision.AssignedCapacity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !gated {
		delete(g.decided, pod)
		delete(g.seen, pod)
	}
	made, done := g.decided[pod]
	return made, done
}

// resolve finds the owners and settings of a pod. It returns a time to wait if the owner is
// unknown, or if the cached owner is outdated: a controller creates no more pods than replicas.
func (g *Assigner) resolve(
	subjects func(*v1.Pod) (*workload.Subject, error), pod *v1.Pod, siblings int,
) (s sibling, wait time.Duration, err error) {
	subject, err := subjects(pod)
	age := g.clock.Since(pod.CreationTimestamp.Time)
	if unknown := (*workload.UnknownOwner)(nil); errors.As(err, &unknown) {
		if age < decision.MaxOwnerDelay {
			return s, ownerRetry, nil
		}
		return s, time.Second, nil // the scheduler removes the gate after gateTimeout
	}
	if err != nil {
		return s, 0, err
	}
	settings, _ := g.settings.Policy.Settings(&subject.Pod)
	// siblings includes the pod itself.
	if subject.Pod.OutdatedOwner(settings, decision.PlacedPods{OnDemand: siblings - 1}) != "" && age < decision.MaxOwnerDelay {
		return s, ownerRetry, nil
	}
	return sibling{pod, subject, settings}, 0, nil
}
