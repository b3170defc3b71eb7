package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// counter counts what it is asked to write.
type counter struct {
	resourcelock.Interface
	wrote int
}

func (c *counter) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	c.wrote++
	return nil
}
func (c *counter) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	c.wrote++
	return nil
}

var mine = resourcelock.LeaderElectionRecord{HolderIdentity: "me"}

// When a lease has run out others may have led: what they did is unknown here, and a process leads once.
func TestLeaseThatRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &counter{}
		lock := NewLock(server, 15*time.Second+500*time.Millisecond) // half a second cannot be written into a lease
		if err := lock.Create(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if err := errors.Join(lock.Update(t.Context(), mine), lock.Create(t.Context(), mine)); err == nil || server.wrote != 1 {
			t.Errorf("the lease was written %d times, want once: %v", server.wrote, err)
		}
		// Nor may it give back what is another's by now.
		if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err == nil || server.wrote != 1 {
			t.Errorf("the lease was given back: %v", err)
		}
	})
}

func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := NewLock(&counter{}, 15*time.Second)
		if lock.Fresh(time.Hour) {
			t.Error("fresh before it was taken")
		}
		if err := lock.Update(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second - 1)
		if !lock.Fresh(10 * time.Second) {
			t.Error("not fresh right before the time is over")
		}
		time.Sleep(time.Nanosecond)
		if lock.Fresh(10 * time.Second) {
			t.Error("fresh when the time is over")
		}
		time.Sleep(5 * time.Second)
		if lock.Fresh(time.Hour) {
			t.Error("fresh when another may have it")
		}
	})
}
