// Package extender runs the built spot-extender with the rights that ship, on a real control plane, and shows what it does when it is
// treated badly: clients that may not ask or ask wrongly, and replicas that end under load. That it places pods as the scheduler does, the
// tests of test/integration show, with SPOT_THROUGH=extender.
package extender

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(live.Main(m, lab.Options{}, func(cp *lab.ControlPlane, c kubernetes.Interface) error {
		controlPlane, client = cp, c
		return nil
	}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
