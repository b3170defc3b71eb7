package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// startBehindProxy starts the controller behind a proxy that can delay the events of the Nodes
// whose names begin with "spot-", and of the Leases of their kubelets.
func (s *scenario) startBehindProxy(with live.Settings) *live.Proxy {
	s.Helper()
	delayed := func(name string) bool { return strings.HasPrefix(name, "spot-") }
	proxy := s.NewProxy(map[string]func(string) bool{
		"/api/v1/nodes": delayed,
		"/apis/coordination.k8s.io/v1/namespaces/" + v1.NamespaceNodeLease + "/leases": delayed,
	})
	account, err := controlPlane.ControllerKubeconfig(s.Ctx)
	s.Must(err)
	s.Controller, err = controlPlane.StartController(s.Ctx, lab.ControllerOptions{
		Edit: with.Edit, Flags: []string{"-v=2"}, Kubeconfig: proxy.Kubeconfig(s.Scenario, account),
	})
	s.Must(err)
	return proxy
}

// untouched returns a check that no pod of the app was released or removed.
func (s *scenario) untouched(app string) func() error {
	return func() error {
		if touched := s.Seen.ReleasedOrRemoved(app); len(touched) > 0 {
			return fmt.Errorf("released or removed: %q", touched)
		}
		return nil
	}
}

// TestDelayedEventsOfLiveNodes: no pod leaves a node whose kubelet is alive, although the watches
// of its Node and its Lease are late for longer than notReadyAfter. If the kubelet ends, the pods
// leave, although the watches are still late.
func TestDelayedEventsOfLiveNodes(t *testing.T) {
	const nodes = 10
	s := start(t, live.Spot(nodes, 2)...)
	s.Deploy("web", nodes, live.Annotated(minOnDemand, "0"), live.SpreadOver(v1.LabelHostname))
	s.Eventually(soon, s.HasReadySplit("web", split{Spot: nodes}))
	s.AddNodes(live.OnDemand(nodes, 2)...)
	dies := make(chan struct{})
	for i := range nodes {
		spot := fmt.Sprintf("spot-%d", i+1)
		s.renew(spot, spot == "spot-1", dies)
		s.renew(fmt.Sprintf("od-%d", i+1), false, nil)
	}
	with := interruptionsOnly()
	with["interruption.notReadyAfter"] = "20s"
	proxy := s.startBehindProxy(with)
	proxy.Hold()
	s.RequireThroughout(50*time.Second, s.untouched("web"))

	close(dies)
	// A renewal that was read just before counts like one that the watch delivers.
	s.Eventually(2*20*time.Second+soon, s.empty("spot-1"))
	for _, record := range s.Seen.Removed("web") {
		if record.Node != "spot-1" {
			t.Errorf("%s left %s, whose kubelet is alive", record.Name, record.Node)
		}
	}
}

// TestDelayedEndOfReclaim: a reclaim is withdrawn, and the watch of the Node is late. No pod is
// deleted against its PodDisruptionBudget when the deadline passes.
func TestDelayedEndOfReclaim(t *testing.T) {
	s := start(t, live.Spot(1, 5)...)
	s.Deploy("web", 2, live.Annotated(minOnDemand, "0"), live.Annotated(surgeAnnotation, "false"))
	s.Eventually(soon, s.HasReadySplit("web", split{Spot: 2}))
	s.AddNodes(live.OnDemand(1, 5)...)
	s.protect("web", 2, maxUnavailable("0"))
	proxy := s.startBehindProxy(interruptionsOnly())
	const impending = "cloud.google.com/impending-node-termination" // 30 s before the end of the node
	s.EditNode("spot-1", tainted(impending))
	s.Eventually(soon, s.marked("spot-1", true))
	marked := s.Node("spot-1")
	deadline, err := time.Parse(time.RFC3339, marked.Annotations[deadlineAnnotation])
	s.Must(err)
	proxy.Hold()
	s.EditNode("spot-1", untainted(impending))
	s.RequireThroughout(time.Until(deadline)+15*time.Second, s.untouched("web"))
}
