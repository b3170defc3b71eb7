package leader

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Remember records a fact for later leaders: from the first renewal at which known returns true,
// the lease has the label. found is called each time the lease is read with the label. The first
// call is before this process leads, because an election reads a lease before it acquires it.
// Remember adds no requests, and requires no additional rights. Call it before
// the election begins. It has no effect on locks other than Leases.
func (l *Lock) Remember(label string, known func() bool, found func()) {
	inner, ok := l.Interface.(*resourcelock.LeaseLock)
	if !ok {
		return
	}
	inner.Client = observingClient{inner.Client, func(lease *coordinationv1.Lease) {
		if lease.Labels[label] == "true" {
			found()
		}
	}}
	l.beforeWrite = func() {
		if known() {
			inner.Labels = labels.Merge(inner.Labels, labels.Set{label: "true"})
		}
	}
}

// observingClient is a client that passes every lease that it reads to observe.
type observingClient struct {
	coordinationclient.LeasesGetter
	observe func(*coordinationv1.Lease)
}

func (r observingClient) Leases(namespace string) coordinationclient.LeaseInterface {
	return observingLeases{r.LeasesGetter.Leases(namespace), r.observe}
}

type observingLeases struct {
	coordinationclient.LeaseInterface
	observe func(*coordinationv1.Lease)
}

func (r observingLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := r.LeaseInterface.Get(ctx, name, options)
	if err == nil {
		r.observe(lease)
	}
	return lease, err
}
