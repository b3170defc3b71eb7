package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
)

// silenceTimeout limits the time for the reads of silent nodes before a round.
const silenceTimeout = 500 * time.Millisecond

// LiveReader reads Nodes, and the Leases of their kubelets, from the API server. A watch may be
// minutes late and its cache does not show this, so a LiveReader confirms a fact before an action
// on it that cannot be undone. The rate limit of its client limits all reads together.
//
// The node lifecycle controller does the same from Kubernetes 1.37 on (feature gate
// NodeControllerLeaseCircuitBreaker): it reads the Lease of a node before it marks the node as
// unreachable. A LiveReader also reads the Node, because signals are on the Node.
//
// If a read fails, the fact is not confirmed. This is the lesser harm: an API server that answers
// no read would not delete the pod either, and the pod ends with its node. A pod that was deleted
// for a signal that no longer exists does not return.
type LiveReader struct {
	client     kubernetes.Interface
	heartbeats *heartbeats
	// silent contains the nodes of the last round whose kubelet is silent according to a read.
	silent map[string]bool
}

// NewLiveReader returns a LiveReader that reads with this client. It watches the Leases of the
// kubelets with factory, which must not be started yet.
func NewLiveReader(client kubernetes.Interface, factory informers.SharedInformerFactory, clock clock.PassiveClock) (*LiveReader, error) {
	l := &LiveReader{client: client, heartbeats: &heartbeats{clock: clock, renewed: map[string]renewal{}}}
	leases := factory.InformerFor(&coordinationv1.Lease{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coordinationinformers.NewLeaseInformer(client, v1.NamespaceNodeLease, resync, cache.Indexers{})
	})
	_, err := leases.AddEventHandler(l.heartbeats.handler())
	return l, err
}

// Unchanged reports whether, according to the API server, no signal on the Node has changed since
// the version that an action was planned for. silence reports whether the action has a kubelet that
// seems unreachable as its reason: then other signals do not matter, but the kubelet must not have
// renewed its Lease. A Node that no longer exists is unchanged, and a planned Node without a UID is
// unchanged only if it does not exist. Unchanged may be called concurrently.
func (l *LiveReader) Unchanged(ctx context.Context, planned *v1.Node, silence bool) (bool, error) {
	node, err := l.client.CoreV1().Nodes().Get(ctx, planned.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading node %s from the API server: %w", planned.Name, err)
	case node.UID != planned.UID:
		return false, nil
	case !silence:
		return !SignalsDiffer(planned, node), nil
	}
	lease, err := l.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, planned.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // only the condition Ready counts
		_, unreachable := new(Reader).KubeletUnreachable(node)
		return unreachable, nil
	case err != nil:
		return false, fmt.Errorf("reading the Lease of node %s from the API server: %w", planned.Name, err)
	}
	l.heartbeats.record(lease, false)
	return !l.heartbeats.seenRenewed(planned.Name), nil
}

// Silent returns the values for Overdue and Unconfirmed of reader at now. First it reads the spot
// nodes that seem to be lost without a confirmation, for silenceTimeout at most. It must not be
// called concurrently.
func (l *LiveReader) Silent(reader *Reader, nodes []*v1.Node, now time.Time) (overdue map[string]time.Time, unconfirmed map[string]bool) {
	cached := *reader
	cached.Overdue = l.heartbeats.Overdue(now)
	silent, unconfirmed := map[string]bool{}, map[string]bool{}
	var unread []*v1.Node
	for _, n := range nodes {
		lostAt, unreachable := cached.lostAt(n)
		switch {
		case !unreachable || now.Before(lostAt) || cached.Capacity(n, now).Type != decision.Spot:
		case l.silent[n.Name] && !l.heartbeats.seenRenewed(n.Name):
			silent[n.Name] = true
		default:
			unread = append(unread, n)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), silenceTimeout)
	defer cancel()
	isSilent := make([]bool, len(unread))
	workqueue.ParallelizeUntil(ctx, 16, len(unread), func(i int) {
		var err error
		if isSilent[i], err = l.Unchanged(ctx, unread[i], true); err != nil {
			klog.Background().V(2).Info("Reading a node before a removal failed, will retry", "node", klog.KObj(unread[i]), "err", err)
		}
	})
	for i, n := range unread {
		silent[n.Name], unconfirmed[n.Name] = isSilent[i], !isSilent[i]
	}
	l.silent = silent
	return cached.Overdue, unconfirmed
}

// Renewed reports whether a renewal of the node's Lease was observed since then. It is true for a
// node without a Lease: only its condition Ready counts.
func (l *LiveReader) Renewed(node string, since time.Time) bool {
	l.heartbeats.mu.Lock()
	defer l.heartbeats.mu.Unlock()
	last, known := l.heartbeats.renewed[node]
	return !known || last.changed && !last.at.Before(since)
}

// SignalsDiffer reports whether a field has changed that can contain a signal. Most updates of
// nodes are heartbeats.
func SignalsDiffer(a, b *v1.Node) bool {
	status := func(c v1.NodeCondition) string { return string(c.Type) + string(c.Status) + c.Reason + c.Message }
	return !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) || a.Spec.Unschedulable != b.Spec.Unschedulable ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		!slices.EqualFunc(a.Spec.Taints, b.Spec.Taints,
			func(a, b v1.Taint) bool { return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect }) ||
		!slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b v1.NodeCondition) bool { return status(a) == status(b) })
}

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
