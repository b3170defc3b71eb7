// Package leader contains what the leading replica of a program needs: a lock that reports whether
// the replica may still act, and the takeover from the previous leader.
package leader

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// Controller is the name of the Lease that the leading controller renews.
const Controller = "spot-controller"

// Lock is the lock of a leader election. It records when the leader last renewed it. A leader that
// cannot renew its lease continues for longer than the lease is valid: client-go retries for
// renewDeadline, and for the same time again to release the lease, before it stops the leader. A
// process that was frozen does not notice at first that it lost its lease.
type Lock struct {
	resourcelock.Interface
	// duration is how long after a renewal no other process acquires the lease. It is in whole
	// seconds, as in the Lease object.
	duration time.Duration
	// renewed is the start of the last successful renewal; nil before the first.
	renewed atomic.Pointer[time.Time]
	// holder is the holder of the lease when it was last read; nil before.
	holder atomic.Pointer[string]
}

// NewLock returns a lock that records its renewals. duration is the duration of the lease.
func NewLock(lock resourcelock.Interface, duration time.Duration) *Lock {
	return &Lock{Interface: lock, duration: duration.Truncate(time.Second)}
}

// RenewDeadline returns the time in which a leader must renew its lease. The components of
// Kubernetes use this proportion with a lease of 15 s.
func RenewDeadline(lease time.Duration) time.Duration { return lease * 2 / 3 }

// RenewedWithin reports whether the lease was renewed less than atMost ago, and so recently that no
// other process can have acquired it.
func (l *Lock) RenewedWithin(atMost time.Duration) bool {
	renewed := l.renewed.Load()
	return renewed != nil && age(*renewed) < min(atMost, l.duration)
}

// Holder returns the identity of the process that had the lease when it was last read; "" if it is
// not known.
func (l *Lock) Holder() string { return ptr.Deref(l.holder.Load(), "") }

// Get reads the lease. Candidates read it in every retry period.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder.Store(&record.HolderIdentity)
	}
	return record, raw, err
}

// Create creates the lease and acquires it.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update acquires, renews or releases the lease.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// write writes the lease. It returns an error if the lease that this process held has expired.
// Others may have led since, and this process does not know their decisions. Without the error,
// client-go would continue the old term, or release a lease that now belongs to another process.
// With it, the process cannot renew, and exits as after a lost lease.
func (l *Lock) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := time.Now()
	if last := l.renewed.Load(); last != nil && age(*last) >= l.duration {
		return fmt.Errorf("lease expired: last renewed %s ago, duration %s: others may have led since, so this process exits",
			age(*last).Round(time.Second), l.duration)
	}
	err := write()
	if err == nil {
		l.holder.Store(&record.HolderIdentity)
	}
	if err == nil && record.HolderIdentity != "" {
		l.renewed.Store(&began)
	}
	return err
}

// age returns the time since t by the clock that shows more: the monotonic clock may stop while a
// machine is suspended, and the wall clock may be set back.
func age(t time.Time) time.Duration { return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0))) }
