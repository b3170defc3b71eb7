// Package rbac shows that the rights that ship are the least: the scheduler is run through all that it does with each of them taken
// away in turn, and must then be denied something.
//
// It has a control plane of its own, because the rights of the one ServiceAccount change all the time. Its API server guards
// owner references, as some distributions of Kubernetes do: the scheduler sets one on claims for extended resources.
package rbac

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(live.Main(m, lab.Options{
		PodStartup:     50 * time.Millisecond,
		APIServerFlags: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	}, func(cp *lab.ControlPlane, c kubernetes.Interface) error {
		controlPlane, client = cp, c
		return nil
	}))
}
