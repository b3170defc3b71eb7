//go:build upgrade

package extender

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The control plane has the programs, manifests and configuration of the previous version.
// hack/test-upgrade.sh builds that version in the folder SPOT_PREVIOUS.
func init() { checkout = os.Getenv("SPOT_PREVIOUS") }

// TestUpgradeExtender upgrades two replicas that serve a stock kube-scheduler, from the previous
// version to this one and back. Pods are created before each replica stops. All must be placed
// within 30 s, and the floors and budgets must be respected.
func TestUpgradeExtender(t *testing.T) {
	const workloads, replicas, floor = 6, 10, 2 // at each replacement
	const limit = 30 * time.Second              // without a placement
	current, err := lab.FindRoot()
	must(t, err)
	if checkout == "" || checkout == current {
		t.Fatalf("SPOT_PREVIOUS is %q: expected a folder with the previous version; make test-upgrade makes it", checkout)
	}
	withNodes(t, slices.Concat(live.OnDemand(6, 20), live.Spot(12, 20))...)
	leader := startExtender(t)
	awaitLeader(t, newClient(t, schedulerTLS(t)), leader.Address, "od-1")
	running := []*lab.Extender{startExtender(t), leader} // the leader stops last
	service := newService(t, running...)
	auditor := audit.Watch(t, controlPlane.Config(), audit.Options{Policy: shippedPolicy(t), Patience: limit})
	startStock(t, service.address(), nil)
	namespace, want := newNamespace(t), map[string]live.Split{}
	for _, to := range []string{current, checkout} {
		apply(t, to)
		for _, old := range slices.Clone(running) {
			added := startExtenderWith(t, lab.ExtenderOptions{
				Binary: filepath.Join(to, "bin", "spot-extender"), SchedulerConfigFile: filepath.Join(to, "config", "scheduler-config.yaml"),
			})
			service.add(t, added)
			for range workloads {
				app := fmt.Sprintf("app-%d", len(want))
				deploy(t, namespace, app, replicas, floor)
				want[app] = live.Split{OnDemand: floor, Spot: replicas - floor}
			}
			service.delete(old)
			time.Sleep(preStop(t)) // like the kubelet
			began := time.Now()
			must(t, old.Stop())
			running = append(slices.DeleteFunc(running, func(e *lab.Extender) bool { return e == old }), added)
			must(t, live.Until(t.Context(), limit, func() error { return oneLeads(t, running) }))
			led := time.Since(began)
			must(t, live.Until(t.Context(), limit, func() error { return placed(t, namespace, len(want)*replicas) }))
			t.Logf("a replica led %.1f s after SIGTERM of the old one, and all pods were placed after %.1f s", led.Seconds(), time.Since(began).Seconds())
		}
	}
	got, err := live.Splits(t.Context(), client, namespace)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods per capacity type (-want +got):\n%s", diff)
	}
	auditor.Require(t)
	t.Logf("%d workloads have their %d pods", len(want), len(want)*replicas)
}

// oneLeads returns an error unless exactly one of the replicas leads.
func oneLeads(t *testing.T, replicas []*lab.Extender) error {
	leaders := 0.0
	var errs []error
	for _, e := range replicas {
		leads, err := live.Metric(t.Context(), e.Process, "leader_election_master_status", nil)
		leaders, errs = leaders+leads, append(errs, err)
	}
	if leaders != 1 {
		errs = append(errs, fmt.Errorf("%v of %d replicas lead, want 1", leaders, len(replicas)))
	}
	return errors.Join(errs...)
}

// apply applies the manifests in a checkout, as users do.
func apply(t *testing.T, root string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, ".local", "bin", "kubectl"), "--kubeconfig", controlPlane.Kubeconfig,
		"apply", "-k", filepath.Join(root, "manifests", "overlays", "extender")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
