package extender

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// scores returns the score of each candidate, from 0 to 10 as defined by decision.ExtenderScore.
// All are 0 if the policy does not apply to the pod; so is the score of an unknown node.
func (e *Extender) scores(ctx context.Context, pod *v1.Pod, candidates []string) ([]int64, error) {
	scores := make([]int64, len(candidates))
	if !e.appliesTo(pod) {
		return scores, nil
	}
	return scores, e.decide(ctx, pod, candidates, func(d *decisionState) error {
		var known []int
		var ranks []decision.Rank
		for i, node := range d.candidates {
			if node != nil {
				known, ranks = append(known, i), append(ranks, d.rank(node))
			}
		}
		decision.ScoreBands(ranks)
		for at, i := range known {
			scores[i] = decision.ExtenderScore(ranks[at])
		}
		return nil
	})
}

// rank returns the rank of a known node.
func (d *decisionState) rank(node *nodeState) decision.Rank {
	around := decision.Siblings{OnNode: d.siblings.onNode[node.name], InZone: d.siblings.inZone[node.kind.zone]}
	if node.kind.facts.Capacity.Type == decision.Spot { // an on-demand node is not reclaimed with its pool
		around.InPool = d.siblings.inPool[node.kind.pool()]
	}
	return d.plan.Rank(node.kind.facts, around, 0)
}
