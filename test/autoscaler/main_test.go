// Package autoscaler runs the built scheduler and the built controller with the real Karpenter
// and with the shipped configuration, rights and manifests. It tests the guarantees of the
// autoscaler mode. Karpenter launches simulated nodes, and KWOK replaces the kubelets.
//
// The tests share one control plane and run one after the other. Each test has its own namespace,
// scheduler, controller, Karpenter and auditor. Tests in files with the build tag long take
// minutes; make test-long runs them.
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
	// objects reads and writes objects for which kube has no types, such as NodeClaims.
	objects client.Client
)

func TestMain(m *testing.M) {
	os.Exit(live.Main(m, lab.Options{PodStartup: podStartup}, func(cp *lab.ControlPlane, c kubernetes.Interface) (err error) {
		controlPlane, kube = cp, c
		objects, err = client.New(cp.Config(), client.Options{})
		return err
	}))
}
