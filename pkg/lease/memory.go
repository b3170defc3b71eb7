package lease

import (
	"context"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// SawCapacityLabels is the label of the lease that tells later leaders that nodes with a capacity label were seen.
const SawCapacityLabels = "spot-aware-scheduler.io/saw-capacity-labels"

// memory is a fact that leaders keep for those after them, in a label of the lease.
type memory struct {
	lock  *resourcelock.LeaseLock
	label string
	known func() bool
}

// Remember keeps a fact for later leaders: from the first renewal on at which known returns true, the lease has the label. found is called
// each time the lease is read with the label, for the first time before this process leads, because an election reads a lease before it takes
// it. It costs no request, and needs no right but those of the election. Call it before the election begins. Locks other than Leases
// remember nothing.
func (l *Lock) Remember(label string, known func() bool, found func()) {
	inner, ok := l.Interface.(*resourcelock.LeaseLock)
	if !ok {
		return
	}
	inner.Client = reading{inner.Client, func(lease *coordinationv1.Lease) {
		if lease.Labels[label] == "true" {
			found()
		}
	}}
	l.memory = &memory{inner, label, known}
}

// write has the next write of the lease carry the label if the fact is known. Only the goroutine of the election writes.
func (m *memory) write() {
	if m == nil || !m.known() {
		return
	}
	labels := map[string]string{m.label: "true"}
	maps.Copy(labels, m.lock.Labels)
	m.lock.Labels = labels
}

// reading is a client whose leases are seen as they are read.
type reading struct {
	coordinationclient.LeasesGetter
	see func(*coordinationv1.Lease)
}

func (r reading) Leases(namespace string) coordinationclient.LeaseInterface {
	return readingLeases{r.LeasesGetter.Leases(namespace), r.see}
}

type readingLeases struct {
	coordinationclient.LeaseInterface
	see func(*coordinationv1.Lease)
}

func (r readingLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := r.LeaseInterface.Get(ctx, name, options)
	if err == nil {
		r.see(lease)
	}
	return lease, err
}
