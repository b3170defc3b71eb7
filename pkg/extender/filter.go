package extender

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// filtered is the result of filter.
type filtered struct {
	// admitted has the indices of the candidates that the pod may use.
	admitted []int
	// reasons has the reason for refusing each candidate. It is set only if admitted is empty.
	reasons []string
}

// filter returns the candidates that the pod may use, and records this as an approval. An error
// means that the extender cannot decide now; the scheduler should retry.
func (e *Extender) filter(ctx context.Context, pod *v1.Pod, candidates []string) (result filtered, err error) {
	if !e.appliesTo(pod) {
		for i := range candidates {
			result.admitted = append(result.admitted, i)
		}
		return result, nil
	}
	logger := klog.FromContext(ctx).V(2)
	var line []any
	err = e.decide(ctx, pod, candidates, func(d *decisionState) error {
		result = d.choose()
		if len(result.admitted) == 0 && d.unknown > 0 {
			// A refusal makes the pod wait for an event in the cluster. After an error, the
			// scheduler retries after its backoff.
			return fmt.Errorf("%d of %d nodes: %s, and no other node is admitted", d.unknown, len(d.candidates), unknownNodeReason)
		}
		d.recordAnswer(&result)
		if logger.Enabled() {
			line = d.describe(&result)
		}
		return nil
	})
	if line != nil {
		logger.Info("Filtered nodes", line...) // outside the locks, because writing may be slow
	}
	return result, err
}

// choose returns the nodes that the pod may use. Of the nodes that the policy admits, it returns
// nodes of one capacity type only. If pools are capped, it returns one spot pool only. So the
// approval is known before the scheduler has chosen a node. Of many nodes it returns no more than
// kube-scheduler scores by default, to save scoring time.
func (d *decisionState) choose() filtered {
	best := decision.NoRankClass
	for i, k := range d.index.kinds {
		if d.admits(i) {
			best = max(best, d.plan.RankClass(k.facts))
		}
	}
	narrow := d.stored == nil || d.stored.approvals < maxNarrowAnswers
	onePool, pool := false, decision.SpreadPool{}
	if narrow && best != decision.NoRankClass && d.plan.PoolCap > 0 && d.plan.Grant == decision.NotGranted {
		onePool, pool = d.bestPool(best)
	}
	chosen := make([]int, len(d.candidatesByKind))
	for i, k := range d.index.kinds {
		if d.admits(i) && (!narrow || d.plan.RankClass(k.facts) == best && (!onePool || k.pool() == pool)) {
			chosen[i] = d.candidatesByKind[i]
		}
	}
	copy(d.candidatesByKind, chosen)
	at := 0
	if narrow && limitPerKind(chosen, nodesToScore(len(d.candidates))) {
		at = rand.IntN(len(d.candidates)) // so that every node is returned at some time
	}
	left := 0
	for _, n := range chosen {
		left += n
	}
	result := filtered{admitted: make([]int, 0, left)}
	for ; left > 0; at++ { // the chosen nodes usually occupy a small part of the candidates
		if at == len(d.candidates) {
			at = 0
		}
		if node := d.candidates[at]; node != nil && chosen[node.kind.index] > 0 {
			chosen[node.kind.index]--
			left--
			result.admitted = append(result.admitted, at)
		}
	}
	if len(result.admitted) > 0 {
		return result
	}
	var reasons [decision.Verdicts]string
	result.reasons = make([]string, len(d.candidates))
	for i, node := range d.candidates {
		if node == nil {
			result.reasons[i] = unknownNodeReason
			continue
		}
		v := d.verdicts[node.kind.index]
		if reasons[v] == "" {
			reasons[v] = d.plan.Reason(v)
		}
		result.reasons[i] = reasons[v]
	}
	return result
}

func (d *decisionState) admits(kind int) bool {
	return d.candidatesByKind[kind] > 0 && d.verdicts[kind] == decision.Admitted
}

// nodesToScore returns the number of nodes that kube-scheduler scores by default:
// numFeasibleNodesToFind in its schedule_one.go.
func nodesToScore(nodes int) int {
	return min(nodes, max(100, nodes*max(50-nodes/125, 5)/100))
}

