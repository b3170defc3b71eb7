// Package extender makes placement decisions for a stock kube-scheduler, over the
// scheduler-extender protocol. It adapts the protocol to package placement, which the scheduler
// plugins use too, and feeds it from informers instead of the scheduler's snapshot.
//
// The extender differs from the plugins in one point. A scheduler assumes a pod on its node at
// once, but an extender learns of the binding later, from a watch. Therefore an answer is an
// approval: it counts like a pod until the watch shows that the pod is bound.
// docs/design/extender.md explains why this is safe.
package extender

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	// maxNarrowAnswers is the number of answers that send a pod to one capacity type only. If the
	// scheduler asks again after these, a later filter probably refuses those nodes.
	maxNarrowAnswers = 2
	// nominationTimeout is the time within which the watch shows the pod's nomination.
	nominationTimeout = 10 * time.Second
	// deletedFor is the time for which deleted pods are known. A request is older than its pod's
	// deletion only if the scheduler's watch is slower than the extender's.
	deletedFor = 5 * time.Minute
	// unknownNodeReason is the reason for a node that is not in the cache: the node may be new or
	// already deleted.
	unknownNodeReason = "node is not known to the extender yet"
)

// Extender makes placement decisions. It is safe for concurrent use.
type Extender struct {
	profile     string
	policy      *decision.Policy
	owners      *workload.Owners
	pods        corelisters.PodLister
	recorder    events.EventRecorder
	clock       clock.WithDelayedExecution
	waiting     *placement.WaitingPods
	nominations *placement.Nominations
	// gauges reads metrics. Only RegisterMetrics uses it.
	gauges profilemetrics.Cluster

	// placements counts the observed bindings and nominations of pods of all profiles.
	placements atomic.Int64

	// mu serializes decisions and events: each decision counts all earlier approvals.
	mu      sync.Mutex
	cluster *placement.Cluster
	asked   map[types.UID]*askedPod
	// deleted contains the pods that were deleted in the past deletedFor.
	deleted *utilcache.Expiring
}

// New returns an Extender for the pods whose schedulerName is profile. It counts nothing until
// Watch registers it with the informers of factory, which must not have been started.
func New(profile string, policy *decision.Policy, signals []providers.Signal, factory informers.SharedInformerFactory,
	recorder events.EventRecorder, clock clock.WithDelayedExecution) (*Extender, error) {
	owners, err := workload.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	core, reader := factory.Core().V1(), &node.Reader{Policy: policy, Signals: signals}
	// kube-scheduler itself decides when to retry a pod.
	waiting := placement.NewWaitingPods(clock, func(map[string]*v1.Pod) {})
	return &Extender{
		profile: profile, policy: policy, owners: owners, pods: core.Pods().Lister(), recorder: recorder, clock: clock,
		waiting:     waiting,
		nominations: placement.NewNominations(),
		cluster:     placement.NewCluster(reader),
		deleted:     utilcache.NewExpiringWithClock(clock),
		asked:       map[types.UID]*askedPod{},
		gauges: profilemetrics.Cluster{
			Profile: profile, Nodes: core.Nodes().Lister(), Reader: reader, Pods: core.Pods().Lister(), Owners: owners, VolumesOf: noVolumes,
			Includes: workload.Scope{Profile: profile}.Includes, Waiting: waiting.ForOnDemand, Clock: clock,
		},
	}, nil
}

// SetPools sets the pools from which an autoscaler adds nodes. It must be called before Watch.
func (e *Extender) SetPools(pools *workload.Pools) {
	e.cluster.Evidence.Pools, e.gauges.Pools = pools, pools
}

func (e *Extender) appliesTo(pod *v1.Pod) bool {
	return pod.Spec.SchedulerName == e.profile && workload.PolicyApplies(pod)
}

