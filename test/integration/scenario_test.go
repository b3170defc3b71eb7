package integration

import (
	"os"
	"slices"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The annotations that users write. The literal values detect an accidental change of the constants
// in the code.
const (
	minOnDemand       = "spot-aware-scheduler.io/min-on-demand"
	maxPerPool        = "spot-aware-scheduler.io/max-per-pool"
	whenUnsatisfiable = "spot-aware-scheduler.io/when-unsatisfiable"
	fallbackAfter     = "spot-aware-scheduler.io/fallback-after"
)

// split counts the pods of an app by the capacity type of their nodes.
type split = live.Split

// scenario is a scenario with this package's checks.
type scenario struct {
	*live.Scenario
	options lab.SchedulerOptions
	// extender answers the scheduler's requests and serves the placement metrics; nil unless
	// throughExtender.
	extender *lab.Extender
}

// start starts a scheduler with these nodes and the shipped configuration, modified by edits.
func start(t *testing.T, nodes []lab.NodeSpec, edits ...func(config map[string]any)) *scenario {
	t.Helper()
	s := &scenario{Scenario: live.NewScenario(t, controlPlane, client, nodes...)}
	s.options = lab.SchedulerOptions{
		Edit: func(config map[string]any) {
			for _, edit := range edits {
				edit(config)
			}
		},
		// Periodic retries would hide a lost wake-up, so this effectively disables them.
		Flags: []string{"--pod-max-in-unschedulable-pods-duration=1h", "-v=2"},
	}
	s.Audit(s.options.Edit, audit.Options{})
	s.startScheduler()
	return s
}

// throughExtender means that a stock kube-scheduler with spot-extender places the pods, by the same
// policy, instead of this project's scheduler.
var throughExtender = os.Getenv("SPOT_THROUGH") == "extender"

func (s *scenario) startScheduler() {
	s.Helper()
	options := s.options
	if throughExtender {
		var err error
		s.extender, err = controlPlane.StartExtender(s.Ctx, lab.ExtenderOptions{EditScheduler: options.Edit, Flags: []string{"-v=2"}})
		s.Must(err)
		s.Programs = append(s.Programs, s.extender.Process)
		options, err = controlPlane.ExtendedScheduler(s.extender.Address)
		s.Must(err)
		options.Flags = s.options.Flags
	}
	s.StartScheduler(options)
}

// metricsProcess returns the process that serves the placement metrics.
func (s *scenario) metricsProcess() *lab.Process {
	if s.extender != nil {
		return s.extender.Process
	}
	return s.Scheduler
}

// run runs a part of the scenario as a subtest.
func (s *scenario) run(name string, part func(s *scenario)) {
	s.T.Helper()
	s.T.Run(name, func(t *testing.T) {
		sub := *s
		sub.Scenario = s.In(t)
		part(&sub)
	})
}

// gone returns the names of the pods that have left or are terminating, in alphabetical order.
func gone(seen *live.History) (names []string) {
	for _, record := range seen.Removed("") {
		names = append(names, record.Name)
	}
	slices.Sort(names)
	return names
}
