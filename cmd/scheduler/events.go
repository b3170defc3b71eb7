package main

import (
	"context"
	"errors"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	// maxEvents limits the number of concurrent requests that create events. An event costs the API
	// server more than half of a binding, so in a burst most bindings are sent first.
	// docs/design/throughput.md has the measurement.
	maxEvents = 8
	// maxWaitingEvents limits the number of events that wait for a request. While it is reached,
	// the scheduler takes no pod, so the memory for events is bounded.
	maxWaitingEvents = 5000
)

// eventRetries are the attempts to create an event while the API server is not reachable, as in
// client-go.
var eventRetries = wait.Backoff{Steps: 12, Duration: 10 * time.Second, Jitter: 0.25}

// deferEvents has the profiles of sched create the events of scheduling cycles in target with at
// most maxEvents concurrent requests, until ctx is done. No event is dropped because of this limit.
func deferEvents(ctx context.Context, target events.EventSink, sched *scheduler.Scheduler) error {
	sink := eventQueue{target, make(chan *eventsv1.Event, maxWaitingEvents), make(chan struct{}, maxWaitingEvents)}
	for range maxEvents {
		go sink.send(ctx)
	}
	broadcaster := events.NewBroadcaster(sink)
	context.AfterFunc(ctx, broadcaster.Shutdown)
	for name, profile := range sched.Profiles {
		sched.Profiles[name] = recordedProfile{profile, broadcaster.NewRecorder(scheme.Scheme, name)}
	}
	next := sched.NextPod
	sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		sink.waiting <- struct{}{}
		<-sink.waiting
		return next(logger)
	}
	return broadcaster.StartRecordingToSinkWithContext(ctx)
}

// recordedProfile is a profile whose scheduling cycles use another recorder. Its plugins keep the
// recorder of kube-scheduler.
type recordedProfile struct {
	framework.Framework
	recorder events.EventRecorderLogger
}

// EventRecorder returns the recorder for the events of scheduling cycles.
func (p recordedProfile) EventRecorder() events.EventRecorderLogger { return p.recorder }

// eventQueue is a sink that creates events later, in order. waiting contains an element for each
// event in the queue or in a request.
type eventQueue struct {
	events.EventSink
	queue   chan *eventsv1.Event
	waiting chan struct{}
}

// Create adds the event to the queue. It waits while the queue is full.
func (q eventQueue) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	q.waiting <- struct{}{}
	q.queue <- event
	return event, nil
}

// send creates the events of the queue one after the other, until ctx is done.
func (q eventQueue) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-q.queue:
			err := retry.OnError(eventRetries, unanswered, func() error {
				_, err := q.EventSink.Create(ctx, event)
				return err
			})
			if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to create an event", "event", klog.KObj(event), "note", event.Note)
			}
			<-q.waiting
		}
	}
}

// unanswered reports whether a request failed without an answer of the API server.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) && !errors.Is(err, context.Canceled)
}
