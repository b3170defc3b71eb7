//go:build long

package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	interruptionTaint  = "spot-aware-scheduler.io/interruption"
	deadlineAnnotation = "spot-aware-scheduler.io/interruption-deadline"
)

// asShipped are the shipped pauses of the controller after an interruption. Without them,
// replicas would return to spot at once.
var asShipped = live.Settings{"rebalance.pauseAfterInterruption": "5m", "rebalance.calmPeriod": "10m"}

func TestLongMassReclaim(t *testing.T)             { massReclaim(t, setup{mode: true}, true) }
func TestLongMassReclaimWithSpotLeft(t *testing.T) { massReclaim(t, setup{mode: true}, false) }
func TestLongKeptMassReclaim(t *testing.T)         { massReclaim(t, setup{keeps: true}, true) }

// massReclaim reclaims all spot nodes at once, with a notice of two minutes. New nodes take 30 s
// to boot. With spotGone, Karpenter cannot launch spot nodes any more and launches on-demand.
// Every replacement serves before the replica that it replaces leaves. No floor is unmet on
// on-demand, and all replicas are ready before the deadline.
//
// The time until all replacements exist depends on their number: the API server, the controllers
// and the scheduler create about 100 a second on two cores.
func massReclaim(t *testing.T, with setup, spotGone bool) {
	const (
		apps         = 24
		notice, boot = 2 * time.Minute, 30 * time.Second
		// Limits until all replacements exist: a time for an idle machine, and for a busy one a
		// multiple of the time in which the ReplicaSet controller creates as many pods.
		pendingAfter, pendingRatio = 2 * time.Second, 6
	)
	with.controller = asShipped
	with.karpenter = lab.KarpenterOptions{
		// Small types, so that there are many nodes.
		InstanceTypes: []string{"c-1x-amd64-linux", "c-2x-amd64-linux", "c-4x-amd64-linux"},
		NodePools: []lab.NodePool{
			{Name: "spot", CapacityTypes: []string{lab.Spot}, Weight: 10, ConsolidateAfter: 5 * time.Second}, // tried first
			{Name: "on-demand", CapacityTypes: []string{lab.OnDemand}, ConsolidateAfter: 5 * time.Second},
		},
	}
	s := start(t, with)
	replicas, least := map[string]int{}, map[string]int{}
	cpus, floors := []string{"100m", "200m", "300m", "500m"}, []string{"1", "30%", "2"}
	for i := range apps {
		app, atLeast := fmt.Sprintf("app-%02d", i), floors[i%len(floors)]
		replicas[app] = i%10 + 1
		s.deploy(app, replicas[app], cpus[i%len(cpus)], "64Mi", floor(atLeast))
		least[app] = floorOf(atLeast, replicas[app])
		// Without a budget, Karpenter's consolidation may evict the whole floor of a small
		// workload.
		if i%4 == 0 || replicas[app] <= 3 {
			unavailable := min(1, replicas[app]-least[app])
			s.budget(app, unavailable)
			least[app] = replicas[app] - unavailable
		}
	}
	s.Eventually(2*time.Minute, s.complete)
	s.Eventually(soon, s.floorsMet)
	s.awaitStableNodes(15 * time.Second)
	before, err := s.price()
	s.Must(err)
	for app, n := range replicas { // all can surge
		s.Seen.RequireServing(app, n)
	}
	s.Must(controlPlane.SetNodeRegistrationDelay(s.Ctx, boot))
	if spotGone {
		s.limit("spot", "0")
	}

	spot, err := s.spotPods()
	s.Must(err)
	creation := s.creationTime(spot)
	t.Logf("other controllers created %d pods in %s just before", spot, creation.Round(time.Millisecond))
	began := time.Now()
	deadline := began.Add(notice)
	reclaimed := announce(s.Scenario, lab.Spot, deadline)
	moving := on(s.Seen, reclaimed)
	pods := 0
	for _, n := range moving {
		pods += n
	}
	if pods == 0 {
		t.Fatal("no pod runs on spot")
	}
	t.Logf("%d spot nodes with %d pods of %d Deployments have a notice of %s; nodes for %.4f USD/h", len(reclaimed), pods, len(moving), notice, before)

	var last time.Time
	s.Eventually(notice, func() (err error) {
		last, err = lastReplacement(s.Seen, moving, began)
		return err
	})
	t.Logf("the last replacement existed %s after the notice", last.Sub(began).Round(time.Millisecond))
	limit := max(pendingAfter, pendingRatio*creation)
	if late := last.Sub(began); late > limit {
		t.Errorf("the last replacement existed %s after the notice, want at most %s", late.Round(time.Millisecond), limit.Round(time.Millisecond))
	}
	s.Eventually(time.Until(deadline), func() error {
		for _, deficit := range s.Auditor.Deficits() {
			t.Errorf("%s after the notice: %v", time.Since(began).Round(time.Millisecond), deficit)
		}
		return serve(s.Seen, replicas, reclaimed)
	})
	t.Logf("all workloads were ready without the reclaimed nodes %s after the notice", time.Since(began).Round(100*time.Millisecond))
	s.Eventually(time.Until(deadline), func() error {
		if left := on(s.Seen, reclaimed); len(left) > 0 {
			return fmt.Errorf("pods are on reclaimed nodes: %v", left)
		}
		return nil
	})
	t.Logf("the reclaimed nodes were empty %s after the notice", time.Since(began).Round(100*time.Millisecond))

	for app, n := range least { // from now on Karpenter may consolidate its new nodes
		s.Seen.RequireServing(app, n)
	}
	time.Sleep(time.Until(deadline)) // a cloud does not reclaim the nodes earlier
	s.removeMatchingNodes(func(_, node string) bool { return reclaimed[node] })
	s.Eventually(soon, s.complete)
	s.Eventually(soon, s.floorsMet)
	if spotGone {
		s.Must(s.onlyOnDemand())
	}
	s.Must(s.noNodeOvercommitted())
	s.requireNoGeneratedLabels()
	after, err := s.price()
	s.Must(err)
	t.Logf("nodes for %.4f USD/h after the deadline; launched %d on-demand nodes and %d spot nodes, %d never had a pod; consolidation evicted %d pods",
		after, len(launched(s.Seen, lab.OnDemand)), len(launched(s.Seen, lab.Spot)), len(empty(s.Seen)), s.consolidated())
	s.Auditor.Require(t)
}

