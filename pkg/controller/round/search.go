package round

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
)

const (
	// searchTimeout is how long a round may search for room. Pods without a search result are
	// examined in a later round.
	searchTimeout = 2 * time.Second
	// minSearchTimeout is how long it may search although a pod must be deleted in the meantime:
	// the deletions of a mass reclaim must not prevent all other moves.
	minSearchTimeout = 250 * time.Millisecond
)

// searchUntil returns when a round must end its search for room if the search starts at now.
// Deletions follow the search. So the search ends before next, the next last moment. It is short if
// expected, the next last moment of the previous round, has passed. Zero times mean never.
func searchUntil(now, expected, next time.Time) time.Time {
	until := node.Earlier(now.Add(searchTimeout), next)
	least := now.Add(minSearchTimeout)
	if until.Before(least) || !expected.IsZero() && !now.Before(expected) {
		return least
	}
	return until
}

// after returns a function that reports whether the time at has come.
func after(at time.Time) func() bool { return func() bool { return !time.Now().Before(at) } }
