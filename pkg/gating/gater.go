package gating

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// How many revisions are worked on at a time, and how many pods are patched at a time. On 2 cores that everything shares, 128 patches at a time
// placed 3,000 pods in a seventh less time than 32 (test/performance, arm gated): fewer gated pods are left for the scheduler to look through.
const (
	workers  = 32
	patching = 128
)

// mostAtOnce is how many pods of a revision are let go before other revisions have their turn.
const mostAtOnce = 100

// askAgain is how soon a pod is looked at again whose owner is not known yet, or is known to be older than the pod.
const askAgain = 50 * time.Millisecond

// Settings are those of a Gater.
type Settings struct {
	// Profile is the schedulerName of the pods that are decided on.
	Profile string
	Policy  *decision.Policy
	Labels  *Labels
	// NodeStartup is how long a pod waits for a node that an autoscaler starts for it, before it falls back.
	NodeStartup time.Duration
}

// Gater decides on gated pods and lets them go.
type Gater struct {
	settings Settings
	client   kubernetes.Interface
	recorder events.EventRecorder
	clock    clock.Clock
	wishes   *Wishes
	// installed is kept up to date while this replica leads.
	installed *Installed

	owners  *kube.Owners
	pods    cache.Indexer // by revision
	nodes   *nodes
	queue   workqueue.TypedRateLimitingInterface[kube.OwnerKey]
	slots   chan struct{} // taken by a patch under way
	leading atomic.Bool

	mu sync.Mutex
	// decided are the pods whose gate was removed, until the cache shows it: what each requires.
	decided map[types.UID]decision.Assignment
	// seen is when each gated pod was first seen, until its gate is removed.
	seen map[types.UID]time.Time
	// grants are what the successors of deleted pods have earned.
	grants map[successor][]grant
	// releasedAt is when the gate of a pod was removed last, by namespace.
	releasedAt map[string]time.Time
	// waiting is when each pod without a gate was first seen unschedulable.
	waiting map[types.UID]time.Time
	// reassigned is until when the successors of pods that were deleted to be reassigned count as part of the floor.
	reassigned map[kube.OwnerKey][]time.Time
	// told are the events that were recorded once.
	told map[types.UID]string
}

const podsByRevision = "spot-aware-scheduler.io/pods-by-revision"

