package leader

import (
	"context"
	"encoding/json"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// maxMemory limits the size of the annotation, because every renewal of the lease writes it.
const maxMemory = 64 << 10

// Memory contains a JSON value that leaders pass on in spot.MemoryAnnotation of the Lease. It needs
// no requests of its own: an election reads the lease before it acquires it, and the leader renews
// it. The zero value is empty, and remains so without a Lease.
type Memory struct {
	mu   sync.Mutex
	text string
	own  bool // whether this process has stored a value
}

// ReadMemory returns the memory that a lease contains.
func ReadMemory(lease *coordinationv1.Lease) *Memory {
	return &Memory{text: lease.Annotations[spot.MemoryAnnotation]}
}

// Remember connects m to the lease. It must be called before the election begins.
func (l *Lock) Remember(m *Memory) {
	if inner, ok := l.Interface.(*resourcelock.LeaseLock); ok {
		inner.Client = leases{inner.Client.Leases(inner.LeaseMeta.Namespace), m}
	}
}

// Load reads the value of the last leader. Unreadable parts are missing. nil contains nothing.
func (m *Memory) Load(value any) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = json.Unmarshal([]byte(m.text), value)
}

// Store passes the fields of value on, and leaves other fields of the memory unchanged. It does
// nothing if the memory would be too large, or if m is nil. Only a leader may call it.
func (m *Memory) Store(value any) {
	if m == nil {
		return
	}
	text, err := json.Marshal(value)
	m.mu.Lock()
	defer m.mu.Unlock()
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal([]byte(m.text), &fields) // unreadable fields are lost
	if err == nil && json.Unmarshal(text, &fields) == nil {
		text, err = json.Marshal(fields)
	}
	if err == nil && len(text) <= maxMemory {
		m.text, m.own = string(text), true
	}
}

// leases is a client of one namespace that reads and writes the memory of a lease.
type leases struct {
	coordinationclient.LeaseInterface
	*Memory
}

func (l leases) Leases(string) coordinationclient.LeaseInterface { return l }

func (l leases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	read, err := l.LeaseInterface.Get(ctx, name, options)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && !l.own {
		l.text = read.Annotations[spot.MemoryAnnotation]
	}
	return read, err
}

func (l leases) Update(ctx context.Context, write *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	if l.own {
		metav1.SetMetaDataAnnotation(&write.ObjectMeta, spot.MemoryAnnotation, l.text)
	}
	l.mu.Unlock()
	return l.LeaseInterface.Update(ctx, write, options)
}