// limitPerKind lowers the numbers of nodes by kind until their sum is enough or slightly more.
// Kinds with few nodes are not lowered. It reports whether it lowered any number.
func limitPerKind(counts []int, enough int) bool {
	fewestFirst := slices.Clone(counts)
	slices.Sort(fewestFirst)
	for i, n := range fewestFirst {
		each := max((enough+len(fewestFirst)-i-1)/(len(fewestFirst)-i), 1) // there may be more kinds than enough
		if n > each {
			for kind := range counts {
				counts[kind] = min(counts[kind], each)
			}
			return true
		}
		enough -= n
	}
	return false
}

// bestPool returns the spot pool of the best node of a class; false if that node is not on spot.
func (d *decisionState) bestPool(class decision.RankClass) (bool, decision.SpreadPool) {
	var best decision.Rank
	var found *kind
	for _, node := range d.candidates {
		if node == nil || !d.admits(node.kind.index) || d.plan.RankClass(node.kind.facts) != class {
			continue
		}
		if rank := d.rank(node); found == nil || rank > best {
			best, found = rank, node.kind
		}
	}
	if found == nil || found.facts.Capacity.Type != decision.Spot {
		return false, decision.SpreadPool{}
	}
	return true, found.pool()
}

// recordAnswer records the approval of the pod, or that the pod waits.
func (d *decisionState) recordAnswer(result *filtered) {
	entry := d.entry()
	if _, bound := d.index.bound[d.pod.UID]; bound {
		return // the index counts it, and no later event would remove the entry
	}
	entry.lastAsked, entry.plan, entry.inPool, entry.onDemand, entry.forOnDemand = d.now, d.plan, d.siblings.inPool, false, false
	if len(d.invalid) > 0 && !slices.Equal(d.invalid, entry.invalid) {
		profilemetrics.RecordInvalidAnnotations(d.profile, len(d.invalid))
		workload.RecordInvalid(d.recorder, d.pod, d.invalid)
	}
	entry.invalid = d.invalid
	if len(result.admitted) == 0 {
		if entry.since = d.since; entry.since.IsZero() {
			entry.since = d.now
		}
		entry.forOnDemand = d.plan.RequiresOnDemand()
		d.pending.put(entry)
		return
	}
	entry.approvals++
	pools := map[decision.SpreadPool]bool{}
	maps.Copy(pools, entry.pools)
	onSpot := false
	for i, k := range d.index.kinds {
		if d.candidatesByKind[i] == 0 {
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
		// The pod probably gets the capacity type that it prefers, but the other one counts too.
		entry.onDemand = d.plan.Prefer == decision.OnDemand
	}
	entry.spot, entry.pools = entry.spot || onSpot, pools
	d.pending.put(entry)
}

// describe returns the keys and values of a log line about the decision and its reasons.
func (d *decisionState) describe(result *filtered) []any {
	answer := "refused"
	if len(result.admitted) > 0 {
		var types []string
		for _, t := range []decision.CapacityType{decision.OnDemand, decision.Spot} {
			if slices.ContainsFunc(d.index.kinds, func(k *kind) bool { return d.candidatesByKind[k.index] > 0 && k.facts.Capacity.Type == t }) {
				types = append(types, t.String())
			}
		}
		answer = strings.Join(types, " or ")
	}
	var reasons []string
	for v := decision.Admitted + 1; v < decision.Verdicts; v++ {
		if slices.Contains(d.verdicts, v) {
			reasons = append(reasons, d.plan.Reason(v))
		}
	}
	owner := d.subject.Pod.Workload
	return []any{"pod", klog.KObj(d.pod), "workload", owner.Kind + " " + owner.Revision, "desired", owner.Desired,
		"floor", d.plan.Floor, "spotBudget", d.plan.Budget, "onSpot", d.siblings.placed.Spot, "onDemand", d.siblings.placed.OnDemand,
		"waited", d.waited.Round(time.Millisecond), "answer", answer, "nodes", len(result.admitted), "of", len(d.candidates),
		"refusals", strings.Join(reasons, "; ")}
}
