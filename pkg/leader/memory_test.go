package leader

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Each leader finds what the last one stored, unless that is unreadable. A leader that stores
// nothing passes on what it found.
func TestMemory(t *testing.T) {
	client := fake.NewClientset()
	// lead returns the memory of a process that has just become the leader, and a function that
	// renews its lease.
	lead := func(identity string) (memory *Memory, renew func()) {
		memory = &Memory{}
		inner := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "test"}, Client: client.CoordinationV1()}
		lock := NewLock(inner, 15*time.Second)
		lock.Remember(memory)
		record := resourcelock.LeaderElectionRecord{HolderIdentity: identity}
		renew = func() {
			t.Helper()
			if err := lock.Update(t.Context(), record); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := lock.Get(t.Context()); err != nil {
			if err := lock.Create(t.Context(), record); err != nil {
				t.Fatal(err)
			}
		} else {
			renew()
		}
		return memory, renew
	}
	stored := func() string {
		lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "test", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Annotations[spot.MemoryAnnotation]
	}
	loaded := func(m *Memory, want map[string]int) {
		t.Helper()
		var got map[string]int
		m.Load(&got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("loaded (-want +got):\n%s", diff)
		}
	}

	first, renew := lead("first")
	loaded(first, nil)
	renew()
	if got := stored(); got != "" {
		t.Errorf("stored %q", got)
	}
	first.Store(map[string]int{"a": 1})
	renew()
	second, renew := lead("second")
	loaded(second, map[string]int{"a": 1})
	renew()
	third, renew := lead("third")
	loaded(third, map[string]int{"a": 1})
	third.Store(map[string]int{"a": 2})
	third.Store(map[string]int{strings.Repeat("b", maxMemory): 3})
	renew()
	if want := `{"a":2}`; stored() != want {
		t.Errorf("stored %.100q, want %q", stored(), want)
	}
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Annotations[spot.MemoryAnnotation] = "{unreadable"
	if _, err := client.CoordinationV1().Leases("kube-system").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	fourth, renew := lead("fourth")
	loaded(fourth, nil)
	fourth.Store(map[string]int{"c": 4})
	renew()
	if want := `{"c":4}`; stored() != want {
		t.Errorf("stored %q, want %q", stored(), want)
	}
}
