package main

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// requestTimeout is the timeout of a write request. The result of a request that takes longer is
// unknown, and the caches show it later. Nothing waits for it, because time may be short.
const requestTimeout = 10 * time.Second

// The rate and the burst of events. Events report completed actions and may be late: in a mass
// reclaim the API server has more urgent work.
const (
	eventsPerSecond = 20
	eventBurst      = 100
)

// permission decides which requests may be sent. A nil gate refuses no removal.
type permission struct {
	// mayWrite returns an error while no request that changes an object may be sent.
	mayWrite func() error
	gate     *safety.Gate
	// switches are what users can pause. They have not started.
	switches *safety.SwitchWatcher
}

// newMover returns the client that moves pods, and its permission. The Gate has a client of its own
// for the ledger, which waits for no other request.
func newMover(
	config *rest.Config, setup *setup, readers readers, mayWrite func() error,
) (kubernetes.Interface, permission, error) {
	client, err := newWriter(config, ledgerWritesPerSecond, permission{mayWrite: mayWrite})
	if err != nil {
		return nil, permission{}, err
	}
	may := permission{mayWrite: mayWrite}
	if may.switches, err = safety.NewSwitchWatcher(readers.kubernetes, leader.Namespace(), clock.RealClock{}); err != nil {
		return nil, permission{}, err
	}
	may.gate = safety.NewGate(safety.Options{
		Limits: setup.Limits, Ledgers: client.CoreV1().ConfigMaps(leader.Namespace()), Paused: may.switches.Paused, Clock: clock.RealClock{},
	})
	writer, err := newWriter(config, int(setup.RequestsPerSecond), may)
	return writer, may, err
}

// ledgerWritesPerSecond is the rate and the burst of requests for the ledger: five writes and five
// reads.
const ledgerWritesPerSecond = 10

// newWriter returns the client that changes objects; see writing.
func newWriter(config *rest.Config, perSecond int, may permission) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(writing(config, perSecond, may))
}

// writing returns the configuration of a client that changes objects. While mayWrite returns an
// error, a request that changes an object fails with this error and is not sent. So does a request
// that removes a pod while the Gate refuses it. Calls do not retry refused requests. perSecond is
// the rate and the burst.
func writing(config *rest.Config, perSecond int, may permission) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(withoutRetries)
	config.QPS, config.Burst = float32(perSecond), perSecond
	config.Timeout = requestTimeout
	config.Wrap(guard(may.mayWrite)) // again, because the Gate may wait for the ledger
	config.Wrap(may.gate.Enforce)
	config.Wrap(guard(may.mayWrite))
	return config
}

// readers are clients that only read.
type readers struct {
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
	metadata   metadata.Interface
	// live reads Nodes and Leases before a removal. Its rate limit is its own: a deletion needs as
	// many writes as reads at most, so it does not wait longer for its reads.
	live kubernetes.Interface
}

// newReaders returns clients that only read. perSecond is the rate and the burst of the live reads.
func newReaders(config *rest.Config, perSecond int32) (r readers, err error) {
	readOnly := func() error { return errors.New("this client is read-only") }
	var errs [4]error
	r.live, errs[3] = newWriter(config, int(perSecond), permission{mayWrite: readOnly})
	config = rest.CopyConfig(config)
	config.Wrap(guard(readOnly))
	r.kubernetes, errs[0] = kubernetes.NewForConfig(config)
	r.dynamic, errs[1] = dynamic.NewForConfig(config)
	r.metadata, errs[2] = metadata.NewForConfig(config)
	return r, errors.Join(errs[:]...)
}

// withoutRetries makes calls ignore Retry-After. client-go would retry up to ten times, for 10 s
// each if a PodDisruptionBudget refuses an eviction.
func withoutRetries(next http.RoundTripper) http.RoundTripper {
	return safety.Transport(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if response != nil {
			response.Header.Del("Retry-After")
		}
		return response, err
	})
}

// withCause gives the deletions of pods by a client the cause.
func withCause(cause safety.Cause) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return safety.Transport(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodDelete && safety.RemovesPods(request) {
				request = request.WithContext(safety.WithRemoval(request.Context(), safety.Removal{Cause: cause}))
			}
			return next.RoundTrip(request)
		})
	}
}

// guard lets requests that change an object pass only while mayWrite returns nil.
func guard(mayWrite func() error) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return safety.Transport(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				if err := mayWrite(); err != nil {
					return safety.Refuse(request, err)
				}
			}
			return next.RoundTrip(request)
		})
	}
}
