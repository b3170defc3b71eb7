package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// lease is a lease in memory.
type lease struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
}

func (l *lease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &l.record, nil, nil
}

func (l *lease) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.record = record
	return nil
}

// newReplica returns a replica of a cluster with an on-demand node. Its caches count as full when
// synced returns true.
func newReplica(t *testing.T, lease *lease, synced func() bool) *replica {
	t.Helper()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(clustertest.NewNode("od", "on-demand", "a/z")), 0)
	decider, err := extender.New("spot-aware-scheduler", &decision.Policy{CapacityLabels: providers.CapacityLabels()}, nil, factory,
		events.NewFakeRecorder(10), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decider.Watch(factory); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return &replica{
		identity: "10.0.0.7:8445_own", lock: leader.NewLock(lease, leaseDuration), decider: decider, synced: synced,
		takeover: leader.Takeover{
			List:     func(context.Context) (map[types.UID]types.NamespacedName, error) { return nil, nil },
			IsCached: decider.Counts,
		},
	}
}

func yes() bool { return true }

// A replica decides while it has the lease and after it has taken over.
func TestTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &lease{}
		r := newReplica(t, lease, yes)
		want := func(when string, want error) {
			t.Helper()
			if err := r.Leads(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		}
		renew := func() {
			t.Helper()
			if err := r.lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: r.identity}); err != nil {
				t.Fatal(err)
			}
		}
		want("on standby", errNotLeading)
		renew()
		want("before the takeover", errNotDeciding)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Start(ctx) }()
		time.Sleep(leader.Settle + time.Second)
		want("after the takeover", nil)
		time.Sleep(leader.RenewDeadline(leaseDuration) - leader.Settle - time.Second)
		want("with an old lease", errNotLeading)
		renew()
		want("renewed", nil)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("end of the term: %v", err)
		}
		want("after the term", errNotDeciding)
	})
}

// A leader that stops waits for the bindings of the pods that it approved, if it still has the
// lease.
func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		approved bool
		idle     time.Duration // without a renewal of the lease
		want     time.Duration
	}{
		"nothing approved":  {false, 0, 0},
		"a pod is approved": {true, 0, bindingTimeout},
		"without the lease": {true, leaseDuration, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, &lease{}, yes)
				renew := func() {
					if err := r.lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: r.identity}); err != nil {
						t.Fatal(err)
					}
				}
				renew()
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- r.Start(ctx) }()
				time.Sleep(leader.Settle + time.Second)
				if test.approved {
					approve(t, r)
				}
				renew()
				time.Sleep(test.idle)
				began := time.Now()
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("stopped after %s, want %s", took, test.want)
				}
			})
		})
	}
}

// approve makes the replica approve a pod.
func approve(t *testing.T, r *replica) {
	t.Helper()
	body := `{"Pod":{"metadata":{"namespace":"n","name":"p","uid":"u"},"spec":{"schedulerName":"spot-aware-scheduler"}},"NodeNames":["od"]}`
	answer := httptest.NewRecorder()
	extender.NewHandler(r.decider, r).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/filter", strings.NewReader(body)))
	if n := r.decider.Approved(); n != 1 {
		t.Fatalf("%d pods approved, want 1: %s", n, answer.Body)
	}
}

// A leader whose caches do not fill exits, so that another replica can lead.
func TestCachesNotFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, &lease{}, func() bool { return false })
		began := time.Now()
		if err := r.Start(t.Context()); err == nil {
			t.Error("want an error")
		}
		if took := time.Since(began).Round(time.Second); took != syncTimeout {
			t.Errorf("exits after %s, want %s", took, syncTimeout)
		}
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Start(stopped); err != nil {
			t.Errorf("stopped while the caches fill: %v", err)
		}
	})
}

func TestLeader(t *testing.T) {
	for holder, want := range map[string]string{
		"":                     "",
		"10.0.0.7:8445_own":    "",
		"10.0.0.8:8445_other":  "10.0.0.8:8445",
		"[fd00::1]:8445_other": "[fd00::1]:8445",
		"no-address":           "",
	} {
		r := newReplica(t, &lease{record: resourcelock.LeaderElectionRecord{HolderIdentity: holder}}, yes)
		if got := r.Leader(); got != "" {
			t.Errorf("%q: leader %q before the lease was read", holder, got)
		}
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.Leader(); got != want {
			t.Errorf("%q: leader %q, want %q", holder, got, want)
		}
	}
}
