// Package autoscaler runs the built scheduler and the built controller beside the real Karpenter, with the configuration, the rights and
// the manifests that ship, and shows what the autoscaler mode promises. Karpenter buys simulated nodes; KWOK stands in for kubelets.
//
// The tests share one control plane and run one after the other, each with a namespace, a scheduler, a controller, a Karpenter and an
// auditor of its own. Those in files with the build tag long take minutes: make test-long runs them.
package autoscaler

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// podStartup is the time from a pod's binding to its readiness.
const podStartup = time.Second

var (
	controlPlane *lab.ControlPlane
	kube         kubernetes.Interface
	// objects reads and writes what kube has no types of, such as NodeClaims.
	objects client.Client
)

func TestMain(m *testing.M) {
	os.Exit(live.Main(m, lab.Options{PodStartup: podStartup}, func(cp *lab.ControlPlane, c kubernetes.Interface) (err error) {
		controlPlane, kube = cp, c
		objects, err = client.New(cp.Config(), client.Options{})
		return err
	}))
}
