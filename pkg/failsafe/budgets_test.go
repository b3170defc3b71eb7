package failsafe

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// TestWithdraw: the budgets of a controller that no longer runs are deleted, and no others.
func TestDeletionOfAbandonedBudgets(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, test := range map[string]struct {
		renewed *time.Time // nil: no Lease
		made    time.Time
		standby bool
		// unlabelled: someone removed the label, but not the name and the controller.
		unlabelled bool
		want       bool
	}{
		"renewed in time":                     {renewed: new(ago(staleAfter - 1)), made: ago(time.Hour)},
		"not renewed in time":                 {renewed: new(ago(staleAfter)), made: ago(time.Second), want: true},
		"not renewed, on a standby":           {renewed: new(ago(time.Hour)), made: ago(time.Hour), standby: true},
		"no Lease, and the budget new":        {made: ago(staleAfter - 1)},
		"no Lease, and the budget old":        {made: ago(staleAfter), want: true},
		"renewed, by a clock ahead":           {renewed: new(ago(-time.Minute)), made: ago(time.Hour)},
		"released by a controller that ended": {renewed: new(ago(staleAfter)), made: ago(time.Hour), want: true},
		"renewed by a new controller":         {renewed: new(ago(0)), made: ago(0)},
		"its label removed, not renewed":      {renewed: new(ago(staleAfter)), made: ago(time.Second), unlabelled: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "shop", Name: "web-protected", UID: "b", CreationTimestamp: metav1.NewTime(test.made)}
			theirs := &policyv1.PodDisruptionBudget{ObjectMeta: *meta.DeepCopy()}
			theirs.Name = "theirs"
			ours := &policyv1.PodDisruptionBudget{ObjectMeta: meta}
			ours.Labels = map[string]string{spot.ProtectLabel: "true"}
			if test.unlabelled {
				ours.Labels, ours.OwnerReferences = nil, []metav1.OwnerReference{clustertest.OwnedBy("Deployment", "web")}
			}
			client := fake.NewClientset(ours, theirs)
			if test.renewed != nil {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller"}}
				lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NewMicroTime(*test.renewed)), new(int32(15))
				if err := client.Tracker().Add(lease); err != nil {
					t.Fatal(err)
				}
			}
			factory := informers.NewSharedInformerFactory(client, 0)
			recorder := events.NewFakeRecorder(10)
			clock := clocktesting.NewFakeClock(now.Add(-15 * time.Second))
			w := NewWithdrawer(factory, client, recorder, clock, map[string]time.Duration{"": time.Hour}, func() bool { return !test.standby })
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			for range 2 { // the Lease must stay unchanged for its duration
				if err := w.check(t.Context()); err != nil {
					t.Fatal(err)
				}
				clock.SetTime(now)
			}
			left, err := client.PolicyV1().PodDisruptionBudgets("shop").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if gone := len(left.Items) == 1; gone != test.want || left.Items[0].Name != "theirs" || len(recorder.Events) != 2-len(left.Items) {
				t.Errorf("%d of 2 budgets remain, and %d events; deleted is %v, want %v", len(left.Items), len(recorder.Events), gone, test.want)
			}
		})
	}
}

// TestWithdrawWithAnotherClock: the budgets of a running controller stay, even if its clock is far
// behind. The budgets of a stopped controller are deleted, even if its clock was far ahead.
func TestDeletionWithAnotherClock(t *testing.T) {
	const every = 2 * time.Second
	for name, test := range map[string]struct {
		clock time.Duration // the controller's, relative to the scheduler's
		ends  bool
		want  time.Duration // after this time the budget is deleted; 0: never
	}{
		"behind":                          {clock: -time.Hour},
		"behind, and the controller ends": {clock: -time.Hour, ends: true, want: 15 * time.Second},
		"ahead":                           {clock: time.Hour},
		"ahead, and the controller ends":  {clock: time.Hour, ends: true, want: staleAfter},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web-protected", UID: "b", Labels: map[string]string{spot.ProtectLabel: "true"},
			}}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller"}}
			client := fake.NewClientset(budget, lease)
			factory := informers.NewSharedInformerFactory(client, 0)
			clock := clocktesting.NewFakeClock(now)
			w := NewWithdrawer(factory, client, events.NewFakeRecorder(10), clock, map[string]time.Duration{"": time.Hour}, func() bool { return true })
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			deleted := time.Duration(0)
			for after := time.Duration(0); after <= 2*staleAfter && deleted == 0; after += every {
				clock.SetTime(now.Add(after))
				if after == 0 || !test.ends {
					lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NewMicroTime(clock.Now().Add(test.clock))), new(int32(15))
					if _, err := client.CoordinationV1().Leases("kube-system").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.check(t.Context()); err != nil {
					t.Fatal(err)
				}
				left, err := client.PolicyV1().PodDisruptionBudgets("shop").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if len(left.Items) == 0 {
					deleted = after
				}
			}
			if deleted < test.want || deleted > test.want+every || test.want == 0 && deleted != 0 {
				t.Errorf("the budget was deleted after %s, want %s (0: never)", deleted, test.want)
			}
		})
	}
}

// TestWithdrawMany: the Lease is read again before thousands of budgets are deleted.
func TestDeletionOfManyBudgets(t *testing.T) {
	client := fake.NewClientset()
	for i := range 2 * changesPerCheck {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint(i), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)), Labels: map[string]string{spot.ProtectLabel: "true"},
		}}
		if err := client.Tracker().Add(budget); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	w := NewWithdrawer(factory, client, events.NewFakeRecorder(2*changesPerCheck), clocktesting.NewFakeClock(now), map[string]time.Duration{"": time.Hour}, func() bool { return true })
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if err := w.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := client.PolicyV1().PodDisruptionBudgets("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != changesPerCheck {
		t.Errorf("%d budgets remain, want %d", len(left.Items), changesPerCheck)
	}
}

// The Lease of a controller in the namespace of the installation counts, and no other.
func TestLeaseInTheNamespaceOfTheInstallation(t *testing.T) {
	for namespace, want := range map[string]int{"spot": 1, "kube-system": 0} {
		t.Setenv("POD_NAMESPACE", "spot")
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-protected", UID: "b", Labels: map[string]string{spot.ProtectLabel: "true"},
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		}}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "spot-controller"}}
		lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NewMicroTime(now)), new(int32(15))
		client := fake.NewClientset(budget, lease)
		factory := informers.NewSharedInformerFactory(client, 0)
		w := NewWithdrawer(factory, client, events.NewFakeRecorder(10), clocktesting.NewFakeClock(now),
			map[string]time.Duration{"": time.Hour}, func() bool { return true })
		factory.Start(t.Context().Done())
		factory.WaitForCacheSync(t.Context().Done())
		if err := w.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		left, err := client.PolicyV1().PodDisruptionBudgets("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != want {
			t.Errorf("with a Lease in %s %d budgets remain, want %d: %v", namespace, len(left.Items), want, err)
		}
	}
}
