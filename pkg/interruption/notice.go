package interruption

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// claimedStart returns when the object that announces it says that it began, in whole seconds; zero
// if it does not say.
func claimedStart(a kube.Announcement) time.Time {
	if a.Since.IsZero() {
		return a.Since
	}
	return a.Since.UTC().Truncate(time.Second)
}

// start returns when a signal began, from which its notice counts: what the Node says, so that time
// that has passed is not promised again; but not before it was recorded, unless it went and came
// again since. heard: the node's kubelet is alive.
//
// The clock that wrote the time may be wrong, and then every pod of every such node would be
// deleted at once. A time to come counts as now. So does a start whose notice is over on a node
// that is alive all the same: that time says nothing of what is left.
func (p *planner) start(a kube.Announcement, had state, heard bool, want *state) time.Time {
	claimed, recorded := claimedStart(a), had.Seen[a.Name]
	if ahead := had.Ahead[a.Name]; !recorded.IsZero() && (!claimed.After(recorded) || claimed.Equal(ahead)) {
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
	case heard && !claimed.Add(p.notice(a)).After(p.now):
		return p.now
	}
	return claimed
}

// notice returns how long a node lasts from the start of a signal on.
func (p *planner) notice(a kube.Announcement) time.Duration {
	if a.Timed {
		return a.Notice
	}
	return p.DefaultNotice
}

// deadline returns when a node goes: what its annotation says, unless a signal with a notice of its
// own says that it goes earlier. Where there is no annotation that counts, signals that do not say
// how much time they leave count too, with the default. An annotation does not count if it does not
// parse, or lies before oldest, the start of the first signal: then it is left over from an earlier
// one.
func (p *planner) deadline(node *v1.Node, announced []kube.Announcement, want *state, oldest time.Time) time.Time {
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
