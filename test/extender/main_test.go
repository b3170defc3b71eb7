// Package extender runs the built spot-extender with its shipped rights on a real control plane,
// under adverse conditions. Clients are unauthorized or send invalid requests, and replicas stop
// under load. The tests of test/integration with SPOT_THROUGH=extender check that it places pods
// like the scheduler.
package extender

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
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
