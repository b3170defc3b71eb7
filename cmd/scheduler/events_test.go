package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// fakeSink passes the names of the pods of events to create.
type fakeSink struct {
	events.EventSink
	create func(pod string) error
}

func (s fakeSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return event, s.create(event.Regarding.Name)
}

// emit has the scheduler emit an event about pod n.
func emit(sched *scheduler.Scheduler, n int) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(n)}}
	sched.Profiles["a"].EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "assigned")
	synctest.Wait()
}

// At most maxEvents events are created at a time. While maxWaitingEvents wait, the scheduler takes
// no pod. In the end, every event has been created once.
func TestDeferEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = maxWaitingEvents + 10
		begun, release, taken := make(chan string, all), make(chan struct{}), make(chan struct{}, 2)
		sink := fakeSink{create: func(pod string) error { begun <- pod; <-release; return nil }}
		sched := &scheduler.Scheduler{Profiles: profile.Map{"a": nil}, NextPod: func(klog.Logger) (*framework.QueuedPodInfo, error) {
			taken <- struct{}{}
			return nil, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		if err := deferEvents(ctx, sink, sched); err != nil {
			t.Fatal(err)
		}
		for n := range maxWaitingEvents - 1 {
			emit(sched, n)
		}
		if n := len(begun); n != maxEvents {
			t.Errorf("%d events are being created, want %d", n, maxEvents)
		}
		go sched.NextPod(klog.Background())
		synctest.Wait()
		for n := maxWaitingEvents - 1; n < all; n++ {
			emit(sched, n)
		}
		go sched.NextPod(klog.Background())
		synctest.Wait()
		if len(taken) != 1 {
			t.Errorf("%d pods were taken, want 1: before the events reached their limit", len(taken))
		}
		close(release)
		synctest.Wait()
		pods := map[string]bool{}
		for range len(begun) {
			pods[<-begun] = true
		}
		if len(pods) != all || len(taken) != 2 {
			t.Errorf("in the end, %d pods had their events and %d pods were taken, want %d and 2", len(pods), len(taken), all)
		}
		cancel()
	})
}

// An event is created again if the API server did not answer, and not if it refused the event.
func TestRetryEvents(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"no answer":      {errors.New("connection refused"), 3},
		"already exists": {apierrors.NewAlreadyExists(eventsv1.Resource("events"), "e"), 1},
		"refused":        {apierrors.NewForbidden(eventsv1.Resource("events"), "e", nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				sink := fakeSink{create: func(string) error {
					if attempts++; attempts == 3 {
						return nil
					}
					return test.err
				}}
				sched := &scheduler.Scheduler{Profiles: profile.Map{"a": nil}}
				ctx, cancel := context.WithCancel(t.Context())
				if err := deferEvents(ctx, sink, sched); err != nil {
					t.Fatal(err)
				}
				emit(sched, 1)
				time.Sleep(time.Minute)
				if attempts != test.want {
					t.Errorf("%d attempts, want %d", attempts, test.want)
				}
				cancel()
			})
		})
	}
}
