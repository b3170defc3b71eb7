// Package controller runs the built controller beside the built scheduler, with the configuration and the rights that ship, on a real
// control plane, and shows what the table asks for. KWOK stands in for kubelets, and takes 3 s to start a pod; everything else is
// real.
//
// The tests share one control plane and run one after the other, each with nodes, a namespace, a scheduler, a controller and an auditor of
// its own. Those in files with the build tag long take minutes: make test-long runs them.
package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// podStartup is the time from a pod's binding to its readiness.
const podStartup = 3 * time.Second

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
	// asked is what the controllers asked of the API server.
	asked *ledger
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "controller-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	asked = &ledger{file: filepath.Join(dir, "audit.log"), nodes: map[string]map[uint64]bool{}}
	cp, err := lab.Start(ctx, lab.Options{
		PodStartup:     podStartup,
		APIServerFlags: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + asked.file},
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