// New returns a Gater that reads from factory, which must not have been started. Calls of client must not wait inside to repeat what is
// refused.
func New(
	factory informers.SharedInformerFactory, client kubernetes.Interface, recorder events.EventRecorder, clock clock.WithTicker,
	wishes *Wishes, installed *Installed, settings Settings,
) (*Gater, error) {
	owners, err := kube.NewOwners(factory, settings.Policy)
	if err != nil {
		return nil, err
	}
	pods := factory.Core().V1().Pods().Informer()
	g := &Gater{
		settings: settings, client: client, recorder: recorder, clock: clock, wishes: wishes, installed: installed, owners: owners, pods: pods.GetIndexer(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[kube.OwnerKey](askAgain, 5*time.Second),
			workqueue.TypedRateLimitingQueueConfig[kube.OwnerKey]{Name: "gating", Clock: clock}),
		slots:   make(chan struct{}, patching),
		decided: map[types.UID]decision.Assignment{}, seen: map[types.UID]time.Time{},
		grants: map[successor][]grant{}, releasedAt: map[string]time.Time{}, waiting: map[types.UID]time.Time{},
		reassigned: map[kube.OwnerKey][]time.Time{}, told: map[types.UID]string{},
	}
	g.nodes = &nodes{settings: settings, recorder: recorder, told: map[types.UID]string{}, lister: factory.Core().V1().Nodes().Lister()}
	err = pods.AddIndexers(cache.Indexers{podsByRevision: func(obj any) ([]string, error) {
		if pod, ok := obj.(*v1.Pod); ok && pod.Spec.SchedulerName == settings.Profile {
			return []string{kube.RevisionOf(pod).Index()}, nil
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

// Run works until ctx is done. The caches must be full. It may be called once.
func (g *Gater) Run(ctx context.Context) {
	defer g.queue.ShutDown()
	klog.FromContext(ctx).Info("Writing the capacity types of new pods for autoscalers", "affinity", g.settings.Labels)
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

// observe queues the revision of a pod that there may be something to do for.
func (g *Gater) observe(pod *v1.Pod) {
	if !g.leading.Load() || pod.Spec.SchedulerName != g.settings.Profile {
		return
	}
	if pod.Spec.NodeName != "" || !kube.Live(pod) {
		g.forget(pod.UID)
		return
	}
	g.mu.Lock()
	gated, unschedulable := kube.Gated(pod), false
	if gated {
		if _, known := g.seen[pod.UID]; !known {
			g.seen[pod.UID] = g.clock.Now()
		}
	} else {
		delete(g.seen, pod.UID)
		delete(g.decided, pod.UID)
		if unschedulable = kube.Unschedulable(pod); unschedulable {
			if _, known := g.waiting[pod.UID]; !known {
				g.waiting[pod.UID] = g.clock.Now()
			}
		}
	}
	g.mu.Unlock()
	if gated || unschedulable {
		g.queue.Add(kube.RevisionOf(pod))
	}
}

func (g *Gater) observeNode(obj any) {
	if node, ok := obj.(*v1.Node); ok && g.leading.Load() {
		g.nodes.observe(node)
	}
}

// forget drops what is known of a pod that is gone.
func (g *Gater) forget(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.decided, uid)
	delete(g.seen, uid)
	delete(g.waiting, uid)
	delete(g.told, uid)
}

// next works on one revision; false if there will be none any more.
func (g *Gater) next(ctx context.Context) bool {
	revision, down := g.queue.Get()
	if down {
		return false
	}
	defer g.queue.Done(revision)
	again, err := g.reconcile(ctx, revision)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).Error(err, "Pods keep their scheduling gate for now", "revision", revision)
		g.queue.AddRateLimited(revision)
	default:
		g.queue.Forget(revision)
		if again > 0 {
			g.queue.AddAfter(revision, again)
		}
	}
	return true
}

// sibling is a pod of a revision, with what it belongs to.
type sibling struct {
	pod      *v1.Pod
	subject  *kube.Subject
	settings decision.Settings
}

// reconcile lets the gated pods of a revision go, and deletes those that wait in vain. It returns after how long there may be more to do; 0 if
// an event will tell. No two calls for one revision are under way at a time.
func (g *Gater) reconcile(ctx context.Context, revision kube.OwnerKey) (again time.Duration, err error) {
	defer recovery.Recover(recovery.Workload, klog.KRef(revision.Namespace, string(revision.UID)))
	pods, err := g.live(revision)
	if err != nil {
		return 0, err
	}
	var gated, waiting []sibling
	subjects := g.owners.Subjects()
	assigned, granted, others := 0, 0, 0
	for _, pod := range pods {
		pending := kube.Gated(pod)
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
		case kube.OnlyOnDemand(pod, g.settings.Policy):
			assigned++
		default:
			others++
			if kube.GrantOf(pod) != decision.NotGranted {
				granted++
			}
		}
		if pending || pod.Spec.NodeName == "" && kube.Unschedulable(pod) {
			s, wait, err := g.look(subjects, pod, len(pods))
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
	if len(gated) > mostAtOnce {
		gated, again = gated[:mostAtOnce], time.Nanosecond // other revisions have their turn in between
	}
	// What concerns the pods beyond the floor is reported with the first of them. Those of the floor may have been let go before.
	assigned, err = g.release(ctx, revision, gated, assigned, others == 0)
	// What was granted stands for a replica of the floor that on-demand had no room for.
	next, failed := g.relieve(ctx, revision, waiting, assigned+granted)
	return earlier(again, next), errors.Join(err, failed)
}

// earlier returns the shorter of two times; 0 stands for never.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// live returns the live pods of a revision of the profile, the oldest first.
func (g *Gater) live(revision kube.OwnerKey) ([]*v1.Pod, error) {
	objs, err := g.pods.ByIndex(podsByRevision, revision.Index())
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for _, obj := range objs {
		if pod := obj.(*v1.Pod); kube.Live(pod) && !kube.Released(pod) && kube.HasOpinion(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// assignmentOf returns what was decided on a pod whose gate the cache still shows; false if nothing was.
func (g *Gater) assignmentOf(pod types.UID, gated bool) (decision.Assignment, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !gated {
		delete(g.decided, pod)
		delete(g.seen, pod)
	}
	made, done := g.decided[pod]
	return made, done
}

// look finds out what a pod belongs to. It returns a time to wait if that is not known yet, or is older than the pod: no owner makes more pods
// than replicas.
func (g *Gater) look(
	subjects func(*v1.Pod) (*kube.Subject, error), pod *v1.Pod, siblings int,
) (s sibling, wait time.Duration, err error) {
	subject, err := subjects(pod)
	age := g.clock.Since(pod.CreationTimestamp.Time)
	if unknown := (*kube.UnknownOwner)(nil); errors.As(err, &unknown) {
		if age < decision.OwnerNews {
			return s, askAgain, nil
		}
		return s, time.Second, nil // the scheduler removes the gate after gateTimeout
	}
	if err != nil {
		return s, 0, err
	}
	settings, _ := g.settings.Policy.Settings(&subject.Pod)
	// The pod itself is one of the siblings.
	if subject.Pod.Outgrown(settings, decision.Placed{OnDemand: siblings - 1}) != "" && age < decision.OwnerNews {
		return s, askAgain, nil
	}
	return sibling{pod, subject, settings}, 0, nil
}

// release decides on the gated pods of a revision one after the other, and patches them at the same time. first: the revision has no pod without
// a gate that does not require on-demand. It returns how many pods require on-demand then.
func (g *Gater) release(ctx context.Context, revision kube.OwnerKey, gated []sibling, assigned int, first bool) (int, error) {
	var patches errgroup.Group
	patches.SetLimit(patching)
	for _, s := range gated {
		own := s.subject.Pod.OnlyOnDemand
		f := facts{assigned: assigned}
		g.takeReassigned(revision)
		grant, granted := g.takeGrant(successorOf(revision, s))
		if granted {
			f.granted = grant.why
		} else if capacity, wanted := g.wishes.Take(revision, g.clock.Now()); wanted {
			f.toSpot = capacity == decision.Spot
		}
		c := g.settings.Labels.choose(s.subject, s.settings, f)
		if c.assigned == decision.AssignedOnDemand || own {
			assigned++
		}
		if c.ofRevision {
			if !first {
				c.warning = ""
			}
			first = first && c.warning == ""
		}
		g.decide(s.pod.UID, c.assigned)
		patches.Go(func() error {
			g.slots <- struct{}{}
			defer func() { <-g.slots }()
			err := g.patch(ctx, s.pod, c)
			if err == nil {
				return nil
			}
			g.mu.Lock()
			delete(g.decided, s.pod.UID)
			g.mu.Unlock()
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case granted:
				g.giveGrant(successorOf(revision, s), grant)
			case f.toSpot:
				g.wishes.Want(revision, decision.Spot, g.clock.Now().Add(g.settings.NodeStartup))
			}
			if apierrors.IsConflict(err) { // the cache shows another version soon
				g.queue.AddAfter(revision, askAgain)
				return nil
			}
			return err
		})
	}
	return assigned, patches.Wait()
}

func (g *Gater) decide(pod types.UID, a decision.Assignment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decided[pod] = a
}

// patch writes a choice on the very version of the pod that it was made for, and removes the gate.
func (g *Gater) patch(ctx context.Context, pod *v1.Pod, c choice) error {
	annotations := map[string]string{kube.AssignedAnnotation: c.annotation()}
	if c.granted != "" {
		annotations[kube.GrantedAnnotation] = c.granted
	}
	spec := map[string]any{"schedulingGates": withoutGate(pod)}
	switch {
	case len(c.require) > 0:
		spec["affinity"] = map[string]any{"nodeAffinity": narrow(pod.Spec.Affinity, c.require).NodeAffinity}
	case len(c.prefer) > 0:
		spec["affinity"] = map[string]any{"nodeAffinity": prefer(pod.Spec.Affinity, c.prefer).NodeAffinity}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations}, "spec": spec,
	})
	if err != nil {
		return err
	}
	_, err = g.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	g.mu.Lock()
	since, known := g.seen[pod.UID]
	delete(g.seen, pod.UID)
	g.releasedAt[pod.Namespace] = g.clock.Now()
	g.mu.Unlock()
	if known {
		gateDuration.Observe(g.clock.Since(since).Seconds())
	}
	assignedPods.WithLabelValues(cmp.Or(c.assigned.String(), "none")).Inc()
	klog.FromContext(ctx).V(2).Info("Removed the capacity gate", "pod", klog.KObj(pod), "assigned", c.annotation())
	if c.warning != "" {
		g.recorder.Eventf(pod, nil, v1.EventTypeWarning, kube.ReasonHiddenFromAutoscaler, "Assign", "%s", c.warning)
	}
	return nil
}

// withoutGate returns the scheduling gates of the pod but the capacity gate; never nil.
func withoutGate(pod *v1.Pod) []v1.PodSchedulingGate {
	gates := make([]v1.PodSchedulingGate, 0, len(pod.Spec.SchedulingGates))
	for _, gate := range pod.Spec.SchedulingGates {
		if gate.Name != kube.CapacityGate {
			gates = append(gates, gate)
		}
	}
	return gates
}
