package main

import "time"

const (
	// searchWithin is how long a round may search for room. Pods without a search result are
	// examined in a later round.
	searchWithin = 2 * time.Second
	// searchAtLeast is how long it may search although a pod must be deleted in the meantime: the
	// deletions of a mass reclaim must not prevent all other moves.
	searchAtLeast = 250 * time.Millisecond
)

// searchUntil returns when a round must end its search for room if the search starts at now.
// Deletions follow the search. So the search ends before next, the next last moment. It is short if
// due, the last moment that the previous round expected, has passed. Zero times mean never.
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

// halfWay returns the middle of a search. Rebalancing searches first and ends there, so that the
// moves have as much time.
func halfWay(now, until time.Time) time.Time { return now.Add(until.Sub(now) / 2) }

// after returns a function that reports whether the time has come.
func after(at time.Time) func() bool { return func() bool { return !time.Now().Before(at) } }
