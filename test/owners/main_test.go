//go:build long

// Package owners runs the built scheduler and the built controller, with the shipped configuration,
// rights and manifests, beside controllers of other projects that create pods or decide where they
// run.
//
// Argo Rollouts and Kueue are the real programs, at the versions pinned in hack/argo-rollouts and
// hack/kueue; hack/tools.sh controllers builds them. Kruise is not real: its Go module is not
// available to the builds of this project. Its owners and pods are made by hand (kruise_test.go).
//
// The tests share one control plane and run one after the other. Each test has its own namespace,
// nodes, scheduler, controller and auditor. make test-long runs them:
//
//	hack/tools.sh controllers && go test -tags long ./test/owners
package owners

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

var (
	controlPlane *lab.ControlPlane
	kube         kubernetes.Interface
	// objects reads and writes objects for which kube has no types, such as Rollouts.
	objects client.Client
)

func TestMain(m *testing.M) {
	options := lab.Options{PodStartup: time.Second, APIServerFlags: live.MutatingPolicies().Flags}
	os.Exit(live.Main(m, options, func(cp *lab.ControlPlane, c kubernetes.Interface) (err error) {
		controlPlane, kube = cp, c
		objects, err = client.New(cp.Config(), client.Options{})
		return err
	}))
}