// spotPods returns the number of pods on spot nodes.
func (s *scenario) spotPods() (n int, err error) {
	splits, err := s.Splits()
	for _, got := range splits {
		n += got.Spot
	}
	return n, err
}

// creationTime returns how long the ReplicaSet controller takes to create n pods of Deployments
// with four replicas. No scheduler places these pods. They no longer exist when creationTime
// returns, so that their deletion does not load the machine afterwards.
func (s *scenario) creationTime(n int) time.Duration {
	s.Helper()
	const each = 4
	namespace, err := kube.CoreV1().Namespaces().Create(s.Ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "creation-"}}, metav1.CreateOptions{})
	s.Must(err)
	defer func() {
		s.Must(kube.CoreV1().Namespaces().Delete(s.Ctx, namespace.Name, metav1.DeleteOptions{}))
		s.Eventually(time.Minute, func() error {
			_, err := kube.CoreV1().Namespaces().Get(s.Ctx, namespace.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return cmp.Or(err, fmt.Errorf("namespace %s still exists", namespace.Name))
		})
	}()
	began := time.Now()
	for i := range (n + each - 1) / each {
		template := live.PodTemplate(fmt.Sprintf("creation-%d", i))
		template.Spec.SchedulerName = "none"
		_, err := kube.AppsV1().Deployments(namespace.Name).Create(s.Ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: template.Labels["app"]},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(each)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
			},
		}, metav1.CreateOptions{})
		s.Must(err)
	}
	s.Eventually(time.Minute, func() error {
		pods, err := kube.CoreV1().Pods(namespace.Name).List(s.Ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) < n {
			err = fmt.Errorf("%d pods were created, want %d", len(pods.Items), n)
		}
		return err
	})
	return time.Since(began)
}

// budget creates a PodDisruptionBudget for an app.
func (s *scenario) budget(app string, unavailable int) {
	s.Helper()
	maxUnavailable := intstr.FromInt(unavailable)
	_, err := kube.PolicyV1().PodDisruptionBudgets(s.Namespace).Create(s.Ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &maxUnavailable, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// awaitStableNodes waits until Karpenter has neither launched nor removed a node for this time.
func (s *scenario) awaitStableNodes(length time.Duration) {
	s.Helper()
	var since time.Time
	var known []nodeClaim
	s.Eventually(5*time.Minute, func() error {
		claims, err := s.nodeClaims()
		switch {
		case err != nil:
			return err
		case !slices.Equal(claims, known):
			known, since = claims, time.Now()
		}
		if age := time.Since(since); age < length {
			return fmt.Errorf("the nodes have been the same for %s", age.Round(time.Second))
		}
		return nil
	})
}

// announce marks all nodes of a capacity type at once as reclaimed at the deadline, and returns
// their names.
func announce(s *live.Scenario, capacity string, deadline time.Time) map[string]bool {
	s.Helper()
	nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	names := map[string]bool{}
	var edits errgroup.Group
	for _, node := range nodes.Items {
		if live.CapacityOf(&node) != capacity || node.DeletionTimestamp != nil {
			continue
		}
		names[node.Name] = true
		edits.Go(func() error {
			return live.EditNode(s.Ctx, kube, soon, node.Name, func(n *v1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: interruptionTaint, Value: "test", Effect: v1.TaintEffectNoSchedule})
				if n.Annotations == nil {
					n.Annotations = map[string]string{}
				}
				n.Annotations[deadlineAnnotation] = deadline.UTC().Format(time.RFC3339)
			})
		})
	}
	s.Must(edits.Wait())
	return names
}

// on counts the pods on these nodes that are not terminating, by app.
func on(h *live.History, nodes map[string]bool) map[string]int {
	pods := map[string]int{}
	for _, record := range h.Pods("") {
		if nodes[record.Node] && record.Left.IsZero() {
			pods[record.App]++
		}
	}
	return pods
}

// lastReplacement returns the creation time of the last of `want` pods of each app that were
// created since a time.
func lastReplacement(h *live.History, want map[string]int, since time.Time) (last time.Time, err error) {
	for app, n := range want {
		created := slices.DeleteFunc(h.Pods(app), func(p live.PodRecord) bool { return p.Created.Before(since) })
		if len(created) < n {
			return last, fmt.Errorf("%s: %d pods were created, want %d", app, len(created), n)
		}
		if createdAt := created[n-1].Created; createdAt.After(last) {
			last = createdAt
		}
	}
	return last, nil
}
