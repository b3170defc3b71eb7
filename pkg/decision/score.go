package decision

import "slices"

// Siblings counts the pods of a revision on a node, in its zone and in its pool.
type Siblings struct {
	OnNode, InZone, InPool int
}

// Rank orders the nodes that a pod may run on: a larger Rank is a better node. Ranks are comparable
// only within one Plan.
type Rank int64

// The widths of a Rank's fields, most significant first: the class of the node, whether its
// capacity type is settled, whether its pool is below the cap, the spread over nodes, zones and
// pools, and the risk of the pool. A count beyond a field's width ranks as the field's maximum.
const (
	countBits = 12
	riskBits  = 10
	maxCount  = 1<<countBits - 1
	maxRisk   = 1<<riskBits - 1

	poolShift    = riskBits
	zoneShift    = poolShift + countBits
	nodeShift    = zoneShift + countBits
	capShift     = nodeShift + countBits
	settledShift = capShift + 1
	classShift   = settledShift + 1
)

// RankClass is the first criterion of a Rank. A larger class is better.
type RankClass int64

// The classes, the worst first.
const (
	// LastResort: the node may be reclaimed soon, or its capacity label may still arrive and its
	// capacity type is unknown until then.
	LastResort RankClass = iota
	// otherType: the node does not have the preferred capacity type.
	otherType
	// preferredType: the node has the preferred capacity type.
	preferredType
)

// RankClass returns the class of node for the pod. All nodes of a class have the same capacity
// type, except in the class LastResort.
func (p *Plan) RankClass(node Node) RankClass {
	switch {
	case node.Signal != NoSignal || node.Capacity.Source == Settling:
		return LastResort
	case node.Capacity.Type == p.Prefer:
		return preferredType
	}
	return otherType
}

// Rank returns how good node is for the pod. The criteria are, in order: the preferred capacity
// type; the fewest replicas of the revision on the node, in its zone and in its pool; the lowest
// risk of the pool. risk ranges from 0 (no known risk) to 1.
func (p *Plan) Rank(node Node, siblings Siblings, risk float64) Rank {
	rank := Rank(p.RankClass(node)) << classShift
	if node.Capacity.Source != Settling {
		rank |= 1 << settledShift
	}
	if !p.poolFull(node, siblings.InPool) {
		rank |= 1 << capShift
	}
	inverse := func(n int) Rank { return Rank(maxCount - min(max(n, 0), maxCount)) }
	rank |= inverse(siblings.OnNode) << nodeShift
	rank |= inverse(siblings.InZone) << zoneShift
	rank |= inverse(siblings.InPool) << poolShift
	return rank | Rank(maxRisk-int(min(max(risk, 0), 1)*maxRisk))
}

// The score bands of the three classes of nodes. The capacity type decides alone: the gap between
// two bands, times the shipped weight of 40, is 1,520. All default scorers of Kubernetes 1.36 add
// up to at most 1,500. They are TaintToleration (weight 3); NodeAffinity, PodTopologySpread,
// InterPodAffinity and DynamicResources (2 each); NodeResourcesFit,
// NodeResourcesBalancedAllocation, ImageLocality and VolumeBinding (1 each); each times 100. The
// source is pkg/scheduler/apis/config/v1/default_plugins.go. Within a band the spread contributes 8
// points, 320 with the weight. That equals about three default scorers, so packing and image
// locality still count.
const (
	bandWidth = 8
	bandStep  = 46
	// MaxScore is the score of the best node of the preferred capacity type.
	MaxScore = 2*bandStep + bandWidth
)

// ScoreBands maps ranks to scores of 0 to MaxScore, in place, and preserves their order. The nodes
// of one class share a band: the best rank gets the top of the band, the worst gets the bottom.
func ScoreBands(ranks []Rank) {
	distinct := slices.Clone(ranks)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	place := func(r Rank) int {
		i, _ := slices.BinarySearch(distinct, r)
		return i
	}
	for i, r := range ranks {
		c := r >> classShift
		worst, best, within := place(c<<classShift), place((c+1)<<classShift)-1, Rank(bandWidth)
		if best > worst {
			within = Rank(bandWidth * (place(r) - worst) / (best - worst))
		}
		ranks[i] = c*bandStep + within
	}
}

// The score bands of an extender, whose scores range from 0 to 10. kube-scheduler multiplies them
// by 10 (MaxNodeScore / MaxExtenderPriority) and by the shipped weight of 51. The 3 points between
// the top of one band and the bottom of the next are therefore worth 1,530, more than the sum of
// all default scorers, as with ScoreBands. The single point within a band is worth 510.
const (
	extenderBandWidth = 1
	extenderBandStep  = 4
)

// ExtenderScore converts a score of ScoreBands to the score of an extender, 0 to 10. It preserves
// the bands; within a band only the best nodes get the extra point.
func ExtenderScore(score Rank) int64 {
	return int64(score/bandStep*extenderBandStep + score%bandStep*extenderBandWidth/bandWidth)
}
