package extender

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

const (
	// arrivesWithin is how long a decision waits for what it needs of a pod to arrive: the scheduler's watch may be ahead of this one's by
	// milliseconds.
	arrivesWithin, arrivesPoll = 200 * time.Millisecond, 10 * time.Millisecond
	// waitedAtMost is of how many pods it is remembered that they were waited for.
	waitedAtMost = 10_000
	// narrowAtMost is how many answers send a pod to one capacity type only. If it comes back more often than that, it is likely that what
	// comes after this extender refuses those nodes.
	narrowAtMost = 2
	// revisionLocks is how many locks the revisions share.
	revisionLocks = 64
)

// unknownNode is the reason for a node that is not in the cache: it may be new, or gone already.
const unknownNode = "node is not known to the extender yet"

// Extender decides placements. All methods may be called concurrently.
type Extender struct {
	profile  string
	policy   *decision.Policy
	owners   *kube.Owners
	pods     corelisters.PodLister
	recorder events.EventRecorder
	clock    clock.Clock

	index    *index
	register *register
	// waitedFor are pods that were waited for in vain: kube-scheduler does nothing else meanwhile, and tries them again every few seconds.
	waitedFor *lru.Cache
	// bindings is how many pods, of any profile, were seen to have been bound.
	bindings atomic.Int64
	// revisions has each decision about a revision wait for the one before, whose approval it has to count.
	revisions [revisionLocks]sync.Mutex
}

// New returns an Extender that decides about the pods whose schedulerName is profile, and counts nothing yet: Watch has it count what the
// informers of factory say, which must not have been started.
func New(profile string, policy *decision.Policy, signals []kube.Signal, factory informers.SharedInformerFactory,
	recorder events.EventRecorder, clock clock.Clock) (*Extender, error) {
	owners, err := kube.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	return &Extender{
		profile: profile, policy: policy, owners: owners, pods: factory.Core().V1().Pods().Lister(), recorder: recorder, clock: clock,
		index: newIndex(&kube.NodeReader{Policy: policy, Signals: signals}), register: newRegister(),
		waitedFor: lru.New(waitedAtMost),
	}, nil
}

// Labels returns what is known of nodes with a capacity label.
func (e *Extender) Labels() *kube.LabelHistory { return &e.index.labels }

// candidates are the nodes that a pod is asked about, by name, and what becomes of them. It can be used again.
type candidates struct {
	names nameList
	// kinds are the indices of their kinds, in the same places; noKind for a node that is not known.
	kinds []int32
	// kept and scores are the memory of answers.
	kept   []int
	scores []int64
}

// candidatesOf returns the nodes of these names as candidates.
func candidatesOf(names []string) *candidates {
	c := &candidates{}
	for _, name := range names {
		c.names.add(name)
	}
	return c
}

// Filtered is what Filter answers. It is good until the candidates are used again.
type Filtered struct {
	// All: the policy has nothing against any of the nodes.
	All bool
	// Kept are the places in names of the nodes that the pod may go to.
	Kept []int
	// Reasons say of each node why not, in the order of names, if none is kept. Otherwise nobody reads them.
	Reasons []string
}

// concerns reports whether the policy says anything about pod.
func (e *Extender) concerns(pod *v1.Pod) bool {
	return pod.Spec.SchedulerName == e.profile && kube.HasOpinion(pod)
}

// Filter decides to which of the nodes the pod may go, and notes that it may. The error says why that cannot be decided now; asked again
// later it can.
func (e *Extender) Filter(ctx context.Context, pod *v1.Pod, c *candidates) (Filtered, error) {
	if !e.concerns(pod) {
		return Filtered{All: true}, nil
	}
	var result Filtered
	var said line
	err := e.decide(ctx, pod, c, func(d *deciding) (err error) {
		result, said, err = d.filter(ctx, c)
		return err
	})
	said.write(ctx) // which may take long, and nobody else need wait for it
	return result, err
}

// filter is Filter within decide.
func (d *deciding) filter(ctx context.Context, c *candidates) (Filtered, line, error) {
	result := d.choose(c)
	if len(result.Kept) == 0 && d.unknown > 0 {
		// A refusal would make the pod wait for something to happen in the cluster; after an error it is tried again by the clock.
		return Filtered{}, nil, fmt.Errorf("%d of %d nodes: %s, and no other one takes the pod", d.unknown, c.names.len(), unknownNode)
	}
	d.note(&result)
	return result, d.line(ctx, c.names.len(), &result), nil
}

