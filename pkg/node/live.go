package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

const (
	// A read serves all who ask for the same node within readInterval, a failed one within
	// failedReadInterval. Thus a mass reclaim needs one read of a node, not of each pod.
	readInterval, failedReadInterval = 3 * time.Second, time.Second
	// newestLifetime limits how long a Node that was read replaces that of the cache, in case the
	// versions of the API server were set back.
	newestLifetime = 10 * time.Minute
	// readTimeout limits a read, including its wait for the rate limit of the client.
	readTimeout = 2 * time.Second
	// maxSilenceReads is how many reads of silent nodes a round starts. silenceReadTime is when
	// their results are expected.
	maxSilenceReads = 50
	silenceReadTime = 500 * time.Millisecond
)

// LiveReader reads Nodes, and the Leases of their kubelets, from the API server. A watch may be
// minutes late and its cache does not show this, so a LiveReader confirms a fact before an action
// on it that cannot be undone. The rate limit of its client limits all reads together.
//
// The node lifecycle controller does the same from Kubernetes 1.37 on (feature gate
// NodeControllerLeaseCircuitBreaker): it reads the Lease of a node before it marks the node as
// unreachable. After a stale Lease it waits for the cache of all Leases. A LiveReader uses what it
// has read instead, and also reads the Node, because signals are on the Node.
//
// If a read fails, the fact is not confirmed. This is the lesser harm: an API server that answers
// no read would not delete the pod either, and the pod ends with its node. A pod that was deleted
// for a signal that no longer exists does not return. All methods may be called concurrently.
type LiveReader struct {
	client     kubernetes.Interface
	heartbeats *Heartbeats
	clock      clock.PassiveClock

	mu    sync.Mutex
	reads map[string]*liveRead // the last read of each node, by its name
}

// liveRead is a read of a Node and, if lease is set, of the Lease of its kubelet.
type liveRead struct {
	began time.Time
	lease bool
	// done is closed when the result is known: node and err. A Node that does not exist is nil
	// without an error.
	done chan struct{}
	node *v1.Node
	err  error
	// newest is the Node of this read, or of an earlier one if this failed.
	newest *v1.Node
}

// NewLiveReader returns a LiveReader that reads with this client.
func NewLiveReader(client kubernetes.Interface, heartbeats *Heartbeats, clock clock.PassiveClock) *LiveReader {
	return &LiveReader{client: client, heartbeats: heartbeats, clock: clock, reads: map[string]*liveRead{}}
}

// Unchanged reports whether no signal on the Node has changed since the version that an action was
// planned for. silence reports whether the action has a kubelet that seems unreachable as its
// reason: then the kubelet must also not have renewed its Lease. A Node that no longer exists is
// unchanged. A change is in the Nodes that Update returns afterwards.
func (l *LiveReader) Unchanged(ctx context.Context, planned *v1.Node, silence bool) (bool, error) {
	r, _ := l.read(planned.Name, silence)
	select {
	case <-r.done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if r.err != nil {
		return false, fmt.Errorf("reading node %s from the API server: %w", planned.Name, r.err)
	}
	alive := silence && l.heartbeats.seenRenewed(planned.Name)
	same := r.node == nil || !newer(r.node, planned) || r.node.UID == planned.UID && !SignalsDiffer(planned, r.node)
	return same && !alive, nil
}

// Update replaces each Node of a cache that is older than what was read. The Nodes must be sorted
// by name.
func (l *LiveReader) Update(nodes []*v1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, r := range l.reads {
		i, found := slices.BinarySearchFunc(nodes, name, func(n *v1.Node, name string) int { return strings.Compare(n.Name, name) })
		switch {
		case !found:
			delete(l.reads, name)
		case r.newest != nil && newer(r.newest, nodes[i]) && l.clock.Since(r.began) < newestLifetime:
			nodes[i] = r.newest
		default:
			r.newest = nil
		}
	}
}

// Unconfirmed returns the spot nodes whose kubelet has been unreachable for long enough according
// to the reader, while no read has confirmed it. It starts their reads and does not wait.
// next is when their results are expected; zero if there are none. A node that the controller has
// marked as unreachable is confirmed: an earlier read confirmed it.
func (l *LiveReader) Unconfirmed(reader *Reader, nodes []*v1.Node, now time.Time) (unconfirmed map[string]bool, next time.Time) {
	started := 0
	for _, n := range nodes {
		lostAt, unreachable := reader.lostAt(n)
		if !unreachable || now.Before(lostAt) || reader.Capacity(n, now).Type != decision.Spot || l.confirmed(n, lostAt) {
			continue
		}
		if unconfirmed == nil {
			unconfirmed = map[string]bool{}
		}
		unconfirmed[n.Name] = true
		if started < maxSilenceReads && !l.heartbeats.seenRenewed(n.Name) {
			if _, isNew := l.read(n.Name, true); isNew {
				started++
				next = now.Add(silenceReadTime)
			}
		}
	}
	return unconfirmed, next
}

// confirmed reports whether a node counts as lost at lostAt because of the silence of its kubelet.
func (l *LiveReader) confirmed(n *v1.Node, lostAt time.Time) bool {
	if l.heartbeats.seenRenewed(n.Name) {
		return false
	}
	if own := readControllerMark(n); own.Taint == UnreachableReason && own.isOn(n) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reads[n.Name]
	return r != nil && r.isDone() && r.err == nil && r.lease && !r.began.Before(lostAt) && (r.node == nil || !newer(r.node, n))
}

// read returns the last read of a node if it is recent, else a new one. A read without the Lease
// does not serve a caller that needs the Lease.
func (l *LiveReader) read(name string, lease bool) (r *liveRead, isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, now := l.reads[name], l.clock.Now()
	if last != nil && (last.lease || !lease) {
		interval := readInterval
		if last.isDone() && last.err != nil {
			interval = failedReadInterval
		}
		if !last.isDone() || now.Sub(last.began) < interval {
			return last, false
		}
	}
	r = &liveRead{began: now, lease: lease, done: make(chan struct{})}
	if last != nil {
		r.newest = last.newest
	}
	l.reads[name] = r
	go l.perform(r, name)
	return r, true
}

// perform sends the requests of a read.
func (l *LiveReader) perform(r *liveRead, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	node, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err == nil && node != nil && r.lease {
		lease, failed := l.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		switch {
		case failed == nil:
			l.heartbeats.recordRead(lease)
		case apierrors.IsNotFound(failed):
			l.heartbeats.remove(name)
		default:
			err = failed
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.err = err; err != nil {
		klog.Background().V(2).Info("Reading a node before a removal failed, will retry", "node", klog.KRef("", name), "err", err)
	} else if node != nil {
		r.node, r.newest = node, node
	}
	close(r.done)
}

func (r *liveRead) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// newer reports whether a is a later version than b. If the API server's versions cannot be
// compared, a version that was read counts as later if it differs.
func newer(a, b *v1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return order > 0 || err != nil && a.ResourceVersion != b.ResourceVersion
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
