// Package integration runs the built scheduler on a real control plane, with the shipped
// configuration and RBAC rights. KWOK simulates the kubelets; everything else is real.
//
// The tests share one control plane and run one after the other. Each test has its own nodes,
// namespace, scheduler and auditor. hack/test-extender.sh also runs the tests TestPlacement…
// through the extender.
//
// The tests by file; the suffix _test.go is omitted.
//
// Placement:
//
//	placement        singletons run on on-demand; the floor is filled first, then spot
//	capacity         on-demand, spot or both are full
//	overflow         overflow: Never
//	fallback         a pod waits for fallbackAfter, and then runs on spot
//	annotations      the annotations of a workload
//	rules            the rules and the annotation policy of the configuration
//	owners           every kind of owner
//	groups           controllers with several templates, and groups of pods as replicas
//	jobs             Jobs, and Jobs that are about to complete
//	statefulset      ordinals and their floor
//	rollout          rollouts, with spare and with scarce on-demand capacity
//	gang             PodGroups
//	gangwait         gangs that wait: what wakes them, and that they block no other pods
//	preempt          preemption by pods of the floor
//	scale            a workload is scaled up and down
//	manydeployments  many Deployments are created at once
//	unknownowner     a pod is created before its owner is known
//
// Nodes:
//
//	nodes            nodes without labels, with late, contradictory or configured labels
//	signals          nodes with interruption signals
//	search           the nodes that the scheduler examines in a large cluster
//
// Operation:
//
//	wakeup           events that wake a waiting pod
//	gate             the capacity gate of the autoscaler mode
//	restart          the scheduler is killed
//	takeover, long   the leader is killed; a new leader has a delayed watch
//	waits            the leader is killed repeatedly while pods wait for fallbackAfter
//	outage           the API server or etcd is not available
//	badinput         the scheduler rejects invalid configurations
//	resources        the resource requests of the manifests are sufficient
//	manifests        kustomizations, and the example workloads
//	optin            the overlay namespace-opt-in
//
// Helpers: scenario starts a test, waiting creates pods that wait, leaders records the leaders and
// their bindings, breach checks the spot budgets, events reads events and metrics, proxy delays
// watches. Package live contains what the live tests of all packages share.
package integration

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

var (
	controlPlane *lab.ControlPlane
	client       kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(live.Sharded(m, func() int {
		return live.Main(m, lab.Options{APIServerFlags: live.MutatingPolicies().Flags}, func(cp *lab.ControlPlane, c kubernetes.Interface) error {
			controlPlane, client = cp, c
			return nil
		})
	}))
}