// decide makes the decision for a pod and passes it to use, with the entry of the pod. Until use
// returns, nothing changes and no other decision is made.
func (e *Extender) decide(pod *v1.Pod, use func(*placement.State, *askedPod) error) error {
	subject, err := e.owners.Subject(pod)
	if err != nil {
		return err
	}
	if workload.HasUnsupportedController(pod) {
		if cached, err := e.pods.Pods(pod.Namespace).Get(pod.Name); err != nil || cached.UID != pod.UID {
			subject.Pod.Workload.Desired++ // it is the number of cached pods, which do not include this one
		}
	}
	attempt := placement.Attempt{Pod: pod, Subject: subject}
	attempt.Settings, attempt.Invalid = e.policy.Settings(&subject.Pod)
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, deleted := e.deleted.Get(pod.UID); deleted {
		return errors.New("the pod was deleted") // no later event would end an approval
	}
	now := e.clock.Now()
	e.cluster.Refresh(now)
	var unbound []placement.UnboundPod
	counted := sets.New[types.UID]()
	for uid, other := range e.asked {
		if uid == pod.UID || other.revision != subject.RevisionKey {
			continue
		}
		if as, ok := other.counts(e.cluster, now); ok {
			unbound = append(unbound, as)
			counted.Insert(uid)
		}
	}
	for _, nominated := range e.nominations.Siblings(pod) {
		if !counted.Has(nominated.Pod.UID) {
			unbound = append(unbound, nominated)
		}
	}
	waiting := e.waiting.View(pod, placement.Gang{}, false, e.cluster.Counter)
	state, err := e.cluster.Decide(attempt, waiting, e.owners, noVolumes, now, unbound...)
	if err != nil {
		return err
	}
	asked := e.asked[pod.UID]
	if asked == nil || now.Sub(asked.lastAsked) >= maxApproval {
		asked = &askedPod{lastAsked: now}
	}
	asked.pod, asked.revision = pod, subject.RevisionKey
	return use(state, asked)
}

// noVolumes returns nil: the extender does not watch PersistentVolumes.
func noVolumes(*v1.Pod) []*v1.PersistentVolume { return nil }

func (e *Extender) record(asked *askedPod) {
	if !e.cluster.IsBound(asked.pod.UID) { // a bound pod counts already, and no event would remove the entry
		e.asked[asked.pod.UID] = asked
	}
}

// filter returns the candidates (names of nodes) that the pod may use, and records this as an
// approval. If there are none, it returns the reason for refusing each candidate. An error means
// that the extender cannot decide now; the scheduler should retry.
func (e *Extender) filter(ctx context.Context, pod *v1.Pod, candidates []string) (admitted []string, refused map[string]string, err error) {
	if !e.appliesTo(pod) {
		return candidates, nil, nil
	}
	var fields []any
	err = e.decide(pod, func(state *placement.State, asked *askedPod) (err error) {
		if asked.answers < maxNarrowAnswers {
			// The nodes have one capacity type, and if pools are capped one spot pool. So the
			// approval is known before the scheduler has chosen a node.
			for _, i := range state.Select(candidates) {
				admitted = append(admitted, candidates[i])
			}
		}
		if len(admitted) == 0 {
			if admitted, refused, err = e.examine(state, candidates); err != nil {
				return err
			}
		}
		e.recordAnswer(state, asked, admitted)
		fields = append(state.LogFields(), "waited", state.Waited.Round(time.Millisecond), "admitted", len(admitted), "candidates",
			len(candidates), "mayRunOnSpot", asked.approval.Spot > 0, "mayRunOnOnDemand", asked.approval.OnDemand > 0)
		return nil
	})
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Filtered nodes", fields...) // without the lock, because writing may be slow
	}
	return admitted, refused, err
}

