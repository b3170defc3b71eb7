//go:build long

package autoscaler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// Karpenter drains nodes for all of its reasons, and the controller first replaces the pods that
// budgets protect. Each test also runs without the controller's help, for comparison. That also
// proves that its checks can fail.

const (
	protectAnnotation = "spot-aware-scheduler.io/protect"
	drainedApps       = 50
)

// manyNodes are small instance types, so that 50 Deployments need a dozen nodes.
var manyNodes = []string{"c-1x-amd64-linux", "c-2x-amd64-linux"}

// TestLongConsolidation: Karpenter removes half of the nodes because workloads have ended.
// Budgets allow one eviction at a time, because Karpenter does not consolidate nodes with a
// budget that allows none. A single replica with such a budget is not tested: its owner permits
// the gap, and Karpenter evicts it before a replacement can be ready.
func TestLongConsolidation(t *testing.T) {
	withAndWithoutAssist(t, func(t *testing.T, assist bool) {
		s := start(t, setup{
			mode: true, controller: asShipped.With(live.Settings{"drain.assist": assist}), karpenter: lab.KarpenterOptions{InstanceTypes: manyNodes},
		})
		const ended = 10
		end := s.fill(ended)
		apps := s.deployDrainedApps(1)
		before, err := s.nodeClaims()
		s.Must(err)

		end()
		s.consolidate(5 * time.Second)
		s.Eventually(2*time.Minute, func() error {
			if done, _ := drains(s.Seen); len(done) == 0 {
				return errors.New("Karpenter has drained no node")
			}
			return nil
		})
		s.awaitStableNodes(40 * time.Second)
		done, open := drains(s.Seen)
		if len(open) > 0 {
			t.Errorf("drains that have not ended: %q", open)
		}
		s.Eventually(soon, s.complete)
		s.logDrains(apps, fmt.Sprintf("consolidation of %d nodes", len(before)), done)
		apps.requireNoGap()
		s.requireReleases(assist)
		s.Auditor.Require(t)
	})
}

// TestLongExpiry: all nodes expire at once, and no budget allows an eviction. Without the
// controller's help, Karpenter cannot drain them.
func TestLongExpiry(t *testing.T) {
	const (
		age = time.Minute
		// blocked is the time in which no drain ends without the controller's help.
		blocked = time.Minute
	)
	withAndWithoutAssist(t, func(t *testing.T, assist bool) {
		s := start(t, setup{
			mode: true, controller: asShipped.With(live.Settings{"drain.assist": assist}),
			karpenter: lab.KarpenterOptions{InstanceTypes: manyNodes, NodePools: []lab.NodePool{
				{Name: "old", Weight: 10, ExpireAfter: age}, // tried first
				{Name: "new"},
			}},
		})
		apps := s.deployDrainedApps(0)
		s.limit("old", "0") // replacements do not expire
		if done, open := drains(s.Seen); len(done)+len(open) > 0 {
			t.Fatal("nodes have expired before the test was ready")
		}
		claims, err := s.nodeClaims()
		s.Must(err)
		s.Eventually(2*age, s.draining(len(claims)))
		if !assist {
			held := s.blockedNodes(apps)
			s.RequireThroughout(blocked, func() error {
				_, open := drains(s.Seen)
				if missing := slices.DeleteFunc(slices.Clone(held), func(node string) bool { return slices.Contains(open, node) }); len(missing) > 0 {
					return fmt.Errorf("nodes whose budgets allow no eviction were drained: %q", missing)
				}
				return nil
			})
			_, open := drains(s.Seen)
			t.Logf("expiry of %d nodes without help: %d are not drained %s after the last node expired, and the budgets still block them; %s",
				len(claims), len(open), blocked, apps)
			s.requireReleases(false)
			return
		}
		s.Eventually(2*time.Minute, s.drained)
		done, _ := drains(s.Seen)
		s.logDrains(apps, fmt.Sprintf("expiry of %d nodes", len(claims)), done)
		s.Eventually(soon, s.complete)
		apps.requireNoGap()
		s.requireReleases(true)
		s.Auditor.Require(t)
	})
}

