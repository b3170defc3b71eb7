package decision

import (
	"math"
	"time"
)

// Losses counts the spot nodes that a pool has lost, each half as much after every half-life. Because all of them decay alike, their sum
// is enough: a loss costs one addition, and nothing is kept of the single ones. The zero value has none. Every call for one value must
// give the same half-life, which must be positive.
type Losses struct {
	count  float64 // at latest
	latest time.Time
}

const (
	// MaxLosses limits what one pool's losses add up to: the risk of so many cannot be told from certainty, and a pool that lost hundreds
	// of nodes at once must not be avoided for days longer than one that lost dozens.
	MaxLosses = 32
	// Losses that are this many half-lives old count less than a thousandth, which is what a Rank tells apart.
	forgottenAfter = 10
)

// Add returns l with one more node, lost at that time. The order in which losses are added does not matter.
func (l Losses) Add(at time.Time, halfLife time.Duration) Losses {
	if at.Before(l.latest) {
		l.count += decay(l.latest.Sub(at), halfLife)
	} else {
		l = Losses{l.At(at, halfLife) + 1, at}
	}
	l.count = min(l.count, MaxLosses)
	return l
}

// At returns what the losses add up to at now, 0 to MaxLosses. Losses from the future count as if they had just happened.
func (l Losses) At(now time.Time, halfLife time.Duration) float64 {
	if l.count == 0 {
		return 0
	}
	return l.count * decay(now.Sub(l.latest), halfLife)
}

// Risk returns the risk, 0 to 1, that the losses stand for at now: one that has just happened makes it 0.5, two 0.75, and so on.
func (l Losses) Risk(now time.Time, halfLife time.Duration) float64 {
	return 1 - math.Exp2(-l.At(now, halfLife))
}

// Forgotten reports whether the latest loss is ten half-lives old at now, so that there is nothing left to remember.
func (l Losses) Forgotten(now time.Time, halfLife time.Duration) bool {
	return l.count == 0 || now.Sub(l.latest)/forgottenAfter >= halfLife
}

// decay returns how much a loss of that age counts.
func decay(age, halfLife time.Duration) float64 {
	return math.Exp2(-float64(max(age, 0)) / float64(halfLife))
}
