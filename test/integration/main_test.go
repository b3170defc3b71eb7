// Package integration runs the built scheduler, with the configuration and the rights that ship, on a real control plane, and
// shows what the table asks for. KWOK stands in for kubelets; everything else is real.
//
// The tests share one control plane and run one after the other, each with nodes, a namespace, a scheduler and an auditor of its own.
// SPOT_KUBERNETES=1.37 gives them the API server and the controller manager of that minor version; hack/tools.sh 1.37 builds these.
package integration

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
)

// minor is the minor version of Kubernetes for every control plane of these tests; empty for the scheduler's own.
var minor = os.Getenv("SPOT_KUBERNETES")

func TestMain(m *testing.M) {
	os.Exit(live.Main(m, lab.Options{Kubernetes: minor}, func(cp *lab.ControlPlane, c kubernetes.Interface) error {
		controlPlane, client = cp, c
		return checkVersion(cmp.Or(minor, "1.36"))
	}))
}

// checkVersion says which API server answers, for the record, and fails when its minor version is not this one.
func checkVersion(want string) error {
	got, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	fmt.Println("API server", got.GitVersion)
	if !strings.HasPrefix(got.GitVersion, "v"+want+".") {
		return fmt.Errorf("the API server is %s, want one of %s", got.GitVersion, want)
	}
	return nil
}
