package controller

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// soon limits the time of an immediate reaction on a loaded machine.
const soon = live.Soon

// scenario is a scenario with this package's checks.
type scenario struct{ *live.Scenario }

// interruptionsOnly disables all moves from nodes that are not interrupted.
func interruptionsOnly() live.Settings {
	return live.Settings{"rebalance.heal": false, "rebalance.makeRoom": false, "rebalance.returnToSpot": false, "deletionCosts.enabled": false}
}

// onlyReason enables one kind of rebalancing, without a calm period.
func onlyReason(reason string) live.Settings {
	return live.Settings{
		"rebalance.heal": false, "rebalance.makeRoom": false, "rebalance.returnToSpot": false, "deletionCosts.enabled": false,
		"rebalance." + reason: true, "rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s",
	}
}

// start starts a scheduler with these nodes. It starts no controller.
func start(t *testing.T, nodes ...lab.NodeSpec) *scenario {
	t.Helper()
	s := &scenario{live.NewScenario(t, controlPlane, client, nodes...)}
	s.Audit(nil, audit.Options{Author: requestLog.author, Forged: hostile})
	s.Watch()
	// The periodic flush of unschedulable pods would hide lost wake-ups, so it is disabled.
	s.StartScheduler(lab.SchedulerOptions{Flags: []string{"--pod-max-in-unschedulable-pods-duration=1h"}})
	return s
}

// splitIntoNamespaces returns the scenario n times, each with a namespace of its own for its
// workloads. Real clusters do not have hundreds of PodDisruptionBudgets in one namespace: the API
// server reads all budgets at every eviction there.
func (s *scenario) splitIntoNamespaces(n int) []*scenario {
	s.Helper()
	parts := make([]*scenario, n)
	for i := range parts {
		part := &scenario{s.In(s.T)}
		part.Namespace = s.NewNamespace()
		s.Others = append(s.Others, part.Namespace)
		s.Must(s.Seen.Follow(s.Ctx, part.Namespace))
		parts[i] = part
	}
	return parts
}
