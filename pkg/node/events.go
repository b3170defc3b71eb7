package node

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
)

// Event is a fact about a Node that an informer observed and that a later read of the Node does
// not show.
type Event struct {
	Name       string
	UID        types.UID
	Disruption Disruption
	// Cordoned: the Node was unschedulable before its deletion began. kubectl drain cordons a node;
	// Karpenter does not.
	Cordoned bool
}

// UpdateEvent returns the event for a change of a Node; ok is false if the change reveals nothing.
func (r *Reader) UpdateEvent(before, after *v1.Node, now time.Time) (event Event, ok bool) {
	if before.UID != after.UID { // deleted and recreated while the watch was interrupted
		return r.DeletionEvent(before, now)
	}
	return Event{after.Name, after.UID, DeletedFirst, before.Spec.Unschedulable}, r.BeginsInterruption(before, after)
}

// DeletionEvent returns the event for a deleted Node; ok is false if the Node was not disrupted.
func (r *Reader) DeletionEvent(node *v1.Node, now time.Time) (event Event, ok bool) {
	event = Event{Name: node.Name, UID: node.UID, Disruption: r.Disruption(node, now)}
	return event, event.Disruption != NotDisrupted
}

// EventHandler returns a handler for the node informer that passes every Event to note.
func (r *Reader) EventHandler(now func() time.Time, note func(Event)) cache.ResourceEventHandler {
	noteIf := func(event Event, ok bool) {
		if ok {
			note(event)
		}
	}
	return informer.Handler[*v1.Node]{
		Update: func(before, after *v1.Node) { noteIf(r.UpdateEvent(before, after, now())) },
		Delete: func(node *v1.Node) { noteIf(r.DeletionEvent(node, now())) },
	}
}

// Events collects events from the goroutines of informers. The zero value is empty.
type Events struct {
	mu   sync.Mutex
	list []Event
}

// maxEvents limits the events between two calls of Take. A scheduler that schedules nothing, or
// a standby controller, may not call Take for a long time.
const maxEvents = 10_000

// Add adds an event. If the list is full, Add drops its older half.
func (e *Events) Add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxEvents {
		e.list = slices.Delete(e.list, 0, maxEvents/2)
	}
	e.list = append(e.list, event)
}

// Take returns the events since the previous Take, oldest first.
func (e *Events) Take() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}
