package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// slowSink passes on the name of the pod of an event, and then waits for release.
type slowSink struct {
	events.EventSink
	begun   chan string
	release chan struct{}
}

func (s slowSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.begun <- event.Regarding.Name
	<-s.release
	return event, nil
}

// At most maxEvents events are created at a time. If maxWaitingEvents wait, further events are
// created at once. In the end, every event has been created once.
func TestDeferEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = maxEvents + maxWaitingEvents + 10
		sink := slowSink{begun: make(chan string, 2*all), release: make(chan struct{})}
		sched := &scheduler.Scheduler{Profiles: profile.Map{"a": nil}}
		ctx, cancel := context.WithCancel(t.Context())
		if err := deferEvents(ctx, sink, sched); err != nil {
			t.Fatal(err)
		}
		for n := range all {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(n)}}
			sched.Profiles["a"].EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "assigned")
			synctest.Wait()
			if want := max(min(n+1, maxEvents), n+1-maxWaitingEvents); len(sink.begun) != want {
				t.Fatalf("%d of %d events are being created, want %d", len(sink.begun), n+1, want)
			}
		}
		close(sink.release)
		synctest.Wait()
		pods := map[string]bool{}
		for range len(sink.begun) {
			pods[<-sink.begun] = true
		}
		if len(pods) != all {
			t.Errorf("in the end, %d pods had their events, want %d", len(pods), all)
		}
		cancel()
	})
}
