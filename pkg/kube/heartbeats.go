package kube

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// overdueAfter is how long a kubelet's Lease may go without a renewal before it is overdue: a
// kubelet renews its Lease every 10 s.
const overdueAfter = 20 * time.Second

// Heartbeats records when each kubelet's Lease was seen to be renewed. As in the node lifecycle
// controller, that is the local time at which renewTime was seen to change: the clock of a node
// proves nothing. A Lease that is seen for the first time counts as renewed just now.
//
// If no Lease at all is renewed for overdueAfter, the API server or the watch is away, and not
// every kubelet: then no Lease is overdue, and afterwards all of them count as renewed. All methods
// may be called concurrently.
type Heartbeats struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	renewed map[string]time.Time // by name of the node
	last    time.Time            // when any Lease was renewed
	resumed time.Time            // when renewals were seen again after a pause
}

// WatchHeartbeats registers an informer of the kubelets' Leases with factory, which must not have
// been started.
func WatchHeartbeats(factory informers.SharedInformerFactory, clock clock.PassiveClock) (*Heartbeats, error) {
	h := &Heartbeats{clock: clock, renewed: map[string]time.Time{}}
	informer := factory.InformerFor(&coordinationv1.Lease{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coordinationinformers.NewLeaseInformer(client, v1.NamespaceNodeLease, resync, cache.Indexers{})
	})
	_, err := informer.AddEventHandler(h.handler())
	return h, err
}

// handler returns the handler for the informer of Leases. It wakes nobody: in a cluster of 5,000
// nodes there are 500 renewals a second.
func (h *Heartbeats) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { h.note(obj.(*coordinationv1.Lease).Name) },
		UpdateFunc: func(before, after any) {
			if lease := after.(*coordinationv1.Lease); !lease.Spec.RenewTime.Equal(before.(*coordinationv1.Lease).Spec.RenewTime) {
				h.note(lease.Name)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if lease, ok := obj.(*coordinationv1.Lease); ok {
				h.forget(lease.Name)
			}
		},
	}
}

// note notes that a Lease was renewed. The times have no monotonic part: a clock that is set
// forward is a pause like any other.
func (h *Heartbeats) note(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now().Round(0)
	if now.Sub(h.last) >= overdueAfter {
		h.resumed = now
	}
	h.last, h.renewed[name] = now, now
}

func (h *Heartbeats) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.renewed, name)
}

// Overdue returns the nodes whose Lease is overdue at now, with the time of the last renewal. A
// node without a Lease is not among them.
func (h *Heartbeats) Overdue(now time.Time) map[string]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now = now.Round(0)
	if now.Sub(h.last) >= overdueAfter {
		return nil
	}
	overdue := map[string]time.Time{}
	for name, at := range h.renewed {
		if at.Before(h.resumed) {
			at = h.resumed
		}
		if now.Sub(at) >= overdueAfter {
			overdue[name] = at
		}
	}
	return overdue
}
