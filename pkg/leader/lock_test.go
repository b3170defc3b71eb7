package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// counter counts the writes.
type counter struct {
	resourcelock.Interface
	wrote  int
	holder string
}

func (c *counter) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if c.holder == "" {
		return nil, nil, errors.New("the API server is not available")
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: c.holder}, nil, nil
}

func (c *counter) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	c.wrote++
	return nil
}
func (c *counter) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	c.wrote++
	return nil
}

var ownRecord = resourcelock.LeaderElectionRecord{HolderIdentity: "me"}

// After its lease has expired, others may have led: the process does not know their decisions, and
// must not lead again.
func TestExpiredLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &counter{}
		lock := NewLock(server, 15*time.Second+500*time.Millisecond) // a lease has no fractions of a second
		if err := lock.Create(t.Context(), ownRecord); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if err := errors.Join(lock.Update(t.Context(), ownRecord), lock.Create(t.Context(), ownRecord)); err == nil || server.wrote != 1 {
			t.Errorf("the lease was written %d times, want 1: %v", server.wrote, err)
		}
		// It must not release a lease that now belongs to another process.
		if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err == nil || server.wrote != 1 {
			t.Errorf("the lease was released: %v", err)
		}
	})
}

func TestRenewedWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := NewLock(&counter{}, 15*time.Second)
		if lock.RenewedWithin(time.Hour) {
			t.Error("fresh before it was acquired")
		}
		if err := lock.Update(t.Context(), ownRecord); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second - 1)
		if !lock.RenewedWithin(10 * time.Second) {
			t.Error("not fresh before the limit")
		}
		time.Sleep(time.Nanosecond)
		if lock.RenewedWithin(10 * time.Second) {
			t.Error("fresh at the limit")
		}
		time.Sleep(5 * time.Second)
		if lock.RenewedWithin(time.Hour) {
			t.Error("fresh although the lease expired")
		}
	})
}

// A replica knows the holder from its last successful read or write.
func TestHolder(t *testing.T) {
	server := &counter{}
	lock := NewLock(server, 15*time.Second)
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"not available", func() error { _, _, err := lock.Get(t.Context()); return err }, ""},
		{"read", func() error { server.holder = "other"; _, _, err := lock.Get(t.Context()); return err }, "other"},
		{"not available again", func() error { server.holder = ""; _, _, err := lock.Get(t.Context()); return err }, "other"},
		{"acquired", func() error { return lock.Update(t.Context(), ownRecord) }, "me"},
		{"released", func() error { return lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}) }, ""},
	} {
		if err := step.do(); lock.Holder() != step.want {
			t.Errorf("%s: holder %q, want %q; %v", step.name, lock.Holder(), step.want, err)
		}
	}
}
