// Package integration runs the built scheduler on a real control plane, with the shipped
// configuration and RBAC rights. KWOK simulates the kubelets; everything else is real.
//
// The tests share one control plane and run one after the other. Each test has its own nodes,
// namespace, scheduler and auditor. SPOT_KUBERNETES=1.37 selects the API server and the controller
// manager of that minor version; hack/tools.sh 1.37 builds them.
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

// minor is the minor version of Kubernetes for every control plane of the tests. If it is empty,
// the version is the scheduler's own.
var minor = os.Getenv("SPOT_KUBERNETES")

func TestMain(m *testing.M) {
	os.Exit(live.Main(m, lab.Options{Kubernetes: minor}, func(cp *lab.ControlPlane, c kubernetes.Interface) error {
		controlPlane, client = cp, c
		return checkVersion(cmp.Or(minor, "1.36"))
	}))
}

// checkVersion prints the version of the API server for the record. It fails if the minor version
// is not the wanted one.
func checkVersion(want string) error {
	got, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("getting the API server's version: %w", err)
	}
	fmt.Println("API server", got.GitVersion)
	if !strings.HasPrefix(got.GitVersion, "v"+want+".") {
		return fmt.Errorf("the API server has version %s, want %s", got.GitVersion, want)
	}
	return nil
}