// Scores returns the score of each node, in the order of names: 0 to 10, as decision.ExtenderScore says; good until the candidates are used
// again. nil means that all are the same to the pod.
func (e *Extender) Scores(ctx context.Context, pod *v1.Pod, c *candidates) (scores []int64, err error) {
	if !e.concerns(pod) {
		return nil, nil
	}
	err = e.decide(ctx, pod, c, func(d *deciding) error {
		scores = d.scores(c)
		return nil
	})
	return scores, err
}

// deciding is one decision.
type deciding struct {
	*Extender
	pod      *v1.Pod
	subject  *kube.Subject
	now      time.Time
	plan     decision.Plan
	siblings siblings
	before   *asked // what is known of the pod from earlier; nil for nothing
	invalid  []decision.InvalidAnnotation
	waited   time.Duration
	unknown  int // candidates that are not in the index
	verdicts []decision.Verdict
	here     []int // by the index of a kind: how many candidates are of it
}

// decide makes the plan for a pod, looks up its candidates and calls do. Until that returns, nothing changes in the index, and nothing else is
// decided about the revision.
func (e *Extender) decide(ctx context.Context, pod *v1.Pod, c *candidates, do func(*deciding) error) error {
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

	lock := &e.revisions[hashOf(string(subject.RevisionKey.UID))%revisionLocks]
	lock.Lock()
	defer lock.Unlock()
	e.index.mu.RLock()
	defer e.index.mu.RUnlock()
	d := &deciding{
		Extender: e, pod: pod, subject: subject, now: now, invalid: invalid, before: e.register.get(pod.UID),
		siblings: e.index.siblings(subject.RevisionKey, now),
	}
	e.register.count(subject.RevisionKey, pod.UID, now, &d.siblings)
	e.index.countNominees(subject.RevisionKey, pod.UID, &d.siblings, func(sibling types.UID) bool { return e.register.counts(sibling, now) })
	var waiting decision.Waiting
	if d.before != nil && !d.before.since.IsZero() {
		d.waited = now.Sub(d.before.since)
		waiting.For = d.waited
		waiting.OlderOnDemand = settings.Relieves(d.waited) && e.index.onOnDemand(older)
	}
	d.plan = decision.NewPlan(&subject.Pod, settings, d.siblings.placed, waiting)
	d.lookUp(c)
	return do(d)
}

// subject is kube.Owners.Subject. It asks again for a moment, once for each pod, where the owner is not known, or where pods are counted
// of which this one is not among those that are known.
func (e *Extender) subject(ctx context.Context, pod *v1.Pod) (*kube.Subject, error) {
	for deadline := e.clock.Now().Add(arrivesWithin); ; {
		subject, err := e.owners.Subject(pod)
		unknown := (*kube.UnknownOwner)(nil)
		late := errors.As(err, &unknown) && !unknown.Going || err == nil && kube.CountedByPods(pod) && !e.known(pod)
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
		case <-e.clock.After(arrivesPoll):
		}
	}
}

// known reports whether the cache holds a pod.
func (e *Extender) known(pod *v1.Pod) bool {
	cached, err := e.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && cached.UID == pod.UID
}

// lookUp finds the candidates, and decides about every kind of node that is among them.
func (d *deciding) lookUp(c *candidates) {
	d.index.kindsByName.lookUp(c)
	d.here = make([]int, len(d.index.kinds))
	for _, kind := range c.kinds {
		if kind == noKind {
			d.unknown++
		} else {
			d.here[kind]++
		}
	}
	d.verdicts = make([]decision.Verdict, len(d.index.kinds))
	held := d.heldKinds()
	for i, k := range d.index.kinds {
		if d.here[i] > 0 {
			d.verdicts[i] = d.plan.Admit(k.facts, 0, d.siblings.inPool[k.pool()])
			if held[i] {
				d.verdicts[i] = decision.Held(d.verdicts[i])
			}
		}
	}
}

