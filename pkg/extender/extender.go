package extender

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"
	"k8s.io/utils/lru"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	// arrivalTimeout is the maximum time that a decision waits for the pod and its owner to appear
	// in the caches. The scheduler's watch may be milliseconds ahead of this one.
	arrivalTimeout, arrivalPollInterval = 200 * time.Millisecond, 10 * time.Millisecond
	// maxWaitedFor is the number of pods for which the extender remembers that it has waited.
	maxWaitedFor = 10_000
	// maxNarrowAnswers is the number of answers that send a pod to one capacity type only. If the
	// scheduler asks again after these, a later filter probably refuses those nodes.
	maxNarrowAnswers = 2
	// revisionLockCount is the number of locks that all revisions share.
	revisionLockCount = 64
)

// unknownNodeReason is the reason for a node that is not in the cache: the node may be new or
// already deleted.
const unknownNodeReason = "node is not known to the extender yet"

// Extender makes placement decisions. It is safe for concurrent use.
type Extender struct {
	profile  string
	policy   *decision.Policy
	owners   *workload.Owners
	pods     corelisters.PodLister
	recorder events.EventRecorder
	clock    clock.Clock

	index   *index
	pending *pendingPods
	// waitedFor has the pods for which waiting was in vain. kube-scheduler schedules no other pod
	// during the wait, and retries such pods every few seconds.
	waitedFor *lru.Cache
	// bindings counts the observed bindings of pods of all profiles.
	bindings atomic.Int64
	// revisions serializes the decisions about one revision: each decision must count the approval
	// that the previous one gave.
	revisionLocks keymutex.KeyMutex
}

// New returns an Extender for the pods whose schedulerName is profile. It counts nothing until
// Watch registers it with the informers of factory, which must not have been started.
func New(profile string, policy *decision.Policy, signals []providers.Signal, factory informers.SharedInformerFactory,
	recorder events.EventRecorder, clock clock.Clock) (*Extender, error) {
	owners, err := workload.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	return &Extender{
		profile: profile, policy: policy, owners: owners, pods: factory.Core().V1().Pods().Lister(), recorder: recorder, clock: clock,
		index: newIndex(&node.Reader{Policy: policy, Signals: signals}), pending: newPendingPods(),
		waitedFor: lru.New(maxWaitedFor), revisionLocks: keymutex.NewHashed(revisionLockCount),
	}, nil
}

// appliesTo reports whether the policy applies to pod.
func (e *Extender) appliesTo(pod *v1.Pod) bool {
	return pod.Spec.SchedulerName == e.profile && workload.PolicyApplies(pod)
}

// decisionState is the state of one decision.
type decisionState struct {
	*Extender
	pod              *v1.Pod
	candidates       []*nodeState // nil for an unknown node
	subject          *workload.Subject
	now              time.Time
	plan             decision.Plan
	siblings         siblingCounts
	stored           *pendingPod // the stored state of the pod; nil if there is none
	invalid          []decision.InvalidAnnotation
	since            time.Time // when the pod was first found unschedulable; zero if it never was
	waited           time.Duration
	unknown          int // number of candidates that are not in the index
	verdicts         []decision.Verdict
	candidatesByKind []int // by the index of the kind: candidates; after choose, chosen nodes
}

