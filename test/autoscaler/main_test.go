// Package autoscaler runs the built scheduler and the built controller with the real Karpenter
// and with the shipped configuration, rights and manifests. It tests the guarantees of the
// autoscaler mode. Karpenter launches simulated nodes, and KWOK replaces the kubelets.
//
// The tests share one control plane and run one after the other, unless SPOT_SHARDS divides them
// among processes. Each test has its own namespace, scheduler, controller, Karpenter and auditor.
// Tests in files with the build tag long take minutes; make test-long runs them.
//
// The tests by file; the suffix _test.go is omitted.
//
// Nodes that Karpenter launches:
//
//	withoutmode      the problem that the mode solves
//	launch           a singleton needs an on-demand node
//	move             heal and return to spot
//	adopt            the usual cluster of EKS; adopt_long opts 12 running workloads in
//	unreachable      moves that cannot reach their goal; unreachable_long watches longer
//	mix_long         100 workloads in an empty cluster
//	churn_long       workloads change while Karpenter consolidates
//	buffer_long      a spare node for a CapacityBuffer
//	poolcap_long     the pool cap, which Karpenter does not see
//	labels_long      spot nodes without Karpenter's label
//	startup_long     nodes that take a minute to start
//	spread           hard topology spread; spread_long changes the workloads
//	overflow_long    the policy changes while pods wait, or capacity vanishes
//
// Nodes that Karpenter or the cloud removes:
//
//	drain_long       consolidation, expiry and interruption
//	reclaim_long     a reclaim of all spot nodes
//	shortage_long    spot is not available
//
// Operation:
//
//	gate             pods that get the gate of the mode
//	webhook          the same with the webhook instead of the admission policy
//	keep             pods that kube-scheduler places, keep_long many, and outages
//	keepspread_long  where kube-scheduler starts replicas, by its scoring
//	keepsignals      nodes that kube-scheduler sees differently
//	switch_long      the mode is enabled and disabled while workloads run
//	outage_long      the controller is killed or does not run
//	restore_long     workloads are restored from a backup that was made in the middle of moves
//
// Helpers: scenario starts and cleans up a test, cluster and workloads_long create and check
// workloads, bound computes the lowest possible price. Package
// live contains what the live tests of all packages share.
package autoscaler

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
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
	os.Exit(live.Sharded(m, func() int {
		return live.Main(m, lab.Options{PodStartup: podStartup, APIServerFlags: live.MutatingPolicies().Flags}, func(cp *lab.ControlPlane, c kubernetes.Interface) (err error) {
			controlPlane, kube = cp, c
			objects, err = client.New(cp.Config(), client.Options{})
			return err
		})
	}))
}
