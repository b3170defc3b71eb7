package main

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// answerWithin is the timeout of a write request. The result of a request that takes longer is
// unknown, and the caches show it later. Nothing waits for it, because time may be short.
const answerWithin = 10 * time.Second

// The rate and the burst of events. Events report completed actions and may be late: in a mass
// reclaim the API server has more urgent work.
const (
	eventsPerSecond = 20
	eventsAtOnce    = 100
)

// connect returns the configuration of a client of the API server.
func connect(kubeconfig string) (*rest.Config, error) {
	config, err := app.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	// The limits apply to each client separately: informers, events and leader election never wait
	// for the client that moves pods. Late events do no harm, so in a mass reclaim moves use the
	// larger part of the API server's capacity.
	config.QPS, config.Burst = eventsPerSecond, eventsAtOnce
	return config, nil
}

// newReader returns the read-only client of the informers.
func newReader(config *rest.Config) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(readOnly(config))
}

// readOnly returns the configuration of a read-only client.
func readOnly(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(guard(func() error { return errors.New("this client is read-only") }))
	return config
}

// newWriter returns the client that changes objects; see writing.
func newWriter(config *rest.Config, perSecond int, may func() error) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(writing(config, perSecond, may))
}

// writing returns the configuration of a client that changes objects. While may returns an error, a
// request that changes an object fails with this error and is not sent. Calls do not retry refused
// requests. perSecond is the rate and the burst.
func writing(config *rest.Config, perSecond int, may func() error) *rest.Config {
	config = migration.WithoutRetries(config)
	config.QPS, config.Burst = float32(perSecond), perSecond
	config.Timeout = answerWithin
	config.Wrap(guard(may))
	return config
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// guard lets requests that change an object pass only while may returns nil.
func guard(may func() error) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				if err := may(); err != nil {
					if request.Body != nil {
						// required of every RoundTripper; the body was not read
						_ = request.Body.Close()
					}
					return nil, err
				}
			}
			return next.RoundTrip(request)
		})
	}
}
