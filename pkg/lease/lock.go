// Package lease tells a leader whether it may still act.
package lease

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Controller is the name of the Lease, in kube-system, that the leading controller renews.
const Controller = "spot-controller"

// Lock is the lock of a leader election, and knows when the leader last renewed it. A leader that cannot renew its lease goes on
// for longer than the lease lasts: client-go tries for renewDeadline, and for as long again to give the lease back, before it
// stops what leads. One that was frozen does not know at first that it lost it.
type Lock struct {
	resourcelock.Interface
	// lasts is for how long nobody else takes it after a renewal: whole seconds, as they are written into the lease.
	lasts time.Duration
	// renewed is when the last renewal that succeeded was begun; nil before the first.
	renewed atomic.Pointer[time.Time]
	memory  *memory // nil: none
}

// NewLock returns a lock that knows when it was renewed; duration is that of the lease.
func NewLock(lock resourcelock.Interface, duration time.Duration) *Lock {
	return &Lock{Interface: lock, lasts: duration.Truncate(time.Second)}
}

// Fresh reports whether the lease was renewed less than atMost ago, and so recently that nobody else can have it by now.
func (l *Lock) Fresh(atMost time.Duration) bool {
	renewed := l.renewed.Load()
	return renewed != nil && age(*renewed) < min(atMost, l.lasts)
}

// Create takes a lease that does not exist.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update takes the lease, renews it, or gives it back.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// write writes the lease. It refuses to when the one that the process had has run out: others may have led since, and what they did is
// not known here. client-go would go on with the old term, or give back a lease that is another's by now. So it cannot renew, and the
// process ends as one that lost its lease.
func (l *Lock) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	l.memory.write()
	began := time.Now()
	if last := l.renewed.Load(); last != nil && age(*last) >= l.lasts {
		return fmt.Errorf("the lease was last renewed %s ago and lasts %s: others may have led since, so this process ends",
			age(*last).Round(time.Second), l.lasts)
	}
	err := write()
	if err == nil && record.HolderIdentity != "" {
		l.renewed.Store(&began)
	}
	return err
}

// age is for how long t has passed, by the clock that says more: the monotonic one may stand still while a machine is suspended, and the
// other one may be set back.
func age(t time.Time) time.Duration { return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0))) }
