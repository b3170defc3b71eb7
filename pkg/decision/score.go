package decision

import "slices"

// Siblings counts a revision's pods around one node.
type Siblings struct {
	OnNode, InZone, InPool int
}

// Rank orders the nodes that a pod may go to: a larger Rank is a better node. Ranks compare only within one Plan.
type Rank int64

// The widths of a Rank's fields, most significant first: a node's class, whether its capacity type is settled, whether its pool is below the
// cap, then the spread over nodes, zones and pools, then the pool's risk. Counts beyond a field's width are as bad as its largest.
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

// Class is the first thing that ranks a node. A larger one is better.
type Class int64

const (
	// NoClass is less than that of any node.
	NoClass Class = iota - 1
	// LastResort: the node may go soon, or its capacity label may still arrive, and nothing is known of it.
	LastResort
	// otherType: not the capacity type that the pod should have.
	otherType
	// preferredType: the capacity type that the pod should have.
	preferredType
)

// Class returns the class of node for the pod. Nodes of one class have one capacity type, except those of the last resort.
func (p *Plan) Class(node Node) Class {
	switch {
	case node.Signal != NoSignal || node.Capacity.Source == Settling:
		return LastResort
	case node.Capacity.Type == p.Prefer:
		return preferredType
	}
	return otherType
}

// Rank returns how good node is for the pod: first the capacity type that the pod should have, then the fewest replicas of the
// revision on the node, in its zone and in its pool, then the lowest risk of the pool. risk is 0 (none known) to 1.
func (p *Plan) Rank(node Node, siblings Siblings, risk float64) Rank {
	rank := Rank(p.Class(node)) << classShift
	if node.Capacity.Source != Settling {
		rank |= 1 << settledShift
	}
	if !p.capped(node, siblings.InPool) {
		rank |= 1 << capShift
	}
	few := func(n int) Rank { return Rank(maxCount - min(max(n, 0), maxCount)) }
	rank |= few(siblings.OnNode) << nodeShift
	rank |= few(siblings.InZone) << zoneShift
	rank |= few(siblings.InPool) << poolShift
	return rank | Rank(maxRisk-int(min(max(risk, 0), 1)*maxRisk))
}

// The bands that the three classes of nodes are mapped to. The gap between two bands, times the shipped weight of 40, is more than all
// default scorers of Kubernetes 1.36 can add up to together: 1,520 against 1,500 (TaintToleration 3; NodeAffinity, PodTopologySpread,
// InterPodAffinity and DynamicResources 2 each; NodeResourcesFit, NodeResourcesBalancedAllocation, ImageLocality and VolumeBinding 1
// each; times 100; pkg/scheduler/apis/config/v1/default_plugins.go). So the capacity type decides alone. Within a band the spread is
// worth 8 points, 320 with the weight: as much as three of them, so packing and image locality still have their say.
const (
	bandWidth = 8
	bandStep  = 46
	// MaxScore is the highest score, that of the best node of the preferred capacity type.
	MaxScore = 2*bandStep + bandWidth
)

// ScoreBands maps ranks to scores of 0..MaxScore, in place: the order stays, nodes of one class share a band, and within it
// the best rank gets the band's top and the worst its bottom.
func ScoreBands(ranks []Rank) {
	distinct := slices.Clone(ranks)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	scores := make([]Rank, len(distinct))
	for start := 0; start < len(distinct); {
		c := distinct[start] >> classShift
		end := start
		for end < len(distinct) && distinct[end]>>classShift == c {
			end++
		}
		for i := start; i < end; i++ {
			within := Rank(bandWidth)
			if steps := end - start - 1; steps > 0 {
				within = Rank(bandWidth * (i - start) / steps)
			}
			scores[i] = c*bandStep + within
		}
		start = end
	}
	for i, r := range ranks {
		place, _ := slices.BinarySearch(distinct, r)
		ranks[i] = scores[place]
	}
}

// The bands of an extender, whose scores are 0 to 10. With the shipped weight of 51, and the 10 by which kube-scheduler multiplies besides
// (its MaxNodeScore by MaxExtenderPriority), the 3 from the top of one band to the bottom of the next are worth 1,530: more than all default
// scorers together, as those of ScoreBands. The one point within a band is worth 510.
const (
	extenderBandWidth = 1
	extenderBandStep  = 4
)

// ExtenderScore returns the score of an extender, 0 to 10, for one of ScoreBands: the bands stay, and within one the best nodes stand out
// from the others.
func ExtenderScore(score Rank) int64 {
	return int64(score/bandStep*extenderBandStep + score%bandStep*extenderBandWidth/bandWidth)
}
