// Package rbac shows that the shipped rights are minimal. It removes each right in turn and runs
// the scheduler through all its tasks. The API server must then deny a request.
//
// The package has its own control plane, because the tests change the rights of the ServiceAccount
// all the time. Its API server protects owner references, as in some distributions of Kubernetes.
// The scheduler sets such a reference on claims for extended resources.
//
// The tests by file; the suffix _test.go is omitted.
//
//	rights           the scheduler needs each of its rights
//	moves            the controller needs each of its rights
//	controller       the list of the controller's write rights
//	admission        the admission policies, which limit writes further than RBAC
//	mutations        other policies and webhooks that change the same objects; a stopped controller
//
// Helpers: grants divides rules into single grants, workload creates the objects that make the
// scheduler use its rights.
package rbac

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(live.Main(m, lab.Options{
		PodStartup:     50 * time.Millisecond,
		APIServerFlags: append([]string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"}, live.MutatingPolicies().Flags...),
	}, func(cp *lab.ControlPlane, c kubernetes.Interface) error {
		controlPlane, client = cp, c
		return nil
	}))
}
