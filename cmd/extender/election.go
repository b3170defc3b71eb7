package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// The lease is shorter than the default of Kubernetes components: without a leader, no pod of the
// profile is scheduled, and kube-scheduler waits up to 10 s before it retries. If a leader is
// killed, its successor acquires the lease at most 16 s after the last renewal: the retry period
// with its jitter, the lease duration, and the retry period again.
const leaseDuration = 10 * time.Second

// The reasons why this replica does not decide.
var (
	errNotSynced  = errors.New("informer caches are not in sync yet")
	errStandby    = errors.New("this replica is on standby")
	errTakingOver = errors.New("this replica is a new leader, and waits for the bindings of the previous leader")
	errStaleLease = errors.New("the lease was not renewed in time: another replica may be the leader")
)

// election implements extender.Role by leader election. The identity of a replica in the lease
// begins with its address.
type election struct {
	identity string
	lock     *leader.Lock
	elector  *leaderelection.LeaderElector
	// reason is why this replica does not decide; it points to nil if the replica decides.
	reason atomic.Pointer[error]
}

const identitySeparator = "_"

// newElection returns the election of the replica at address. It calls startTerm when the replica
// becomes the leader. startTerm returns when the replica may decide; its context ends with the
// term.
func newElection(config *rest.Config, address string, startTerm func(context.Context) error) (*election, error) {
	e := &election{identity: address + identitySeparator + string(uuid.NewUUID())}
	e.setReason(errNotSynced)
	var err error
	if e.lock, err = leader.NewLeaseLock(config, name, e.identity, leaseDuration); err != nil {
		return nil, err
	}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, Name: name, LeaseDuration: leaseDuration, RenewDeadline: leader.RenewDeadline(leaseDuration),
		RetryPeriod: leader.RetryPeriod(leaseDuration), ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				e.setReason(errTakingOver)
				if startTerm(ctx) == nil {
					e.setReason(nil)
				}
			},
			OnStoppedLeading: func() { e.setReason(errStandby) },
		},
	})
	return e, err
}

// run takes part in the election until ctx is done, and then releases the lease. It returns an
// error, which ends the process, if the lease was lost: other replicas may have led since.
func (e *election) run(ctx context.Context) error {
	e.setReason(errStandby)
	e.elector.Run(ctx)
	if ctx.Err() == nil {
		return errors.New("lost the lease")
	}
	return nil
}

func (e *election) setReason(err error) { e.reason.Store(&err) }

// Leads implements extender.Role.
func (e *election) Leads() error {
	if err := *e.reason.Load(); err != nil {
		return err
	}
	if !e.lock.RenewedWithin(leader.RenewDeadline(leaseDuration)) {
		return errStaleLease
	}
	return nil
}

// Leader implements extender.Role.
func (e *election) Leader() string {
	holder := e.elector.GetLeader()
	address, _, ok := strings.Cut(holder, identitySeparator)
	if !ok || holder == e.identity {
		return ""
	}
	return address
}
