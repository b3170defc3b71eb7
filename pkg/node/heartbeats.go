package node

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
)

// A kubelet's Lease is overdue if it was not renewed for overdueAfter. A kubelet renews its Lease
// every 10 s.
const overdueAfter = 20 * time.Second

// heartbeats records when each kubelet's Lease was last renewed. As in the node lifecycle
// controller, this is the local time at which renewTime was observed to change, because the clock
// of a node cannot be trusted. A Lease that is observed for the first time counts as just renewed.
//
// If no Lease at all is renewed for overdueAfter, the API server or the watch is unavailable, not
// every kubelet. Then no Lease is overdue. All Leases count as renewed when renewals resume. All
// methods may be called concurrently.
type heartbeats struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	renewed map[string]renewal // by node name
	last    time.Time          // latest renewal of any Lease
	resumed time.Time          // when renewals were observed again after a pause
}

// renewal is the last renewal of a Lease that was observed, at the local time at. changed reports
// whether renewTime was observed to change, and not for the first time.
type renewal struct {
	at        time.Time
	renewTime metav1.MicroTime
	changed   bool
}

// handler returns the handler for the Lease informer. It triggers no reconciliation: a cluster of
// 5,000 nodes has 500 renewals per second.
func (h *heartbeats) handler() cache.ResourceEventHandler {
	return informer.Handler[*coordinationv1.Lease]{
		Add:    func(lease *coordinationv1.Lease) { h.record(lease, true) },
		Update: func(_, after *coordinationv1.Lease) { h.record(after, true) },
		Delete: func(lease *coordinationv1.Lease) {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.renewed, lease.Name)
		},
	}
}

// record records a Lease if it is new or was renewed. A Lease that was read (not watched) does not
// prove that the watch delivers renewals, so it does not end a pause. The times have no monotonic
// part, so a clock that is set forward counts as a pause.
func (h *heartbeats) record(lease *coordinationv1.Lease, watched bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.renewed[lease.Name]
	renewTime := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
	if known && before.renewTime.Equal(&renewTime) {
		return
	}
	now := h.clock.Now().Round(0)
	h.renewed[lease.Name] = renewal{now, renewTime, known}
	if !watched {
		return
	}
	if now.Sub(h.last) >= overdueAfter {
		h.resumed = now
	}
	h.last = now
}

// seenRenewed reports whether a renewal of the node's Lease was observed within overdueAfter. A
// Lease that was observed only once may be of a kubelet that ended long ago.
func (h *heartbeats) seenRenewed(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.renewed[name]
	return last.changed && h.clock.Now().Round(0).Sub(last.at) < overdueAfter
}

// Overdue returns the nodes whose Lease is overdue at now, with the time of the last renewal. It
// omits nodes without a Lease.
func (h *heartbeats) Overdue(now time.Time) map[string]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now = now.Round(0)
	if now.Sub(h.last) >= overdueAfter {
		return nil
	}
	overdue := map[string]time.Time{}
	for name, last := range h.renewed {
		at := last.at
		if at.Before(h.resumed) {
			at = h.resumed
		}
		if now.Sub(at) >= overdueAfter {
			overdue[name] = at
		}
	}
	return overdue
}
