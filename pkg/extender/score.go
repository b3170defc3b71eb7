package extender

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// scores returns the score of each candidate, from 0 to 10 as defined by decision.ExtenderScore.
// nil means that the pod has no preference.
func (e *Extender) scores(ctx context.Context, pod *v1.Pod, candidates []*nodeState) (scores []int64, err error) {
	if !e.appliesTo(pod) {
		return nil, nil
	}
	err = e.decide(ctx, pod, candidates, func(d *decisionState) error {
		scores = d.score()
		return nil
	})
	return scores, err
}

// kindRanks returns the rank of a node of each candidate kind, if no sibling runs on it.
func (d *decisionState) kindRanks() []decision.Rank {
	ranks := make([]decision.Rank, len(d.candidatesByKind))
	for i, k := range d.index.kinds {
		if d.candidatesByKind[i] > 0 {
			ranks[i] = d.plan.Rank(k.facts, d.siblingsNear(k, 0), 0)
		}
	}
	return ranks
}

// rank returns the rank of a known node, given the ranks of all kinds.
func (d *decisionState) rank(node *nodeState, kindRanks []decision.Rank) decision.Rank {
	if pods := d.siblings.onNode[node.name]; pods > 0 {
		return d.plan.Rank(node.kind.facts, d.siblingsNear(node.kind, pods), 0)
	}
	return kindRanks[node.kind.index]
}

func (d *decisionState) siblingsNear(k *kind, onNode int) decision.Siblings {
	around := decision.Siblings{OnNode: onNode, InZone: d.siblings.inZone[k.zone]}
	if k.facts.Capacity.Type == decision.Spot { // an on-demand node is not reclaimed with its pool
		around.InPool = d.siblings.inPool[k.pool()]
	}
	return around
}

// score implements scores within decide.
func (d *decisionState) score() []int64 {
	kindRanks := d.kindRanks()
	// Only few ranks differ: those by kind, and those by node with siblings.
	ranks := make([]decision.Rank, 0, len(kindRanks)+len(d.siblings.onNode))
	for i, rank := range kindRanks {
		if d.candidatesByKind[i] > 0 {
			ranks = append(ranks, rank)
		}
	}
	for _, node := range d.candidates {
		if node.kind != nil && d.siblings.onNode[node.name] > 0 {
			ranks = append(ranks, d.rank(node, kindRanks))
		}
	}
	bands := slices.Clone(ranks)
	decision.ScoreBands(bands)
	score := make(map[decision.Rank]int64, len(ranks))
	for i, rank := range ranks {
		score[rank] = decision.ExtenderScore(bands[i])
	}
	kindScore := make([]int64, len(kindRanks))
	for i, rank := range kindRanks {
		kindScore[i] = score[rank]
	}
	scores := make([]int64, len(d.candidates))
	for i, node := range d.candidates {
		switch {
		case node.kind == nil:
			scores[i] = 0
		case d.siblings.onNode[node.name] > 0:
			scores[i] = score[d.rank(node, kindRanks)]
		default:
			scores[i] = kindScore[node.kind.index]
		}
	}
	return scores
}