// choose returns the nodes that the pod may go to: of those that the policy admits, the ones of one capacity type only, and where pools are
// capped of one spot pool only. So it is known what the pod is approved for before the scheduler has chosen its node. Of many nodes it
// returns no more than kube-scheduler looks at by default, which is what scoring them takes it time for.
func (d *deciding) choose(c *candidates) Filtered {
	best := decision.NoClass
	for i, k := range d.index.kinds {
		if d.admits(i) {
			best = max(best, d.plan.Class(k.facts))
		}
	}
	narrow := d.before == nil || d.before.approvals < narrowAtMost
	onePool, pool := false, decision.SpreadPool{}
	if narrow && best != decision.NoClass && d.plan.PoolCap > 0 && d.plan.Grant == decision.NotGranted {
		onePool, pool = d.bestPool(c, best)
	}
	chosen := make([]int, len(d.here))
	for i, k := range d.index.kinds {
		if d.admits(i) && (!narrow || d.plan.Class(k.facts) == best && (!onePool || k.pool() == pool)) {
			chosen[i] = d.here[i]
		}
	}
	copy(d.here, chosen)
	at := 0
	if narrow && sample(chosen, enough(c.names.len())) {
		at = rand.IntN(len(c.kinds)) // or some nodes would never get a pod
	}
	result := Filtered{Kept: c.kept[:0]}
	for left := sum(chosen); left > 0; at++ { // all that are chosen mostly stand in a fraction of the names
		if at == len(c.kinds) {
			at = 0
		}
		if kind := c.kinds[at]; kind != noKind && chosen[kind] > 0 {
			chosen[kind]--
			left--
			result.Kept = append(result.Kept, at)
		}
	}
	c.kept = result.Kept
	if len(result.Kept) > 0 {
		return result
	}
	var said [decision.Verdicts]string
	result.Reasons = make([]string, len(c.kinds))
	for i, kind := range c.kinds {
		if kind == noKind {
			result.Reasons[i] = unknownNode
			continue
		}
		v := d.verdicts[kind]
		if said[v] == "" {
			said[v] = d.plan.Reason(v)
		}
		result.Reasons[i] = said[v]
	}
	return result
}

func (d *deciding) admits(kind int) bool {
	return d.here[kind] > 0 && d.verdicts[kind] == decision.Admitted
}

// enough returns how many of so many nodes kube-scheduler scores by default: numFeasibleNodesToFind in its schedule_one.go.
func enough(nodes int) int {
	return min(nodes, max(100, nodes*max(50-nodes/125, 5)/100))
}

// sample lowers the numbers of nodes of each kind until they are together as many as enough, or a few more, and reports whether it had to.
// Kinds of which there are few keep all.
func sample(of []int, enough int) bool {
	fewestFirst := slices.Clone(of)
	slices.Sort(fewestFirst)
	for i, n := range fewestFirst {
		each := max((enough+len(fewestFirst)-i-1)/(len(fewestFirst)-i), 1) // there may be more kinds than enough
		if n > each {
			for kind := range of {
				of[kind] = min(of[kind], each)
			}
			return true
		}
		enough -= n
	}
	return false
}

func sum(of []int) int {
	total := 0
	for _, n := range of {
		total += n
	}
	return total
}

// bestPool returns the pool of the best of the nodes of a class, if that is on spot.
func (d *deciding) bestPool(c *candidates, class decision.Class) (bool, decision.SpreadPool) {
	ranks := d.kindRanks()
	var best decision.Rank
	var found *kind
	for i, kind := range c.kinds {
		if kind == noKind || !d.admits(int(kind)) {
			continue
		}
		k := d.index.kinds[kind]
		if d.plan.Class(k.facts) != class {
			continue
		}
		if rank := d.rank(c.names.at(i), k, ranks); found == nil || rank > best {
			best, found = rank, k
		}
	}
	if found == nil || found.facts.Capacity.Type != decision.Spot {
		return false, decision.SpreadPool{}
	}
	return true, found.pool()
}

// kindRanks returns the rank of a node of each kind that is among the candidates, if none of the siblings is on it.
func (d *deciding) kindRanks() []decision.Rank {
	ranks := make([]decision.Rank, len(d.here))
	for i, k := range d.index.kinds {
		if d.here[i] > 0 {
			ranks[i] = d.plan.Rank(k.facts, d.around(k, 0), 0)
		}
	}
	return ranks
}

// rank returns the rank of a node, given its kind and the ranks of all kinds.
func (d *deciding) rank(node string, k *kind, ofKind []decision.Rank) decision.Rank {
	if pods := d.siblings.onNode[node]; pods > 0 {
		return d.plan.Rank(k.facts, d.around(k, pods), 0)
	}
	return ofKind[k.index]
}

func (d *deciding) around(k *kind, onNode int) decision.Siblings {
	around := decision.Siblings{OnNode: onNode, InZone: d.siblings.inZone[k.zone]}
	if k.facts.Capacity.Type == decision.Spot { // on-demand nodes are not reclaimed with their pool
		around.InPool = d.siblings.inPool[k.pool()]
	}
	return around
}