// TestLongInterruption: NodeClaims are deleted, as Karpenter does on an interruption, with a
// grace period of two minutes. Without the controller's help, Karpenter deletes the pods that
// budgets protect at the end of that time.
func TestLongInterruption(t *testing.T) {
	const grace = 2 * time.Minute
	withAndWithoutAssist(t, func(t *testing.T, assist bool) {
		s := start(t, setup{
			mode: true, controller: asShipped.With(live.Settings{"drain.assist": assist}),
			karpenter: lab.KarpenterOptions{InstanceTypes: manyNodes, NodePools: []lab.NodePool{{TerminationGracePeriod: grace}}},
		})
		apps := s.deployDrainedApps(0)
		claims, err := s.nodeClaims()
		s.Must(err)
		began := time.Now()
		for _, claim := range claims {
			s.Must(s.deleteNodeClaim(claim.Name))
		}
		s.Eventually(soon, s.draining(len(claims)))
		s.Eventually(grace+30*time.Second, s.drained)
		took := time.Since(began)
		done, _ := drains(s.Seen)
		s.Eventually(soon, s.complete)
		s.logDrains(apps, fmt.Sprintf("deletion of %d NodeClaims", len(claims)), done)
		if assist && took >= grace {
			t.Errorf("the drains ended %s after they began, want them to end within %s", took.Round(time.Second), grace)
		}
		if !assist && took < grace {
			t.Errorf("the drains ended %s after they began, want the budgets to block them for %s", took.Round(time.Second), grace)
		}
		if assist {
			apps.requireNoGap()
		} else if apps.count() == 0 {
			t.Error("no Deployment had a gap, want Karpenter to delete the pods that budgets protect")
		}
		s.requireReleases(assist)
		s.Auditor.Require(t)
	})
}

// withAndWithoutAssist runs a test with and without drain.assist.
func withAndWithoutAssist(t *testing.T, test func(t *testing.T, assist bool)) {
	for _, assist := range []bool{true, false} {
		t.Run(fmt.Sprintf("assist=%t", assist), func(t *testing.T) { test(t, assist) })
	}
}

// appGaps records the gaps of the Deployments of deployDrainedApps.
type appGaps struct {
	t *testing.T
	// blocked contains the apps with a budget of the user that allows no eviction.
	blocked map[string]bool

	mu   sync.Mutex
	gaps map[string][]live.Gap
}

func (a *appGaps) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("Deployments with fewer ready endpoints than their budgets require: %d", len(a.gaps))
}

// count returns the number of Deployments that had fewer ready endpoints than their budget
// requires.
func (a *appGaps) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.gaps)
}

// requireNoGap fails the test for every Deployment that had fewer ready endpoints than its budget
// requires.
func (a *appGaps) requireNoGap() {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, app := range slices.Sorted(maps.Keys(a.gaps)) {
		a.t.Errorf("%d gaps, the first: %v", len(a.gaps[app]), a.gaps[app][0])
	}
}

// deployDrainedApps creates 50 Deployments. Each has a budget with this number of unavailable
// replicas, and 1 to 5 replicas more than that. If the number is 0, every second Deployment has a
// budget of the controller instead. It returns when all Deployments are ready, and watches their
// endpoints from then on.
func (s *scenario) deployDrainedApps(unavailable int) *appGaps {
	s.Helper()
	a := &appGaps{t: s.T, blocked: map[string]bool{}, gaps: map[string][]live.Gap{}}
	replicas, protected := map[string]int{}, []string{}
	for i := range drainedApps {
		app := fmt.Sprintf("app-%02d", i)
		replicas[app] = unavailable + i%5 + 1
		if unavailable == 0 && i%2 == 0 {
			protected = append(protected, app)
			s.deploy(app, replicas[app], "200m", "64Mi", func(d *appsv1.Deployment) { d.Annotations[protectAnnotation] = "true" })
			continue
		}
		s.deploy(app, replicas[app], "200m", "64Mi")
		s.budget(app, unavailable)
		a.blocked[app] = unavailable == 0
	}
	s.Eventually(time.Minute, s.complete)
	var serving errgroup.Group
	for app, n := range replicas {
		serving.Go(func() error {
			return live.Serve(s.Ctx, kube, s.Namespace, app, n-unavailable, func(gap live.Gap) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.gaps[app] = append(a.gaps[app], gap)
			})
		})
	}
	s.Must(serving.Wait())
	s.Eventually(soon, s.budgetsCount(replicas))
	if s.setup.controller["drain.assist"] == true {
		for _, app := range protected {
			s.Eventually(soon, s.protected(app, replicas[app]))
		}
	}
	return a
}