// examine returns all candidates that the policy admits, or the reasons if it admits none.
func (e *Extender) examine(state *placement.State, candidates []string) (admitted []string, refused map[string]string, err error) {
	unknown := 0
	refused = make(map[string]string, len(candidates))
	var reasons [decision.Verdicts]string
	for _, name := range candidates {
		verdict := state.Admit(name)
		if verdict == decision.Admitted {
			admitted = append(admitted, name)
			continue
		}
		if !e.cluster.HasNode(name) {
			unknown++
		}
		if reasons[verdict] == "" {
			reasons[verdict] = state.Plan.Reason(verdict)
		}
		refused[name] = reasons[verdict]
	}
	switch {
	case len(admitted) > 0:
		return admitted, nil, nil
	case unknown > 0:
		// A refusal makes the pod wait for an event in the cluster. After an error, the scheduler
		// retries after its backoff.
		return nil, nil, fmt.Errorf("%d of %d nodes: %s, and no other node is admitted", unknown, len(candidates), unknownNodeReason)
	}
	return nil, refused, nil
}

// recordAnswer records the approval of the pod for these nodes, or that the pod waits.
func (e *Extender) recordAnswer(state *placement.State, asked *askedPod, admitted []string) {
	if len(state.Invalid) > 0 && !slices.Equal(state.Invalid, asked.invalid) {
		profilemetrics.RecordInvalidAnnotations(e.profile, len(state.Invalid))
		workload.RecordInvalid(e.recorder, asked.pod, state.Invalid)
	}
	asked.lastAsked, asked.invalid, asked.plan, asked.inPools = e.clock.Now(), state.Invalid, state.Plan, state.InCappedPools()
	var pools []decision.SpreadPool
	for _, name := range admitted {
		if _, pool, _ := e.cluster.Node(name); len(pools) == 0 || pool != pools[len(pools)-1] {
			pools = append(pools, pool)
		}
	}
	asked.allow(pools, &state.Plan)
	if e.record(asked); len(admitted) > 0 {
		asked.answers++
	} else if !e.cluster.IsBound(asked.pod.UID) {
		e.waiting.AddUnschedulable(asked.pod, placement.Wait{ForOnDemand: state.Plan.RequiresOnDemand()})
	}
}

// scores returns the score of each candidate, from 0 to 10 as defined by decision.ExtenderScore.
// All are 0 if the policy does not apply to the pod; so is the score of an unknown node.
func (e *Extender) scores(pod *v1.Pod, candidates []string) (extenderv1.HostPriorityList, error) {
	scores := make(extenderv1.HostPriorityList, len(candidates))
	for i, name := range candidates {
		scores[i].Host = name
	}
	if !e.appliesTo(pod) {
		return scores, nil
	}
	return scores, e.decide(pod, func(state *placement.State, _ *askedPod) error {
		var known []int
		var ranks []decision.Rank
		for i, name := range candidates {
			if e.cluster.HasNode(name) {
				known, ranks = append(known, i), append(ranks, state.Rank(name))
			}
		}
		decision.ScoreBands(ranks)
		for at, i := range known {
			scores[i].Score = decision.ExtenderScore(ranks[at])
		}
		return nil
	})
}

// admitPreemption removes the candidates on which the pod may not preempt other pods. Every
// candidate has room for the pod after an eviction, and the scheduler may soon nominate the pod to
// one. So the pod counts for nominationTimeout, and its siblings preempt no more than the budget
// permits.
func (e *Extender) admitPreemption(pod *v1.Pod, candidates map[string]*extenderv1.MetaVictims) error {
	if !e.appliesTo(pod) {
		return nil
	}
	return e.decide(pod, func(state *placement.State, asked *askedPod) error {
		state.SimulatePreemption()
		maps.DeleteFunc(candidates, func(name string, _ *extenderv1.MetaVictims) bool { return state.Admit(name) != decision.Admitted })
		if len(candidates) == 0 {
			return nil
		}
		asked.claim, asked.claimUntil = decision.PlacedPods{OnDemand: 1}, e.clock.Now().Add(nominationTimeout)
		for name := range candidates {
			if _, pool, _ := e.cluster.Node(name); pool.Capacity == decision.Spot {
				asked.claim = decision.PlacedPods{Spot: 1}
			}
		}
		e.record(asked)
		return nil
	})
}
