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
	// maxEventRequests limits the number of concurrent requests for events in the queue. Without
	// this limit, the events of a burst take the API server's time from the bindings.
	// docs/design/throughput.md has the measurement.
	maxEventRequests = 8
	// eventQueueSize is the largest number of events in the queue. Each uses 1 to 2 KiB.
	eventQueueSize = 10_000
	// eventTries and eventRetryInterval are maxTriesPerEvent and defaultSleepDuration of client-go,
	// for an API server that does not answer.
	eventTries         = 12
	eventRetryInterval = 10 * time.Second
)

// deferEvents limits the number of concurrent requests for the events of scheduling cycles, which
// the profiles of sched create in target until ctx is done. In a burst, most bindings come first.
func deferEvents(ctx context.Context, target events.EventSink, sched *scheduler.Scheduler) error {
	sink := eventQueue{target, make(chan queuedEvent, eventQueueSize)}
	for range maxEventRequests {
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
	queue chan queuedEvent
}

type queuedEvent struct {
	event     *eventsv1.Event
	triesLeft int
}

// Create puts an event into the queue. It creates the event at once if the queue is full, or if the
// event is a series: the broadcaster must learn that its first event was created meanwhile.
func (q eventQueue) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if event.Series == nil {
		select {
		case q.queue <- queuedEvent{event, eventTries}:
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
		case e := <-q.queue:
			q.try(ctx, e)
		}
	}
}

// try creates an event. If the API server does not answer, the event returns to the queue later.
// The event may already exist, because its series or an earlier try created it.
func (q eventQueue) try(ctx context.Context, e queuedEvent) {
	_, err := q.EventSink.Create(ctx, e.event)
	if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
		return
	}
	pod := &e.event.Regarding
	klog.FromContext(ctx).Error(err, "Unable to create event (may retry)", "pod", klog.KRef(pod.Namespace, pod.Name), "reason", e.event.Reason)
	e.triesLeft--
	if _, refused := errors.AsType[*apierrors.StatusError](err); refused || e.triesLeft == 0 {
		return
	}
	time.AfterFunc(wait.Jitter(eventRetryInterval, 0.25), func() {
		select {
		case q.queue <- e:
		case <-ctx.Done():
		}
	})
}
