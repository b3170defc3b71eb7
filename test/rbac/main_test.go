// Package rbac shows that the rights that ship are the least: the scheduler is run through all that it does with each of them taken
// away in turn, and must then be denied something.
//
// It has a control plane of its own, because the rights of the one ServiceAccount change all the time. Its API server guards
// owner references, as some distributions of Kubernetes do: the scheduler sets one on claims for extended resources.
package rbac

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cp, err := lab.Start(ctx, lab.Options{
		PodStartup:     50 * time.Millisecond,
		APIServerFlags: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the control plane:", err)
		return 1
	}
	defer func() {
		if err := cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the control plane:", err)
		}
	}()
	controlPlane = cp
	if client, err = kubernetes.NewForConfig(cp.Config()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
