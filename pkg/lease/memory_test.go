package lease

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// What a leader knows when it renews the lease, a later one finds before it takes the lease.
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
		if err := lock.Update(ctx, mine); err != nil {
			t.Fatal(err)
		}
	}

	known, never := false, false
	first, _ := newLock(&known)
	if err := first.Create(ctx, mine); err != nil {
		t.Fatal(err)
	}
	standby, found := newLock(&never)
	read(standby)
	if *found != 0 {
		t.Error("found before anybody knew")
	}
	update(first)
	read(standby)
	if *found != 0 {
		t.Error("found after a renewal by one that does not know")
	}
	known = true
	update(first)
	read(standby)
	if *found != 1 {
		t.Errorf("found %d times after a renewal by one that knows, want once", *found)
	}
	// It stays when one renews that has found nothing of its own.
	update(standby)
	last, found := newLock(&never)
	read(last)
	if *found != 1 {
		t.Errorf("found %d times after another leader, want once", *found)
	}
}

// One that knows when it makes the lease, and locks of another kind.
func TestRememberAtOnce(t *testing.T) {
	client := fake.NewClientset()
	inner := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "l"}, Client: client.CoordinationV1(),
		Labels: map[string]string{"team": "a"}}
	lock := NewLock(inner, time.Minute)
	lock.Remember("example.com/fact", func() bool { return true }, func() {})
	if err := lock.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "l", metav1.GetOptions{})
	if err != nil || lease.Labels["example.com/fact"] != "true" || lease.Labels["team"] != "a" {
		t.Errorf("labels %v, %v; want the fact and those that the lock has", lease.Labels, err)
	}

	server := &counter{}
	other := NewLock(server, time.Minute)
	other.Remember("example.com/fact", func() bool { return true }, func() { t.Error("found in no lease") })
	if err := other.Create(t.Context(), mine); err != nil || server.wrote != 1 {
		t.Errorf("written %d times, %v", server.wrote, err)
	}
}
