package extender

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
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

	// mu serializes decisions and events: each decision counts all earlier approvals.
	mu      sync.Mutex
	cluster *placement.Cluster
	asked   askedPods
	// bindings counts the observed bindings of pods of all profiles.
	bindings int
}

// New returns an Extender for the pods whose schedulerName is profile. It counts nothing until
// Watch registers it with the informers of factory, which must not have been started.
func New(profile string, policy *decision.Policy, signals []providers.Signal, factory informers.SharedInformerFactory,
	recorder events.EventRecorder, clock clock.WithDelayedExecution) (*Extender, error) {
	owners, err := workload.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	return &Extender{
		profile: profile, policy: policy, owners: owners, pods: factory.Core().V1().Pods().Lister(), recorder: recorder, clock: clock,
		// kube-scheduler itself decides when to retry a pod.
		waiting:     placement.NewWaitingPods(clock, func(map[string]*v1.Pod) {}),
		nominations: placement.NewNominations(),
		cluster:     placement.NewCluster(&node.Reader{Policy: policy, Signals: signals}),
		asked:       askedPods{map[types.UID]*askedPod{}, workload.Groups[workload.OwnerKey, *askedPod]{}},
	}, nil
}

// appliesTo reports whether the policy applies to pod.
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
	cached, err := e.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || cached.UID != pod.UID {
		if cached = pod; workload.HasUnsupportedController(pod) {
			subject.Pod.Workload.Desired++ // it is the number of cached pods, which do not include this one
		}
	}
	attempt := placement.Attempt{Pod: pod, Subject: subject}
	attempt.Settings, attempt.Invalid = e.policy.Settings(&subject.Pod)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	e.cluster.Refresh(now)
	var unbound []placement.UnboundPod
	for uid, other := range e.asked.byRevision[subject.RevisionKey] {
		if as, ok := other.counts(e.cluster, now); ok && uid != pod.UID {
			unbound = append(unbound, as)
		}
	}
	for _, nominated := range e.nominations.Siblings(pod) {
		if other := e.asked.pods[nominated.Pod.UID]; other != nil {
			if _, counted := other.counts(e.cluster, now); counted {
				continue
			}
		}
		unbound = append(unbound, nominated)
	}
	waiting := e.waiting.View(pod, placement.Gang{}, false, e.cluster.Counter)
	state, err := e.cluster.Decide(attempt, waiting, e.owners, noVolumes, now, unbound...)
	if err != nil {
		return err
	}
	asked := e.asked.pods[pod.UID]
	if asked == nil {
		asked = &askedPod{lastAsked: now}
	}
	asked.pod = cached // a request has no containers
	return use(state, asked)
}

// noVolumes returns nil: the extender does not watch PersistentVolumes.
func noVolumes(*v1.Pod) []*v1.PersistentVolume { return nil }

// record stores the entry of a pod after an answer.
func (e *Extender) record(state *placement.State, asked *askedPod) {
	if !e.cluster.IsBound(asked.pod.UID) { // a bound pod counts already, and no event would remove the entry
		e.asked.put(state.Subject.RevisionKey, asked)
	}
}

// filtered is the result of filter.
type filtered struct {
	// admitted has the indices of the candidates that the pod may use.
	admitted []int
	// reasons has the reason for refusing each candidate. It is set only if admitted is empty.
	reasons []string
}

// filter returns the candidates (names of nodes) that the pod may use, and records this as an
// approval. An error means that the extender cannot decide now; the scheduler should retry.
func (e *Extender) filter(ctx context.Context, pod *v1.Pod, candidates []string) (result filtered, err error) {
	if !e.appliesTo(pod) {
		for i := range candidates {
			result.admitted = append(result.admitted, i)
		}
		return result, nil
	}
	var line []any
	logger := klog.FromContext(ctx).V(2)
	err = e.decide(pod, func(state *placement.State, asked *askedPod) (err error) {
		if asked.answers < maxNarrowAnswers {
			// The nodes have one capacity type, and if pools are capped one spot pool. So the
			// approval is known before the scheduler has chosen a node.
			result.admitted = state.Select(candidates)
		}
		if len(result.admitted) == 0 {
			if result, err = e.examine(state, candidates); err != nil {
				return err
			}
		}
		e.recordAnswer(state, asked, candidates, &result)
		if logger.Enabled() {
			line = append(state.LogFields(), "waited", state.Waited.Round(time.Millisecond), "admitted", len(result.admitted),
				"candidates", len(candidates), "mayRunOnSpot", asked.onSpot, "mayRunOnOnDemand", asked.onDemand)
		}
		return nil
	})
	if line != nil {
		logger.Info("Filtered nodes", line...) // without the lock, because writing may be slow
	}
	return result, err
}

