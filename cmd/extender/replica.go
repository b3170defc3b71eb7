package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

const (
	// The lease is shorter than the default of Kubernetes components: without a leader, no pod of
	// the profile is scheduled, and kube-scheduler waits up to 10 s before it retries. If a leader
	// is killed, its successor acquires the lease at most 16 s after the last renewal: the retry
	// period with its jitter, the lease duration, and the retry period again.
	leaseDuration = 10 * time.Second
	// syncTimeout is the time within which the caches of a leader must be full. Otherwise it exits,
	// so that another replica can lead.
	syncTimeout = 2 * time.Minute
	// maxTakeover is the maximum time that a new leader waits for a scheduler that still binds pods
	// which an earlier leader approved. By default the scheduler's rate limit permits 3,000
	// bindings in this time. Without this limit, a scheduler that binds pods of other profiles
	// could block the leader forever.
	maxTakeover = time.Minute
	// bindingTimeout is the maximum time that a stopping leader waits for the bindings of pods that
	// it approved. It still has the lease, but makes no decisions. Other replicas do not know these
	// approvals.
	bindingTimeout = 5 * time.Second
)

// The reasons why a replica does not decide.
var (
	errNotLeading  = errors.New("this replica does not lead, or did not renew its lease in time")
	errNotDeciding = errors.New("this replica leads, but waits for the bindings of earlier leaders, or stops")
)

// replica implements extender.Role by the lease. Its identity in the lease begins with its address.
type replica struct {
	identity string
	lock     *leader.Lock
	decider  *extender.Extender
	synced   func() bool
	takeover leader.Takeover
	// decides reports whether this replica may decide while it has the lease.
	decides atomic.Bool
}

// identitySeparator ends the address in the identity of a replica.
const identitySeparator = "_"

func (r *replica) Leads() error {
	switch {
	case !r.lock.RenewedWithin(leader.RenewDeadline(leaseDuration)):
		return errNotLeading
	case !r.decides.Load():
		return errNotDeciding
	}
	return nil
}

func (r *replica) Leader() string {
	holder := r.lock.Holder()
	address, _, ok := strings.Cut(holder, identitySeparator)
	if !ok || holder == r.identity {
		return ""
	}
	return address
}

// Start implements manager.Runnable. The manager calls it when this replica has the lease, and
// releases the lease after it has returned.
func (r *replica) Start(ctx context.Context) error {
	syncing, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(syncing.Done(), r.synced) && ctx.Err() == nil {
		return fmt.Errorf("the caches are not full after %s", syncTimeout)
	}
	if r.decider.TakeOver(ctx, r.takeover.Wait, maxTakeover) != nil {
		return nil // ctx is done
	}
	r.decides.Store(true)
	<-ctx.Done()
	r.decides.Store(false)
	// A leader that has lost the lease need not wait: another replica may lead already.
	bound := func(context.Context) (bool, error) {
		return r.decider.Approved() == 0 || r.Leads() == errNotLeading, nil
	}
	if wait.PollUntilContextTimeout(context.WithoutCancel(ctx), leader.PollEvery, bindingTimeout, true, bound) != nil {
		klog.FromContext(ctx).Info("Stopped before approved pods were known to be bound", "pods", r.decider.Approved(), "waited", bindingTimeout)
	}
	return nil
}
