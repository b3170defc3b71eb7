// Package controller runs the built controller and the built scheduler with the shipped
// configuration and rights on a real control plane. KWOK replaces the kubelets and takes 3 s to
// start a pod; everything else is real.
//
// The tests share one control plane and run one after the other. Each test has its own nodes,
// namespace, scheduler, controller and auditor. Tests in files with the build tag long take
// minutes; make test-long runs them.
//
// The tests by file; the suffix _test.go is omitted.
//
// Interruptions:
//
//	interruption     one interrupted node: moves, deadlines, cleared signals, dry run
//	mass             a reclaim of many nodes; the controller is killed meanwhile
//	urgency          no node has room; pods of operators and Jobs
//	unreachable      a node whose Lease is not renewed
//	deletednodes     the deletion of many Nodes
//	delayed          watches that are late: live reads before deletions
//	breaker, breaker_long  many reclaim signals at once, false and true
//	evidence_long    false alarms of two tools, slow ones, and around a pause; a loss of all spot
//	pause            kubectl spot pause during moves
//
// Other moves:
//
//	rebalance        heal, make room, return to spot, deletion costs
//	invain           a filter that the controller cannot ask refuses the replacement
//	surge            the move methods of all kinds of workloads; surges that fail
//	jobs             the disruption limit of Jobs
//	autoscaler       a surge while a HorizontalPodAutoscaler scales the workload
//	limits           moves per hour
//
// Drains by others:
//
//	drain, drain_long      kubectl drain
//	protect, protect_long  PodDisruptionBudgets of protected Deployments
//
// Failures:
//
//	leaders          the leader is stopped during moves
//	outage           the API server is not available
//	tenants          pods with false claims about their owners and releases
//	long             larger and longer runs of mass and outage
//
// Helpers: scenario starts a test, cluster creates budgets and interruptions, endpoints records the
// availability of Services, observers tests the records, requests reads the audit log. Package live
// contains what the live tests of all packages share.
package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// podStartup is the time from a pod's binding to its readiness.
const podStartup = 3 * time.Second

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
	// requestLog contains the requests of the controllers to the API server.
	requestLog *auditLog
	// alphaFlags are additional flags of the API server.
	alphaFlags []string
)

func TestMain(m *testing.M) { os.Exit(live.Sharded(m, func() int { return run(m) })) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "controller-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := startControlPlane(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "starting the control plane:", err)
		return 1
	}
	defer func() {
		if err := controlPlane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the control plane:", err)
		}
	}()
	return m.Run()
}

// startControlPlane starts the control plane for the following tests. Its API server logs the
// controllers' requests in dir.
func startControlPlane(ctx context.Context, dir string) error {
	policy, requests := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	cp, err := lab.Start(ctx, lab.Options{
		PodStartup:     podStartup,
		APIServerFlags: append([]string{"--audit-policy-file=" + policy, "--audit-log-path=" + requests}, alphaFlags...),
		// At the default of 15 s, an autoscaler can miss a whole surge.
		ControllerManagerFlags: []string{"--horizontal-pod-autoscaler-sync-period=1s"},
	})
	if err != nil {
		return err
	}
	config := cp.Config()
	config.ContentType = runtime.ContentTypeProtobuf // the tests watch all pods
	own, err := kubernetes.NewForConfig(config)
	if err != nil {
		return errors.Join(err, cp.Stop())
	}
	controlPlane, client = cp, own
	requestLog = &auditLog{file: requests, nodes: map[string]map[uint64]bool{}, unanswered: map[string]bool{}}
	return nil
}

// ownControlPlane replaces the shared control plane during this test, so that the test may
// interrupt its components.
func ownControlPlane(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sharedPlane, sharedClient, sharedLog := controlPlane, client, requestLog
	if err := startControlPlane(ctx, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	own := controlPlane
	t.Cleanup(func() {
		controlPlane, client, requestLog = sharedPlane, sharedClient, sharedLog
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
}
