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
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	// maxEvents limits the number of concurrent requests for the events in the queue. Without this
	// limit, the events of a burst take the API server's time from the bindings.
	// docs/design/throughput.md has the measurement.
	maxEvents = 8
	// maxQueuedEvents limits the number of events in the queue. Each uses about 1 KiB. Further
	// events are created at once.
	maxQueuedEvents = 2000
	// eventTries and eventRetryInterval are those of client-go, for an API server that is not
	// reachable.
	eventTries         = 12
	eventRetryInterval = 10 * time.Second
)

// deferEvents has the profiles of sched create the events of scheduling cycles in target after the
// bindings of a burst, until ctx is done.
func deferEvents(ctx context.Context, target events.EventSink, sched *scheduler.Scheduler) error {
	sink := eventQueue{target, make(chan *eventsv1.Event, maxQueuedEvents)}
	for range maxEvents {
		go sink.run(ctx)
	}
	broadcaster := events.NewBroadcaster(sink)
	context.AfterFunc(ctx, broadcaster.Shutdown)
	for name, profile := range sched.Profiles {
		sched.Profiles[name] = recordedProfile{profile, broadcaster.NewRecorder(scheme.Scheme, name)}
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

// eventQueue is a sink that creates events later.
type eventQueue struct {
	events.EventSink
	queue chan *eventsv1.Event
}

// Create puts an event into the queue. It creates the event at once if the queue is full. It also
// does so for an event of a series, because the broadcaster needs the answer.
func (q eventQueue) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if event.Series == nil {
		select {
		case q.queue <- event:
			return event, nil
		default:
		}
	}
	return q.EventSink.Create(ctx, event)
}

// run creates the events of the queue one after the other, until ctx is done.
func (q eventQueue) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-q.queue:
			q.send(ctx, event, eventTries)
		}
	}
}

// send creates an event. While the API server does not answer, it is called again later, with
// fewer tries. An event that exists is part of a series that was created first.
func (q eventQueue) send(ctx context.Context, event *eventsv1.Event, tries int) {
	_, err := q.EventSink.Create(ctx, event)
	var answer apierrors.APIStatus
	switch {
	case err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil:
	case errors.As(err, &answer) || tries == 1:
		klog.FromContext(ctx).Error(err, "Failed to create an event", "event", klog.KObj(event), "note", event.Note)
	default:
		time.AfterFunc(wait.Jitter(eventRetryInterval, 0.25), func() { q.send(ctx, event, tries-1) })
	}
}
