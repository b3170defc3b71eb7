package controller

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestNodeLeaseNotRenewed: pods leave a spot node whose Lease is not renewed any more although
// its condition is still Ready. Pods stay on a node whose kubelet renews its Lease and reports
// Ready=False. The simulated kubelets have no Leases of their own.
func TestNodeLeaseNotRenewed(t *testing.T) {
	s := start(t, live.Spot(1, 5)...)
	s.Deploy("lost", 2, live.Annotated(minOnDemand, "0"))
	s.Eventually(soon, s.HasReadySplit("lost", split{Spot: 2}))
	s.AddNodes(live.Nodes("alive", lab.Spot, "m5.xlarge", 1, 5)...)
	s.AddNodes(live.OnDemand(2, 5)...)
	s.Deploy("alive", 2, live.Annotated(minOnDemand, "0"), live.OnlyOn(v1.LabelHostname, "alive-1"))
	s.Eventually(soon, s.HasReadySplit("alive", split{Spot: 2}))

	dies := make(chan struct{})
	for _, node := range []string{"spot-1", "alive-1", "od-1", "od-2"} {
		s.renew(node, node == "spot-1", dies)
	}
	with := interruptionsOnly()
	with["interruption.notReadyAfter"] = "20s"
	s.StartController(with)
	_, err := client.CoreV1().Nodes().Patch(s.Ctx, "alive-1", "application/strategic-merge-patch+json",
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`),
		metav1.PatchOptions{}, "status")
	s.Must(err)
	s.RequireThroughout(25*time.Second, s.marked("spot-1", false))

	close(dies)
	unreachable := time.Now()
	s.Eventually(20*time.Second+soon, s.empty("spot-1"))
	if after := time.Since(unreachable); after < 18*time.Second { // the last renewal is up to 2 s older
		t.Errorf("the node counted as reclaimed after %s, want after 20s", after)
	}
	s.Eventually(soon, s.HasReadySplit("lost", split{OnDemand: 2}))
	for _, c := range s.Node("spot-1").Status.Conditions {
		if c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			t.Errorf("spot-1 has Ready=%s: its Lease was not the only signal", c.Status)
		}
	}
	if touched := s.Seen.ReleasedOrRemoved("alive"); len(touched) > 0 {
		t.Errorf("moved off a node whose kubelet is alive: %q", touched)
	}
}

// renew renews the Lease of a node every 2 s until the test ends or, if mayDie is set, until dies
// is closed.
func (s *scenario) renew(node string, mayDie bool, dies <-chan struct{}) {
	s.Helper()
	leases := client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	now := func() *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now()} }
	lease, err := leases.Create(s.Ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: now()}}, metav1.CreateOptions{})
	s.Must(err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	if !mayDie {
		dies = nil
	}
	go func() {
		defer close(stopped)
		for {
			select {
			case <-dies:
				return
			case <-stop:
				return
			case <-time.After(2 * time.Second):
			}
			lease.Spec.RenewTime = now()
			if renewed, err := leases.Update(s.Ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = renewed
			}
		}
	}()
	s.Cleanup(func() {
		close(stop)
		<-stopped
		if err := leases.Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	})
}
