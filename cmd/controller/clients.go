package main

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/daemon"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
)

// answerWithin is how long the API server may take for a request that writes. What has become of one that took longer is unknown, and seen
// later; nothing waits for it, because there may be little time.
const answerWithin = 10 * time.Second

// How many events are sent, on average and at once. They tell what has been done and may come late: in a mass reclaim the API server has
// more urgent things to do.
const (
	eventsPerSecond = 20
	eventsAtOnce    = 100
)

// connect returns how the API server is reached.
func connect(kubeconfig string) (*rest.Config, error) {
	config, err := daemon.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	// Of each client made of it by itself: informers, events and leader election never wait for what moves pods. Events that are late do no
	// harm, so that in a mass reclaim moves have the larger part of what the API server can do.
	config.QPS, config.Burst = eventsPerSecond, eventsAtOnce
	return config, nil
}

// newReader returns the client of the informers, which only reads.
func newReader(config *rest.Config) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(readOnly(config))
}

// readOnly returns the configuration of a client that only reads.
func readOnly(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(guard(func() error { return errors.New("this client only reads") }))
	return config
}

// newWriter returns the client that changes objects; see writing.
func newWriter(config *rest.Config, perSecond int, may func() error) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(writing(config, perSecond, may))
}

// writing returns the configuration of a client that changes objects. A request that changes something is not sent while may returns an error, which then is
// its result, and no call waits inside to repeat what is refused. perSecond is how many are sent, on average and at once.
func writing(config *rest.Config, perSecond int, may func() error) *rest.Config {
	config = migration.WithoutRetries(config)
	config.QPS, config.Burst = float32(perSecond), perSecond
	config.Timeout = answerWithin
	config.Wrap(guard(may))
	return config
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// guard lets requests that change something pass only while may returns nil.
func guard(may func() error) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				if err := may(); err != nil {
					if request.Body != nil {
						_ = request.Body.Close() // as every RoundTripper must; it was not read
					}
					return nil, err
				}
			}
			return next.RoundTrip(request)
		})
	}
}
