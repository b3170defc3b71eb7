package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lease"
)

// The lease. It is shorter than that of Kubernetes' components: while nobody leads no pod of the profile is placed, and kube-scheduler
// waits for up to 10 s before it asks again. When a leader is killed, its successor has the lease at most 16 s after the last renewal:
// the retry period with its jitter, the duration, and the retry period again.
const (
	leaseDuration = 10 * time.Second
	renewWithin   = leaseDuration * 2 / 3
	tryEvery      = leaseDuration * 2 / 15
)

// Why this replica does not decide.
var (
	errNotSynced  = errors.New("the caches are being filled")
	errStandby    = errors.New("this replica stands by")
	errTakingOver = errors.New("this replica leads since a moment ago, and waits for the bindings of the one before")
	errStaleLease = errors.New("the lease has not been renewed in time: another replica may lead by now")
)

// election is this replica's part in the leader election, as an extender.Role. Its identity in the lease begins with the address at which
// it is reached.
type election struct {
	identity string
	lock     *lease.Lock
	elector  *leaderelection.LeaderElector
	// why is why this replica does not decide; nil in it when it does.
	why atomic.Pointer[error]
}

const identitySeparator = "_"

// newElection returns the election of a replica that is reached at address. begin is called when it leads, and returns when it may decide;
// its context ends with the term.
func newElection(config *rest.Config, address string, begin func(context.Context) error) (*election, error) {
	e := &election{identity: address + identitySeparator + string(uuid.NewUUID())}
	e.because(errNotSynced)
	inner, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, metav1.NamespaceSystem, name,
		resourcelock.ResourceLockConfig{Identity: e.identity}, config, renewWithin)
	if err != nil {
		return nil, fmt.Errorf("making the lock of leader election: %w", err)
	}
	e.lock = lease.NewLock(inner, leaseDuration)
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, Name: name, LeaseDuration: leaseDuration, RenewDeadline: renewWithin, RetryPeriod: tryEvery, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				e.because(errTakingOver)
				if begin(ctx) == nil {
					e.because(nil)
				}
			},
			OnStoppedLeading: func() { e.because(errStandby) },
		},
	})
	return e, err
}

// run takes part in the election until ctx is done, and then gives the lease back. The error says that the lease was lost: the process is
// to end, because others may have led since.
func (e *election) run(ctx context.Context) error {
	e.because(errStandby)
	e.elector.Run(ctx)
	if ctx.Err() == nil {
		return errors.New("lost the lease")
	}
	return nil
}

func (e *election) because(err error) { e.why.Store(&err) }

// Leads implements extender.Role.
func (e *election) Leads() error {
	if err := *e.why.Load(); err != nil {
		return err
	}
	if !e.lock.Fresh(renewWithin) {
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
