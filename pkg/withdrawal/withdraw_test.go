package withdrawal

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// TestWithdraw: without a controller its budgets are deleted, and no others.
func TestWithdraw(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, test := range map[string]struct {
		renewed *time.Time // nil: there is no Lease
		made    time.Time
		standby bool
		want    bool
	}{
		"renewed in time":                {renewed: new(ago(staleAfter - 1)), made: ago(time.Hour)},
		"not renewed in time":            {renewed: new(ago(staleAfter)), made: ago(time.Second), want: true},
		"not renewed, on a standby":      {renewed: new(ago(time.Hour)), made: ago(time.Hour), standby: true},
		"no Lease, and the budget new":   {made: ago(staleAfter - 1)},
		"no Lease, and the budget old":   {made: ago(staleAfter), want: true},
		"renewed, by a clock ahead":      {renewed: new(ago(-time.Minute)), made: ago(time.Hour)},
		"given back by one that ended":   {renewed: new(ago(staleAfter)), made: ago(time.Hour), want: true},
		"made again by a new controller": {renewed: new(ago(0)), made: ago(0)},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "shop", Name: "web-protected", UID: "b", CreationTimestamp: metav1.NewTime(test.made)}
			theirs := &policyv1.PodDisruptionBudget{ObjectMeta: *meta.DeepCopy()}
			theirs.Name = "theirs"
			ours := &policyv1.PodDisruptionBudget{ObjectMeta: meta}
			ours.Labels = map[string]string{kube.ProtectLabel: "true"}
			client := fake.NewClientset(ours, theirs)
			if test.renewed != nil {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller"}}
				lease.Spec.RenewTime = new(metav1.NewMicroTime(*test.renewed))
				if err := client.Tracker().Add(lease); err != nil {
					t.Fatal(err)
				}
			}
			factory := informers.NewSharedInformerFactory(client, 0)
			recorder := events.NewFakeRecorder(10)
			w := NewWithdrawer(factory, client, recorder, clocktesting.NewFakeClock(now), func() bool { return !test.standby })
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			if err := w.check(t.Context()); err != nil {
				t.Fatal(err)
			}
			left, err := client.PolicyV1().PodDisruptionBudgets("shop").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if gone := len(left.Items) == 1; gone != test.want || left.Items[0].Name != "theirs" || len(recorder.Events) != 2-len(left.Items) {
				t.Errorf("%d of 2 budgets are left, and %d events; deleted is %v, want %v", len(left.Items), len(recorder.Events), gone, test.want)
			}
		})
	}
}
