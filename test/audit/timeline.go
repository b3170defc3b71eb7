package audit

import "time"

// memory is the time for which past values are kept. It is longer than window and settle
// together.
const memory = 10 * time.Second

// stamp is the time of an observation and, unless revision is 0, the etcd revision of the object.
type stamp struct {
	at       time.Time
	revision uint64
}

// after reports whether s is later than o. If both revisions are known, they decide: they are the
// true order, while two watches may deliver out of order.
func (s stamp) after(o stamp) bool {
	if s.revision != 0 && o.revision != 0 {
		return s.revision > o.revision
	}
	return s.at.After(o.at)
}

// timeline is the recent history of one fact, oldest first. Each value is valid until the next
// value.
type timeline[T any] []entry[T]

type entry[T any] struct {
	value T
	since stamp
}

// add records a new value and removes values that ended longer than memory ago.
func (t *timeline[T]) add(value T, since stamp) {
	*t = append(*t, entry[T]{value, since})
	old := 0
	for old+1 < len(*t) && (*t)[old+1].since.at.Before(since.at.Add(-memory)) {
		old++
	}
	*t = (*t)[old:]
}

// last returns the current value, or the zero value of an empty timeline.
func (t timeline[T]) last() T {
	if len(t) == 0 {
		var zero T
		return zero
	}
	return t[len(t)-1].value
}

// during returns the entries that were valid at any time after from and no later than to, oldest
// first.
func (t timeline[T]) during(from time.Time, to stamp) []entry[T] {
	first := 0
	for first+1 < len(t) && !t[first+1].since.at.After(from) && !t[first+1].since.after(to) {
		first++
	}
	end := first
	for end < len(t) && !t[end].since.after(to) {
		end++
	}
	return t[first:end]
}
