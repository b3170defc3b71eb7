package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// fakeSink calls its functions with the pod and the count of an event.
type fakeSink struct {
	events.EventSink
	create, patch func(pod string, count int32) error
}

func (s fakeSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return event, s.create(event.Regarding.Name, count(event))
}

func (s fakeSink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return event, s.patch(event.Regarding.Name, count(event))
}

// count returns how often an event occurred.
func count(event *eventsv1.Event) int32 {
	if event.Series == nil {
		return 1
	}
	return event.Series.Count
}

// deferred runs a test in a synctest bubble. The test gets a function that records an event about a
// pod.
func deferred(t *testing.T, sink fakeSink, test func(event func(pod string))) {
	synctest.Test(t, func(t *testing.T) {
		sched := &scheduler.Scheduler{Profiles: profile.Map{"a": nil}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := deferEvents(ctx, sink, sched); err != nil {
			t.Fatal(err)
		}
		test(func(pod string) {
			regarding := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod}}
			sched.Profiles["a"].EventRecorder().Eventf(regarding, nil, v1.EventTypeNormal, "Scheduled", "Binding", "assigned")
			synctest.Wait()
		})
	})
}

// At most maxEventRequests events of the queue are created at a time. If the queue is full, further
// events are created at once. In the end, every event has been created once.
func TestDeferEvents(t *testing.T) {
	const all = maxEventRequests + eventQueueSize + 10
	begun := make(chan string, 2*all)
	var release chan struct{}
	sink := fakeSink{create: func(pod string, _ int32) error { begun <- pod; <-release; return nil }}
	deferred(t, sink, func(event func(string)) {
		release = make(chan struct{})
		for n := range all {
			event(fmt.Sprint(n))
			if want := max(min(n+1, maxEventRequests), n+1-eventQueueSize); len(begun) != want {
				t.Errorf("%d of %d events are being created, want %d", len(begun), n+1, want)
				break
			}
		}
		close(release)
		synctest.Wait()
		created, pods := len(begun), map[string]bool{}
		for range created {
			pods[<-begun] = true
		}
		if created != all || len(pods) != all {
			t.Errorf("in the end, %d events of %d pods were created, want %d", created, len(pods), all)
		}
	})
}

// A request is retried if the API server did not answer, and not if it refused the event. The wait
// for a retry does not delay other events. Retries do not exceed the limit of concurrent requests.
func TestRetryEvents(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"no answer": {errors.New("connection refused"), eventTries},
		"refused":   {apierrors.NewForbidden(eventsv1.Resource("events"), "e", nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			const all = 3 * maxEventRequests
			var requests, concurrent, most, created atomic.Int32
			sink := fakeSink{create: func(pod string, _ int32) error {
				if pod == "other" {
					created.Add(1)
					return nil
				}
				requests.Add(1)
				if n := concurrent.Add(1); requests.Load() > all {
					most.Store(max(most.Load(), n))
					time.Sleep(eventRetryInterval)
				}
				concurrent.Add(-1)
				return test.err
			}}
			deferred(t, sink, func(event func(string)) {
				for n := range all {
					event(fmt.Sprint(n))
				}
				event("other")
				if n := created.Load(); n != 1 {
					t.Errorf("%d other events were created at once, want 1", n)
				}
				time.Sleep(time.Hour)
				if got, want := requests.Load(), int32(all*test.want); got != want {
					t.Errorf("%d requests, want %d", got, want)
				}
				if n := most.Load(); n > maxEventRequests {
					t.Errorf("%d concurrent requests, want at most %d", n, maxEventRequests)
				}
			})
		})
	}
}

// An event that repeats a queued event becomes a series. It is created at once, and the queued
// event does not replace it.
func TestRepeatedEvent(t *testing.T) {
	var server sync.Map // the count of each pod's event
	var release chan struct{}
	sink := fakeSink{
		create: func(pod string, count int32) error {
			if count == 1 {
				<-release
			}
			if _, exists := server.LoadOrStore(pod, count); exists {
				return apierrors.NewAlreadyExists(eventsv1.Resource("events"), pod)
			}
			return nil
		},
		patch: func(pod string, count int32) error {
			if _, exists := server.Load(pod); !exists {
				return apierrors.NewNotFound(eventsv1.Resource("events"), pod)
			}
			server.Store(pod, count)
			return nil
		},
	}
	deferred(t, sink, func(event func(string)) {
		release = make(chan struct{})
		for n := range maxEventRequests {
			event(fmt.Sprint(n))
		}
		event("repeated")
		event("repeated")
		before, _ := server.Load("repeated")
		close(release)
		synctest.Wait()
		if after, _ := server.Load("repeated"); before != int32(2) || after != int32(2) {
			t.Errorf("the event occurred %v times, later %v, want 2", before, after)
		}
	})
}
