package safety

import (
	"cmp"
	"fmt"
	"net/url"
	"time"
)

// maxWorkload limits the length of a workload's name in the ledger, which tenants choose. Workloads
// of a namespace with the same beginning count as one.
const maxWorkload = 250

// newEntry returns the entry of a limited move.
func newEntry(r Removal) *entry {
	workload := cmp.Or(url.PathEscape(r.Workload), "-") // a tenant may write spaces and lines
	return &entry{
		id: r.ID, cause: r.Cause, namespace: r.Namespace, workload: workload[:min(len(workload), maxWorkload)], n: 1, done: make(chan error, 1),
	}
}

// refusal returns the *LimitError that refuses the start of a move now; nil if it may start. Other
// entries count, also if they are not in the ledger yet.
func (g *Gate) refusal(e *entry) error {
	now := g.Clock.Now()
	if Rules[e.cause].SavesCost {
		for i := range g.Limits.Schedules {
			s := &g.Limits.Schedules[i]
			if until := s.Until(now); until.After(now) {
				return &LimitError{e.cause, fmt.Sprintf("limits.schedules %q for %s", s.Schedule, s.Duration.Duration), until}
			}
		}
	}
	g.expire()
	reason, reasonLimited := g.Limits.Reasons[string(e.cause)]
	limits := []limit{
		{name: "movesPerHour", max: g.Limits.MovesPerHour},
		{name: "movesPerHourPerNamespace", max: g.Limits.MovesPerHourPerNamespace},
		{name: "movesPerHourPerWorkload", max: g.Limits.MovesPerHourPerWorkload},
		{name: "reasons." + string(e.cause), max: reason},
	}
	for _, other := range g.entries {
		if other == e || !Rules[other.cause].Limited {
			continue
		}
		limits[0].add(other)
		if other.namespace == e.namespace {
			limits[1].add(other)
			if other.workload == e.workload {
				limits[2].add(other)
			}
		}
		if other.cause == e.cause {
			limits[3].add(other)
		}
	}
	if !reasonLimited {
		limits = limits[:3]
	}
	for _, l := range limits {
		if l.moves < int(l.max) {
			continue
		}
		refused := &LimitError{Cause: e.cause, Limit: fmt.Sprintf("limits.%s is %d", l.name, l.max)}
		if l.max > 0 {
			refused.Until = now.Add(l.oldest + window + margin - g.age())
		}
		return refused
	}
	return nil
}

// limit is a limit with the moves that count.
type limit struct {
	name  string
	max   int32
	moves int
	// oldest is when the oldest of the moves was counted.
	oldest time.Duration
}

func (l *limit) add(e *entry) {
	if l.moves == 0 || e.at < l.oldest {
		l.oldest = e.at
	}
	l.moves++
}

// expire removes the entries that no longer count.
func (g *Gate) expire() {
	now := g.age()
	for id, e := range g.entries {
		if now-e.at >= window+margin {
			delete(g.entries, id)
		}
	}
}
