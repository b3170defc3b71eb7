package main

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	// maxEvents limits the number of concurrent requests that create events. Without this limit,
	// the events of a burst take the API server's time from the bindings.
	// docs/design/throughput.md has the measurement.
	maxEvents = 8
	// maxWaitingEvents limits the number of events that wait for such a request. Each uses about 10
	// KiB. Further events are sent at once.
	maxWaitingEvents = 2000
)

// deferEvents has the profiles of sched create the events of scheduling cycles in target after the
// bindings of a burst, until ctx is done.
func deferEvents(ctx context.Context, target events.EventSink, sched *scheduler.Scheduler) error {
	broadcaster := events.NewBroadcaster(eventSink{target, make(chan struct{}, maxWaitingEvents), make(chan struct{}, maxEvents)})
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

// eventSink creates events with a limited number of concurrent requests, if not too many wait.
type eventSink struct {
	events.EventSink
	waiting, sending chan struct{} // an element for each event
}

// Create creates an event when it is the event's turn, or at once if too many wait. The broadcaster
// calls it in a goroutine of the event.
func (s eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	select {
	case s.waiting <- struct{}{}:
		select {
		case s.sending <- struct{}{}:
			defer func() { <-s.sending }()
		case <-ctx.Done():
		}
		<-s.waiting
	default:
	}
	return s.EventSink.Create(ctx, event)
}