// decide makes the plan for a pod, decides about the kinds of its candidates (names of nodes), and
// calls do. Until do returns, the index does not change and no other decision about the revision
// is made.
func (e *Extender) decide(ctx context.Context, pod *v1.Pod, candidates []string, do func(*decisionState) error) error {
	subject, err := e.subject(ctx, pod)
	if err != nil {
		return err
	}
	older, err := e.owners.OlderRevisions(subject)
	if err != nil {
		return err
	}
	settings, invalid := e.policy.Settings(&subject.Pod)
	now := e.clock.Now()
	for _, node := range e.index.refresh(now) {
		klog.FromContext(ctx).Info("Node not labeled within its grace", "node", klog.KObj(node),
			"labelGrace", e.policy.LabelGrace, "capacityType", e.policy.UnlabeledNodes)
	}

	e.revisionLocks.LockKey(string(subject.RevisionKey.UID))
	defer func() { _ = e.revisionLocks.UnlockKey(string(subject.RevisionKey.UID)) }() // never fails
	e.index.mu.RLock()
	defer e.index.mu.RUnlock()
	d := &decisionState{
		Extender: e, pod: pod, candidates: make([]*nodeState, len(candidates)), subject: subject, now: now, invalid: invalid, stored: e.pending.get(pod.UID),
		siblings: e.index.countSiblings(subject.RevisionKey, now),
	}
	e.pending.addApprovals(subject.RevisionKey, pod.UID, now, &d.siblings)
	e.index.countNominees(subject.RevisionKey, pod.UID, &d.siblings, func(sibling types.UID) bool { return e.pending.isCounted(sibling, now) })
	var waiting decision.WaitTime
	d.since, _ = workload.WaitingSince(pod, now)
	if d.stored != nil && !d.stored.since.IsZero() {
		d.since = d.stored.since
	}
	if !d.since.IsZero() {
		d.waited = now.Sub(d.since)
		waiting.For = d.waited
		waiting.OlderRevisionOnDemand = settings.ReliefDue(d.waited) && e.index.onOnDemand(older)
		waiting.Healing = e.owners.HasReleased(subject.RevisionKey, workload.HealReason, now)
	}
	d.plan = decision.NewPlan(&subject.Pod, settings, d.siblings.placed, waiting)
	if e.index.evidence.Judge(pod, noVolumes, &subject.Pod, &d.plan) {
		d.plan = decision.NewPlan(&subject.Pod, settings, d.siblings.placed, waiting)
	}
	d.decideByKind(candidates)
	return do(d)
}

// noVolumes returns nil: the extender does not watch PersistentVolumes.
func noVolumes(*v1.Pod) []*v1.PersistentVolume { return nil }

// subject returns workload.Owners.Subject. If the owner is unknown, or if replicas are counted by
// pods and the cache lacks this pod, it retries for a moment. It does so once per pod.
func (e *Extender) subject(ctx context.Context, pod *v1.Pod) (*workload.Subject, error) {
	for deadline := e.clock.Now().Add(arrivalTimeout); ; {
		subject, err := e.owners.Subject(pod)
		unknown := (*workload.UnknownOwner)(nil)
		late := errors.As(err, &unknown) && !unknown.BeingDeleted || err == nil && workload.HasUnsupportedController(pod) && !e.known(pod)
		if !late {
			return subject, err
		}
		if _, before := e.waitedFor.Get(pod.UID); before || !e.clock.Now().Before(deadline) {
			e.waitedFor.Add(pod.UID, nil)
			return subject, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.clock.After(arrivalPollInterval):
		}
	}
}

// known reports whether the cache has a pod.
func (e *Extender) known(pod *v1.Pod) bool {
	cached, err := e.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && cached.UID == pod.UID
}

// decideByKind finds the candidates, counts them by kind, and decides about each kind with
// candidates.
func (d *decisionState) decideByKind(candidates []string) {
	d.candidatesByKind = make([]int, len(d.index.kinds))
	for i, name := range candidates {
		node := d.index.nodes[name]
		d.candidates[i] = node
		if node != nil {
			d.candidatesByKind[node.kind.index]++
		} else {
			d.unknown++
		}
	}
	d.verdicts = make([]decision.Verdict, len(d.index.kinds))
	withheld := d.withheldKinds()
	for i, k := range d.index.kinds {
		if d.candidatesByKind[i] > 0 {
			d.verdicts[i] = d.plan.Admit(k.facts, 0, d.siblings.inPool[k.pool()])
			if withheld[i] {
				d.verdicts[i] = decision.AdmitReserved(d.verdicts[i])
			}
		}
	}
}
