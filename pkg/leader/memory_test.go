package leader

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A fact that a leader knows when it renews the lease reaches a later leader before it acquires the
// lease.
func TestRemember(t *testing.T) {
	ctx, client := t.Context(), fake.NewClientset()
	newLock := func(known *bool) (lock *Lock, found *int) {
		found = new(int)
		lock = NewLock(&resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "l"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		}, time.Minute)
		lock.Remember("example.com/fact", func() bool { return *known }, func() { *found++ })
		return lock, found
	}
	read := func(lock *Lock) {
		t.Helper()
		if _, _, err := lock.Get(ctx); err != nil {
			t.Fatal(err)
		}
	}
	update := func(lock *Lock) {
		t.Helper()
		if err := lock.Update(ctx, ownRecord); err != nil {
			t.Fatal(err)
		}
	}

	known, never := false, false
	first, _ := newLock(&known)
	if err := first.Create(ctx, ownRecord); err != nil {
		t.Fatal(err)
	}
	standby, found := newLock(&never)
	read(standby)
	if *found != 0 {
		t.Error("found before a leader knew the fact")
	}
	update(first)
	read(standby)
	if *found != 0 {
		t.Error("found after a renewal without the fact")
	}
	known = true
	update(first)
	read(standby)
	if *found != 1 {
		t.Errorf("found %d times after a renewal with the fact, want 1", *found)
	}
	// The label remains if a leader renews the lease without knowing the fact itself.
	update(standby)
	last, found := newLock(&never)
	read(last)
	if *found != 1 {
		t.Errorf("found %d times after another leader, want 1", *found)
	}
}

// A leader that knows the fact when it creates the lease, and locks of another kind.
func TestRememberOnCreate(t *testing.T) {
	client := fake.NewClientset()
	inner := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "l"}, Client: client.CoordinationV1(),
		Labels: map[string]string{"team": "a"}}
	lock := NewLock(inner, time.Minute)
	lock.Remember("example.com/fact", func() bool { return true }, func() {})
	if err := lock.Create(t.Context(), ownRecord); err != nil {
		t.Fatal(err)
	}
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "l", metav1.GetOptions{})
	if err != nil || lease.Labels["example.com/fact"] != "true" || lease.Labels["team"] != "a" {
		t.Errorf("labels %v, %v; want the fact and the labels of the lock", lease.Labels, err)
	}

	server := &counter{}
	other := NewLock(server, time.Minute)
	other.Remember("example.com/fact", func() bool { return true }, func() { t.Error("found without a lease") })
	if err := other.Create(t.Context(), ownRecord); err != nil || server.wrote != 1 {
		t.Errorf("written %d times, %v", server.wrote, err)
	}
}
