package replay

import (
	"slices"
	"testing"
	"time"
)

// TestWaits follows the rate after events. The calm period of 10 minutes is 6 s for the
// controller, and the pause of 5 minutes is 4 s.
func TestWaits(t *testing.T) {
	calm, pause := scaledTime{10 * time.Minute, 6 * time.Second}, scaledTime{5 * time.Minute, 4 * time.Second}
	begin := time.Now()
	at := func(trace, real time.Duration) moment { return moment{time.Hour + trace, begin.Add(real)} }
	down := Event{At: time.Hour, Kind: NodeDown, Node: SpotNode{Zone: "a"}}
	up := Event{At: time.Hour, Kind: NodeUp, Node: SpotNode{Zone: "b"}}
	for name, test := range map[string]struct {
		events    []Event
		now       moment
		wantRate  float64
		wantEnded time.Duration
	}{
		"no event":                    {now: at(0, 0), wantEnded: never},
		"a node of a pool with nodes": {events: []Event{{Kind: NodeUp, Node: SpotNode{Zone: "a"}}}, now: at(0, 0), wantEnded: never},
		"the first waits":             {events: []Event{down}, now: at(20*time.Second, 2*time.Second), wantRate: 145, wantEnded: never},
		"the calm period is next":     {events: []Event{down}, now: at(5*time.Minute, 4*time.Second), wantRate: 150},
		"time was skipped":            {events: []Event{down}, now: at(9*time.Minute, 4*time.Second), wantRate: 83},
		"more time was skipped":       {events: []Event{down}, now: at(time.Hour, 4*time.Second), wantRate: 1},
		"the second period is next":   {events: []Event{down}, now: at(10*time.Minute, 7*time.Second), wantRate: 120, wantEnded: time.Second},
		"all waits are over":          {events: []Event{down}, now: at(20*time.Minute, 13*time.Second), wantEnded: time.Second},
		"a pool without nodes":        {events: []Event{down, down, up}, now: at(8*time.Minute, 3*time.Second), wantRate: 80, wantEnded: never},
		"the first node of a pool":    {events: []Event{up}, now: at(0, 0), wantRate: 100, wantEnded: never},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWaits(calm, pause)
			w.pool("a").nodes = 2
			for _, e := range test.events {
				w.event(e, begin)
			}
			rate, ended := w.next(test.now)
			if rate != test.wantRate || ended != test.wantEnded {
				t.Errorf("rate %g and %s since the last end, want %g and %s", rate, ended, test.wantRate, test.wantEnded)
			}
		})
	}
}

// TestWaitsRecordPeriods records how long the calm periods were in the trace.
func TestWaitsRecordPeriods(t *testing.T) {
	w := newWaits(scaledTime{10 * time.Minute, 6 * time.Second}, scaledTime{})
	begin := time.Now()
	w.pool("a").nodes = 1
	w.event(Event{At: time.Hour, Kind: NodeUp, Node: SpotNode{Zone: "b"}}, begin)
	for _, real := range []time.Duration{0, 5, 6, 7} {
		w.observe(moment{time.Hour + real*time.Minute, begin.Add(real * time.Second)})
	}
	if want := []time.Duration{6 * time.Minute}; !slices.Equal(w.periods, want) {
		t.Errorf("periods %v, want %v", w.periods, want)
	}
}
