package autoscaler

import (
	"context"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// soon limits the time of an immediate reaction on a loaded machine. It includes the 2 s for a
// new node of Karpenter.
const soon = 2 * live.Soon

// setup configures a scenario.
type setup struct {
	// mode enables the autoscaler mode: the admission policy, and gating in the controller's
	// configuration.
	mode bool
	// stock starts kube-scheduler instead of this project's scheduler.
	stock bool
	// keeps enables the mode for pods that keep their scheduler, kube-scheduler.
	keeps bool
	// controller are settings of the controller's configuration. nil without mode: no controller
	// is started.
	controller live.Settings
	// safety are fields of ReplicaSafetyArgs.
	safety    live.Settings
	karpenter lab.KarpenterOptions
}

// modeOn enables the mode in the controller's configuration. The controller does not wait for a
// calm period before it moves pods.
var modeOn = live.Settings{"gating.enabled": true, "rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s"}

// scenario is a scenario with Karpenter.
type scenario struct {
	*live.Scenario
	setup
	karpenter *lab.Process
	// pools are the NodePools as last applied.
	pools []lab.NodePool
}

// start starts the programs of the setup.
func start(t *testing.T, with setup) *scenario {
	t.Helper()
	s := &scenario{Scenario: live.NewScenario(t, controlPlane, kube), setup: with}
	s.CountSplits = countSplits
	s.RemoveNodes = func(ctx context.Context) error {
		if s.karpenter != nil {
			if s.Failed() {
				s.Logf("the log of Karpenter ends with:\n%s", live.Tail(s.karpenter.Log, 15))
			}
			if err := s.karpenter.Stop(); err != nil {
				return err
			}
		}
		return removeNodes(ctx)
	}
	if len(s.setup.karpenter.NodePools) == 0 {
		s.setup.karpenter.NodePools = []lab.NodePool{{}}
	}
	s.pools = s.setup.karpenter.NodePools
	s.Watch()
	var err error
	switch {
	case s.keeps:
		s.mode = true
		s.ApplyMode(live.AnyScheduler)
		keepScheduler(s.Scenario, s.safety)
	case s.mode:
		s.ApplyMode(live.AutoscalerMode)
	}
	switch {
	case s.keeps:
	case s.stock:
		s.Scheduler, err = controlPlane.StartStockScheduler(s.Ctx)
		s.Must(err)
	default:
		s.Audit(s.safety.EditSafety, audit.Options{})
		s.StartScheduler(lab.SchedulerOptions{Edit: s.safety.EditSafety})
	}
	if s.mode || s.setup.controller != nil {
		s.startController()
	}
	s.karpenter, err = controlPlane.StartKarpenter(s.Ctx, s.setup.karpenter)
	s.Must(err)
	return s
}

// startController starts the scenario's controller.
func (s *scenario) startController() {
	s.Helper()
	with := s.setup.controller
	if s.mode {
		with = modeOn.With(with)
	}
	var err error
	s.Controller, err = controlPlane.StartController(s.Ctx, lab.ControllerOptions{
		Edit: with.Edit, EditScheduler: s.safety.EditSafety, Flags: []string{"-v=2"},
	})
	s.Must(err)
}

// metricValue returns the sum of a process's metric over all series with these labels.
func (s *scenario) metricValue(p *lab.Process, name string, labels map[string]string) int {
	s.Helper()
	sum, err := s.MetricValue(p, name, labels)
	s.Must(err)
	return sum
}

// consolidated returns the number of pods that Karpenter evicted to consolidate their nodes.
func (s *scenario) consolidated() int {
	s.Helper()
	return s.metricValue(s.karpenter, "karpenter_pods_drained_total", map[string]string{"reason": "Underutilized"})
}
