package decision

import (
	"math"
	"time"
)

// Losses counts the spot nodes that a pool has lost. The weight of each loss halves with every
// half-life. All losses decay at the same rate, so their sum suffices: a loss costs one addition,
// and single losses are not stored. The zero value has no losses. Every call for a value must pass
// the same half-life, which must be positive.
type Losses struct {
	Count  float64 // at the time Latest
	Latest time.Time
}

const (
	// MaxLosses limits the sum of one pool's losses. A risk from that many losses does not differ
	// from certainty. A pool that lost hundreds of nodes at once must not be avoided for days
	// longer than a pool that lost dozens.
	MaxLosses = 32
	// A loss that is this many half-lives old counts less than a thousandth, the resolution of risk
	// in a Rank.
	expiredAfter = 10
)

// Add returns l with n more losses at the given time; -1 withdraws a loss that was added with that
// time. The order of additions does not matter.
func (l Losses) Add(n float64, at time.Time, halfLife time.Duration) Losses {
	if at.Before(l.Latest) {
		l.Count += n * decay(l.Latest.Sub(at), halfLife)
	} else {
		l = Losses{l.Weight(at, halfLife) + n, at}
	}
	l.Count = min(max(l.Count, 0), MaxLosses)
	return l
}

// Weight returns the sum of the weights of all losses at now, 0 to MaxLosses. Losses in the future
// count as if they had just happened.
func (l Losses) Weight(now time.Time, halfLife time.Duration) float64 {
	return l.Count * decay(now.Sub(l.Latest), halfLife)
}

// Risk returns the risk at now, 0 to 1. A single loss that has just happened gives 0.5, two give
// 0.75, and so on.
func (l Losses) Risk(now time.Time, halfLife time.Duration) float64 {
	return 1 - math.Exp2(-l.Weight(now, halfLife))
}

// Expired reports whether the latest loss is at least ten half-lives old at now, so that the
// value can be dropped.
func (l Losses) Expired(now time.Time, halfLife time.Duration) bool {
	return l.Count == 0 || now.Sub(l.Latest)/expiredAfter >= halfLife
}

func decay(age, halfLife time.Duration) float64 {
	return math.Exp2(-float64(max(age, 0)) / float64(halfLife))
}