// examine returns all candidates that the policy admits, or the reasons if it admits none.
func (e *Extender) examine(state *placement.State, candidates []string) (result filtered, err error) {
	unknown := 0
	verdicts := make([]decision.Verdict, len(candidates))
	for i, name := range candidates {
		if verdicts[i] = state.Admit(name); verdicts[i] == decision.Admitted {
			result.admitted = append(result.admitted, i)
		} else if !e.cluster.HasNode(name) {
			unknown++
		}
	}
	switch {
	case len(result.admitted) > 0:
		return result, nil
	case unknown > 0:
		// A refusal makes the pod wait for an event in the cluster. After an error, the scheduler
		// retries after its backoff.
		return result, fmt.Errorf("%d of %d nodes: %s, and no other node is admitted", unknown, len(candidates), unknownNodeReason)
	}
	var reasons [decision.Verdicts]string
	for _, verdict := range verdicts {
		if reasons[verdict] == "" {
			reasons[verdict] = state.Plan.Reason(verdict)
		}
		result.reasons = append(result.reasons, reasons[verdict])
	}
	return result, nil
}

// recordAnswer records the approval of the pod, or that the pod waits.
func (e *Extender) recordAnswer(state *placement.State, asked *askedPod, candidates []string, result *filtered) {
	if len(state.Invalid) > 0 && !slices.Equal(state.Invalid, asked.invalid) {
		profilemetrics.RecordInvalidAnnotations(e.profile, len(state.Invalid))
		workload.RecordInvalid(e.recorder, asked.pod, state.Invalid)
	}
	asked.lastAsked, asked.invalid, asked.plan, asked.inPools = e.clock.Now(), state.Invalid, state.Plan, state.InCappedPools()
	var pools []decision.SpreadPool
	for _, i := range result.admitted {
		if _, pool, _ := e.cluster.Node(candidates[i]); len(pools) == 0 || pool != pools[len(pools)-1] {
			pools = append(pools, pool)
		}
	}
	asked.allow(pools, &state.Plan)
	if e.record(state, asked); len(result.admitted) > 0 {
		asked.answers++
	} else if !e.cluster.IsBound(asked.pod.UID) {
		e.waiting.AddUnschedulable(asked.pod, placement.Wait{ForOnDemand: state.Plan.RequiresOnDemand()})
	}
}

// scores returns the score of each candidate, from 0 to 10 as defined by decision.ExtenderScore.
// All are 0 if the policy does not apply to the pod; so is the score of an unknown node.
func (e *Extender) scores(pod *v1.Pod, candidates []string) ([]int64, error) {
	scores := make([]int64, len(candidates))
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
			scores[i] = decision.ExtenderScore(ranks[at])
		}
		return nil
	})
}

// preemptionNodes returns the candidates on which the pod may preempt other pods. Every candidate
// has room for the pod after an eviction, and the scheduler may soon nominate the pod to one. So
// the pod counts for nominationTimeout, and its siblings preempt no more than the budget permits.
func (e *Extender) preemptionNodes(pod *v1.Pod, candidates []string) (open map[string]bool, err error) {
	open = map[string]bool{}
	if !e.appliesTo(pod) {
		for _, name := range candidates {
			open[name] = true
		}
		return open, nil
	}
	return open, e.decide(pod, func(state *placement.State, asked *askedPod) error {
		state.SimulatePreemption()
		claim := decision.PlacedPods{OnDemand: 1}
		for _, name := range candidates {
			if state.Admit(name) != decision.Admitted {
				continue
			}
			open[name] = true
			if _, pool, _ := e.cluster.Node(name); pool.Capacity == decision.Spot {
				claim = decision.PlacedPods{Spot: 1}
			}
		}
		if len(open) > 0 {
			asked.claim, asked.claimUntil = claim, e.clock.Now().Add(nominationTimeout)
			e.record(state, asked)
		}
		return nil
	})
}