// budgetsCount returns a check that every PodDisruptionBudget counts all pods of its app.
func (s *scenario) budgetsCount(replicas map[string]int) func() error {
	return func() error {
		list, err := kube.PolicyV1().PodDisruptionBudgets(s.Namespace).List(s.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, b := range list.Items {
			app := strings.TrimSuffix(b.Name, "-protected")
			if int(b.Status.CurrentHealthy) != replicas[app] {
				return fmt.Errorf("PodDisruptionBudget %s counts %d pods, want %d", b.Name, b.Status.CurrentHealthy, replicas[app])
			}
		}
		return nil
	}
}

// protected returns a check that the controller has created a budget for a Deployment, and that
// it allows no eviction.
func (s *scenario) protected(app string, replicas int) func() error {
	return func() error {
		b, err := kube.PolicyV1().PodDisruptionBudgets(s.Namespace).Get(s.Ctx, app+"-protected", metav1.GetOptions{})
		if err == nil && (b.Status.DisruptionsAllowed > 0 || int(b.Status.CurrentHealthy) != replicas) {
			err = fmt.Errorf("PodDisruptionBudget %s: %+v, want %d pods and no eviction allowed", b.Name, b.Status, replicas)
		}
		return err
	}
}

// fill creates additional workloads and returns a function that deletes them.
func (s *scenario) fill(n int) (end func()) {
	s.Helper()
	name := func(i int) string { return fmt.Sprintf("ending-%02d", i) }
	for i := range n {
		s.deploy(name(i), 10, "200m", "64Mi")
	}
	return func() {
		for i := range n {
			s.remove(name(i))
		}
		for i := range n {
			s.Eventually(soon, s.isDeleted(name(i)))
		}
	}
}

// deleteNodeClaim starts the deletion of a NodeClaim, which drains its node.
func (s *scenario) deleteNodeClaim(name string) error {
	claims, err := list(s.Ctx, lab.NodeClaimKind)
	if err != nil {
		return err
	}
	for _, claim := range claims {
		if claim.GetName() == name {
			return objects.Delete(s.Ctx, &claim)
		}
	}
	return fmt.Errorf("no NodeClaim %s", name)
}

// draining returns a check that `want` nodes are being deleted or have been deleted.
func (s *scenario) draining(want int) func() error {
	return func() error {
		if done, open := drains(s.Seen); len(done)+len(open) < want {
			return fmt.Errorf("%d nodes are being deleted or gone, want %d", len(done)+len(open), want)
		}
		return nil
	}
}

// drained is a check that no node is being deleted.
func (s *scenario) drained() error {
	if _, open := drains(s.Seen); len(open) > 0 {
		return fmt.Errorf("%d nodes are being drained: %q", len(open), open)
	}
	return nil
}

// blockedNodes returns the nodes with a pod whose eviction a budget blocks.
func (s *scenario) blockedNodes(a *appGaps) []string {
	_, draining := drains(s.Seen)
	nodes := map[string]bool{}
	for _, pod := range s.Seen.Pods("") {
		if a.blocked[pod.App] && pod.Left.IsZero() && slices.Contains(draining, pod.Node) {
			nodes[pod.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// releases returns the number of pods that the controller has released for drains, and the number
// of restored pods.
func (s *scenario) releases() (moved, restored int) {
	s.Helper()
	count := func(outcome string) int {
		return s.metricValue(s.Controller, "spot_aware_scheduler_migrations_total", map[string]string{"method": "surge", "reason": "drain", "outcome": outcome})
	}
	return count("moved"), count("restored")
}

// requireReleases fails the test unless the controller has released pods with drain.assist, or
// none without it.
func (s *scenario) requireReleases(assist bool) {
	s.Helper()
	if moved, restored := s.releases(); assist != (moved > 0) || !assist && restored > 0 {
		s.Errorf("drain.assist %t: %d pods were released and evicted, %d were restored", assist, moved, restored)
	}
}

// logDrains logs the durations of the finished drains and their results.
func (s *scenario) logDrains(a *appGaps, what string, done []live.NodeRecord) {
	s.Helper()
	var longest, sum time.Duration
	var first, last time.Time
	for _, node := range done {
		took := node.Gone.Sub(node.Draining)
		longest, sum = max(longest, took), sum+took
		if first.IsZero() || node.Draining.Before(first) {
			first = node.Draining
		}
		if node.Gone.After(last) {
			last = node.Gone
		}
	}
	moved, restored := s.releases()
	s.Logf("%s: %d nodes drained, the last one was deleted %s after the first drain began; a drain took %s on average, %s at most; "+
		"%d pods released and evicted, %d restored; %d nodes launched, %d never had a pod; %s", what, len(done), last.Sub(first).Round(100*time.Millisecond),
		(sum / time.Duration(max(len(done), 1))).Round(100*time.Millisecond), longest.Round(100*time.Millisecond), moved, restored,
		len(launched(s.Seen, lab.OnDemand))+len(launched(s.Seen, lab.Spot)), len(empty(s.Seen)), a)
}

// drains returns the nodes that have been drained and deleted, and the names of the nodes that
// are being deleted.
func drains(h *live.History) (done []live.NodeRecord, open []string) {
	for _, node := range h.Nodes() {
		switch {
		case node.Draining.IsZero():
		case node.Gone.IsZero():
			open = append(open, node.Name)
		default:
			done = append(done, node)
		}
	}
	return done, open
}