// scores returns the score of every candidate.
func (d *deciding) scores(c *candidates) []int64 {
	ofKind := d.kindRanks()
	// Few ranks differ: those of the kinds, and those of the nodes with siblings.
	ranks := make([]decision.Rank, 0, len(ofKind)+len(d.siblings.onNode))
	for i, rank := range ofKind {
		if d.here[i] > 0 {
			ranks = append(ranks, rank)
		}
	}
	for i, kind := range c.kinds {
		if kind != noKind && d.siblings.onNode[c.names.at(i)] > 0 {
			ranks = append(ranks, d.rank(c.names.at(i), d.index.kinds[kind], ofKind))
		}
	}
	bands := slices.Clone(ranks)
	decision.ScoreBands(bands)
	score := make(map[decision.Rank]int64, len(ranks))
	for i, rank := range ranks {
		score[rank] = decision.ExtenderScore(bands[i])
	}
	kindScore := make([]int64, len(ofKind))
	for i, rank := range ofKind {
		kindScore[i] = score[rank]
	}
	scores := slices.Grow(c.scores[:0], len(c.kinds))[:len(c.kinds)]
	c.scores = scores
	for i, kind := range c.kinds {
		switch {
		case kind == noKind:
			scores[i] = 0
		case d.siblings.onNode[c.names.at(i)] > 0:
			scores[i] = score[d.rank(c.names.at(i), d.index.kinds[kind], ofKind)]
		default:
			scores[i] = kindScore[kind]
		}
	}
	return scores
}

// note notes what the pod was approved for, or that it waits.
func (d *deciding) note(result *Filtered) {
	entry := d.entry()
	if _, bound := d.index.bound[d.pod.UID]; bound {
		return // it counts where it is, and nothing will come any more that says so again
	}
	entry.last, entry.plan, entry.inPool, entry.onDemand, entry.forOnDemand = d.now, d.plan, d.siblings.inPool, false, false
	if len(d.invalid) > 0 && !slices.Equal(d.invalid, entry.invalid) {
		d.reportInvalid(d.pod, d.invalid)
	}
	entry.invalid = d.invalid
	if len(result.Kept) == 0 {
		if entry.since.IsZero() {
			entry.since = d.now
		}
		entry.forOnDemand = d.plan.MustHaveOnDemand()
		d.register.put(entry)
		return
	}
	entry.approvals++
	pools := map[decision.SpreadPool]bool{}
	maps.Copy(pools, entry.pools)
	onSpot := false
	for i, k := range d.index.kinds {
		if d.here[i] == 0 {
			continue
		}
		if k.facts.Capacity.Type == decision.OnDemand {
			entry.onDemand = true
			continue
		}
		onSpot = true
		if d.plan.PoolCap > 0 {
			pools[k.pool()] = true
		}
	}
	if entry.onDemand && onSpot {
		// It is likely to get what it prefers; what it may get counts too.
		entry.onDemand = d.plan.Prefer == decision.OnDemand
	}
	entry.spot, entry.pools = entry.spot || onSpot, pools
	d.register.put(entry)
}

// line is a line of the log about a decision: keys and values; nil for none.
type line []any

func (l line) write(ctx context.Context) {
	if l != nil {
		klog.FromContext(ctx).V(2).Info("Decided", l...)
	}
}

// line says what was decided and why.
func (d *deciding) line(ctx context.Context, asked int, result *Filtered) line {
	if !klog.FromContext(ctx).V(2).Enabled() {
		return nil
	}
	answer := "refused"
	if len(result.Kept) > 0 {
		var types []string
		for _, t := range []decision.CapacityType{decision.OnDemand, decision.Spot} {
			if slices.ContainsFunc(d.index.kinds, func(k *kind) bool { return d.here[k.index] > 0 && k.facts.Capacity.Type == t }) {
				types = append(types, t.String())
			}
		}
		answer = strings.Join(types, " or ")
	}
	var reasons []string
	for v, has := range d.verdictsHere() {
		if has {
			reasons = append(reasons, d.plan.Reason(decision.Verdict(v)))
		}
	}
	workload := d.subject.Pod.Workload
	return line{"pod", klog.KObj(d.pod), "workload", workload.Kind + " " + workload.Revision, "desired", workload.Desired,
		"floor", d.plan.Floor, "spotBudget", d.plan.Budget, "onSpot", d.siblings.placed.Spot, "onDemand", d.siblings.placed.OnDemand,
		"waited", d.waited.Round(time.Millisecond), "answer", answer, "nodes", len(result.Kept), "of", asked,
		"refusals", strings.Join(reasons, "; ")}
}

// verdictsHere reports by which verdicts candidates were refused.
func (d *deciding) verdictsHere() (has [decision.Verdicts]bool) {
	for _, v := range d.verdicts {
		has[v] = true
	}
	has[decision.Admitted] = false
	return has
}
