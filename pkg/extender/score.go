package extender

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Scores returns the score of each node, in the order of names, from 0 to 10 as defined by
// decision.ExtenderScore. nil means that the pod has no preference.
func (e *Extender) Scores(ctx context.Context, pod *v1.Pod, names []string) (scores []int64, err error) {
	if !e.concerns(pod) {
		return nil, nil
	}
	err = e.decide(ctx, pod, names, func(d *deciding, c *candidates) error {
		scores = d.scores(c)
		return nil
	})
	return scores, err
}

// kindRanks returns the rank of a node of each candidate kind, if no sibling runs on it.
func (d *deciding) kindRanks() []decision.Rank {
	ranks := make([]decision.Rank, len(d.candidatesByKind))
	for i, k := range d.index.kinds {
		if d.candidatesByKind[i] > 0 {
			ranks[i] = d.plan.Rank(k.facts, d.around(k, 0), 0)
		}
	}
	return ranks
}

// rank returns the rank of a node, given its kind and the ranks of all kinds.
func (d *deciding) rank(node string, k *kind, kindRanks []decision.Rank) decision.Rank {
	if pods := d.siblings.onNode[node]; pods > 0 {
		return d.plan.Rank(k.facts, d.around(k, pods), 0)
	}
	return kindRanks[k.index]
}

func (d *deciding) around(k *kind, onNode int) decision.Siblings {
	around := decision.Siblings{OnNode: onNode, InZone: d.siblings.inZone[k.zone]}
	if k.facts.Capacity.Type == decision.Spot { // an on-demand node is not reclaimed with its pool
		around.InPool = d.siblings.inPool[k.pool()]
	}
	return around
}

// scores returns the score of every candidate.
func (d *deciding) scores(c *candidates) []int64 {
	kindRanks := d.kindRanks()
	// Only few ranks differ: those by kind, and those by node with siblings.
	ranks := make([]decision.Rank, 0, len(kindRanks)+len(d.siblings.onNode))
	for i, rank := range kindRanks {
		if d.candidatesByKind[i] > 0 {
			ranks = append(ranks, rank)
		}
	}
	for i, kind := range c.kinds {
		if kind != noKind && d.siblings.onNode[c.names[i]] > 0 {
			ranks = append(ranks, d.rank(c.names[i], d.index.kinds[kind], kindRanks))
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
	scores := make([]int64, len(c.kinds))
	for i, kind := range c.kinds {
		switch {
		case kind == noKind:
			scores[i] = 0
		case d.siblings.onNode[c.names[i]] > 0:
			scores[i] = score[d.rank(c.names[i], d.index.kinds[kind], kindRanks)]
		default:
			scores[i] = kindScore[kind]
		}
	}
	return scores
}
