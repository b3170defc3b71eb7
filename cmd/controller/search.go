package main

import "time"

const (
	// searchWithin is how long a round may search for room. What it has not examined by then is examined
	// in a later round.
	searchWithin = 2 * time.Second
	// searchAtLeast is how long it may search although a pod has to be deleted meanwhile: the
	// deletions of a mass reclaim must not keep all other pods from being moved.
	searchAtLeast = 250 * time.Millisecond
)

// searchUntil returns when a round that begins to search at now has to end its search. A round
// deletes pods after the search. So it ends before the next last moment, and it is short if the one
// that was expected, due, has come. Zero times are never.
func searchUntil(now, due, next time.Time) time.Time {
	until := now.Add(searchWithin)
	if !next.IsZero() && next.Before(until) {
		until = next
	}
	least := now.Add(searchAtLeast)
	if until.Before(least) || !due.IsZero() && !now.Before(due) {
		return least
	}
	return until
}

// halfWay returns the middle of a search: rebalancing, which searches first, ends there, so that the
// moves are left as much time as it has.
func halfWay(now, until time.Time) time.Time { return now.Add(until.Sub(now) / 2) }

// after returns what reports whether it is at or later than the time.
func after(at time.Time) func() bool { return func() bool { return !time.Now().Before(at) } }
