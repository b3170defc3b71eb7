// Package kubectl runs the built kubectl-spot against a real control plane, with kubelets simulated
// by KWOK. It checks that kubectl-spot predicts the effect of lost nodes, that the shipped rights
// are sufficient and minimal, and its speed on a large cluster. It also follows the runbook,
// docs/operations.md.
package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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
	os.Exit(live.Main(m, lab.Options{PodStartup: 50 * time.Millisecond}, func(cp *lab.ControlPlane, c kubernetes.Interface) error {
		controlPlane, client = cp, c
		_, err := cp.ControllerKubeconfig(context.Background()) // it creates the account, so it precedes install
		return err
	}))
}

// result is the output of a run of kubectl-spot, and its resource usage.
type result struct {
	out, err string
	status   int
	took     time.Duration
	maxRSS   int64 // bytes
}

// spot runs the built kubectl-spot, or the program in the variable KUBECTL_SPOT.
func spot(t *testing.T, cp *lab.ControlPlane, args ...string) result {
	t.Helper()
	program := cmp.Or(os.Getenv("KUBECTL_SPOT"), filepath.Join(cp.Root, "bin", "kubectl-spot"))
	command := exec.CommandContext(t.Context(), program, append(args, "--kubeconfig="+cp.Kubeconfig)...)
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	began := time.Now()
	err := command.Run()
	r := result{out: out.String(), err: errOut.String(), took: time.Since(began)}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		r.status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.maxRSS = usage.Maxrss << 10
	}
	return r
}

// answer runs kubectl-spot, which must print no warning, and decodes the JSON output.
func answer(t *testing.T, into any, args ...string) {
	t.Helper()
	r := spot(t, controlPlane, append(args, "-o", "json")...)
	if r.status != 0 || r.err != "" {
		t.Fatalf("kubectl spot %v: exit status %d\n%s", args, r.status, r.err)
	}
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		t.Fatalf("kubectl spot %v: %v\n%s", args, err, r.out)
	}
}

// shippedConfig returns the file name of the scheduler's shipped configuration.
func shippedConfig() string {
	return filepath.Join(controlPlane.Root, "config", "scheduler-config.yaml")
}
