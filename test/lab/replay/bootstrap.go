package replay

import (
	"slices"
)

// pair is a numerator and a denominator of a block of time.
type pair struct{ of, by float64 }

// blockPoints is the number of consecutive points in a block of the bootstrap: with a window of 24
// hours, one hour. Neighboring points are not independent, and blocks keep their dependence.
const blockPoints = bucketCount / 24

// costPairs returns the costs of an arm and of the bound for the blocks of the window.
func (r *Report) costPairs(a ArmResult) []pair {
	bound := map[float64]float64{}
	for _, point := range r.Bound.Series {
		bound[point.Seconds] = point.PodHoursCost
	}
	var pairs []pair
	for i, point := range a.Series {
		if i%blockPoints == 0 {
			pairs = append(pairs, pair{})
		}
		last := &pairs[len(pairs)-1]
		last.of += point.PodHoursCost
		last.by += bound[point.Seconds]
	}
	return pairs
}

// Bootstrap returns the range that contains 95 % of the ratios of the sums, if as many blocks are
// drawn with replacement as there are. It is the block bootstrap. It returns 1 and 1 without
// blocks. The seed determines the draws.
func Bootstrap(blocks []pair, seed uint64) (low, high float64) {
	const draws = 1000
	if len(blocks) == 0 {
		return 1, 1
	}
	random := stream(seed, "bootstrap")
	ratios := make([]float64, draws)
	for i := range ratios {
		var sum pair
		for range blocks {
			b := blocks[random.IntN(len(blocks))]
			sum.of += b.of
			sum.by += b.by
		}
		ratios[i] = ratio(sum.of, sum.by)
	}
	slices.Sort(ratios)
	return ratios[draws*25/1000], ratios[draws*975/1000-1]
}
