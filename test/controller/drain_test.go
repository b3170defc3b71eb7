package controller

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The controller helps those who drain nodes: `kubectl drain` here, as every user has it.

// drains are the settings of a controller that takes a cordon for a drain and moves nothing else.
func drains() settings {
	with := interruptionsOnly()
	with["drain.cordons"] = true
	return with
}

// drain runs `kubectl drain`, and returns how long it took. The error says what it printed.
func (s *scenario) drain(node string, timeout time.Duration) (time.Duration, error) {
	began := time.Now()
	out, err := exec.CommandContext(s.ctx, filepath.Join(controlPlane.Root, ".local", "bin", "kubectl"), "--kubeconfig", controlPlane.Kubeconfig,
		"drain", node, "--timeout", timeout.String()).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("draining %s: %w: %s", node, err, out)
	}
	return time.Since(began), err
}

// singletons makes three Deployments of one replica, with a Service and a PodDisruptionBudget that allows nothing, and returns their names.
func (s *scenario) singletons(edits ...func(*appsv1.Deployment)) []string {
	s.Helper()
	apps := []string{"one", "two", "three"}
	for _, app := range apps {
		s.deploy(app, 1, edits...)
	}
	for _, app := range apps {
		s.eventually(soon, s.is(app, split{OnDemand: 1}))
		s.protect(app, 1, maxUnavailable("0"))
		s.serve(app, 1)
	}
	return apps
}

// uncordon takes the cordon of `kubectl drain` off.
func (s *scenario) uncordon(node string) {
	s.Helper()
	s.editNode(node, func(n *v1.Node) { n.Spec.Unschedulable = false })
}

// TestDrainOfSingletons: a drain that their budgets block in plain Kubernetes ends by itself beside the controller, and no singleton is ever
// without a ready endpoint. (Rows 1 and 2 of drains.)
func TestDrainOfSingletons(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	apps := s.singletons()
	s.addNodes(live.OnDemand(2, 5)[1:]...)

	if _, err := s.drain("od-1", 10*time.Second); err == nil || !strings.Contains(err.Error(), "would violate the pod's disruption budget") {
		t.Errorf("the drain without the controller: %v, want it to be blocked by the budgets", err)
	}
	s.uncordon("od-1")

	s.control(drains())
	took, err := s.drain("od-1", time.Minute)
	s.must(err)
	t.Logf("with the controller the drain took %s", took.Round(time.Millisecond))
	s.must(s.empty("od-1")())
	s.eventually(soon, s.nothingReleased)
	for _, app := range apps {
		s.eventually(soon, s.whole(app, 1))
	}
	s.eventually(soon, s.moved(3, "surge", "drain"))
}

// TestDrainsAtOnce: three drains at once, two of them of one node, of singletons and of a workload whose budget spares one pod at a time.
// (Row 7 of drains.)
func TestDrainsAtOnce(t *testing.T) {
	s := start(t, live.OnDemand(2, 10)...)
	apps := s.singletons()
	s.deploy("spared", 4)
	s.eventually(soon, s.is("spared", split{OnDemand: 4}))
	s.protect("spared", 4, maxUnavailable("1"))
	nodes := live.OnDemand(4, 10)
	s.addNodes(nodes[2:]...)
	s.control(drains())
	var wait sync.WaitGroup
	for _, node := range []string{nodes[0].Name, nodes[1].Name, nodes[0].Name} {
		wait.Go(func() {
			if took, err := s.drain(node, 2*time.Minute); err != nil {
				t.Error(err)
			} else {
				t.Logf("%s: %s", node, took.Round(time.Millisecond))
			}
		})
	}
	wait.Wait()
	s.eventually(soon, s.nothingReleased)
	for _, app := range apps {
		s.eventually(soon, s.whole(app, 1))
	}
	s.eventually(soon, s.whole("spared", 4))
}

// TestDrainIsCancelled: the pods that were released for it go back to their ReplicaSets, and serve all the time. A pod that cannot be
// replaced first stays, and an event says why. (Row 7 of drains.)
func TestDrainIsCancelled(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	// So that the drain lasts: no replacement is available before.
	apps := s.singletons(func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 15 })
	s.deploy("recreated", 1, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	s.eventually(soon, s.is("recreated", split{OnDemand: 1}))
	s.addNodes(live.OnDemand(2, 5)[1:]...)
	s.control(drains())
	s.editNode("od-1", func(n *v1.Node) { n.Spec.Unschedulable = true })
	for _, app := range apps {
		s.eventually(soon, s.released(app, 1))
	}
	s.eventually(soon, s.told("recreated", "NotReplacedFirst", "its Deployment's strategy allows no surge"))
	s.uncordon("od-1")
	for _, app := range apps {
		s.eventually(soon, s.released(app, 0))
	}
	s.eventually(soon, s.nothingReleased)
	for _, app := range apps {
		s.eventually(30*time.Second, s.whole(app, 1))
	}
	s.eventually(soon, s.counts(3, "spot_aware_scheduler_migrations_total", map[string]string{"reason": "drain", "outcome": "undone"}))
}
