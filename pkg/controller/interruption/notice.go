package interruption

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
)

// claimedStart returns when a signal began according to the Node, in whole seconds; zero if the
// Node does not contain a time.
func claimedStart(a node.Announcement) time.Time {
	if a.Since.IsZero() {
		return a.Since
	}
	return a.Since.UTC().Truncate(time.Second)
}

// start returns when a signal began; its notice counts from then. It is the time on the Node, so
// that time that has passed is not granted again. It is not before the recorded start, unless the
// signal was cleared and repeated since. alive reports whether the node's kubelet is alive.
//
// The clock that wrote the time may be wrong, and then the controller would delete every pod of
// every such node at once. Therefore a start in the future counts as now. A start also counts as
// now if its notice is over although the node is alive: such a time does not show how much time
// remains.
func (p *planner) start(a node.Announcement, current state, alive bool, want *state) time.Time {
	claimed, recorded := claimedStart(a), current.Seen[a.Name]
	if ahead := current.Ahead[a.Name]; !recorded.IsZero() && (!claimed.After(recorded) || claimed.Equal(ahead)) {
		if !ahead.IsZero() {
			want.ahead(a.Name, ahead)
		}
		return recorded
	}
	switch {
	case claimed.IsZero():
		return p.now
	case claimed.After(p.now):
		want.ahead(a.Name, claimed)
		return p.now
	case alive && !claimed.Add(p.notice(a)).After(p.now):
		return p.now
	}
	return claimed
}

// notice returns how long a node lasts after the start of a signal.
func (p *planner) notice(a node.Announcement) time.Duration {
	if a.Timed {
		return a.Notice
	}
	return p.DefaultNotice
}

// deadline returns when a node is expected to vanish. It is the time in the deadline annotation,
// unless a signal with a known notice ends earlier. Without a valid annotation, signals without a
// known notice count with the default notice. The annotation is invalid if it cannot be parsed, or
// if it is before oldest, the start of the first signal: then it belongs to an earlier
// interruption.
func (p *planner) deadline(node *v1.Node, announced []node.Announcement, want *state, oldest time.Time) time.Time {
	deadline, _, written := readDeadline(node)
	if written && deadline.Before(oldest) {
		deadline, written, want.leftOver = time.Time{}, false, true
	}
	for _, a := range announced {
		if !a.Timed && written {
			continue
		}
		if at := want.Seen[a.Name].Add(p.notice(a)).Truncate(time.Second); deadline.IsZero() || at.Before(deadline) {
			deadline = at
		}
	}
	return deadline
}
