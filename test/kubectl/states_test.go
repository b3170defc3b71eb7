package kubectl

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// state is a state of the cluster, and what the answers must contain in it.
type state struct {
	name string
	// enter changes the cluster after the state before.
	enter func(s *live.Scenario)
	// want has parts of the answer of a command.
	want map[string][]string
}

// TestStates enters states one after the other.
var states = []state{
	{"calm", func(*live.Scenario) {}, map[string][]string{
		"status":  {"deployment/web", "OK"},
		"what-if": {"ToZeroAllowed", "KeepsFloor"},
		"savings": {"Spot saves"},
		"assess":  {"OptedIn"},
	}},
	{"all spot reclaimed", func(s *live.Scenario) { s.LoseNodes("spot-1", "spot-2", "spot-3") }, map[string][]string{
		"status":  {"Surplus", "the cluster has no usable spot node"},
		"explain": {"6 on on-demand and 0 on spot"},
		"nodes":   {"od-1"},
	}},
	{"returning", func(s *live.Scenario) { s.AddNodes(live.Spot(3, 6)...) }, map[string][]string{
		"status": {"Surplus", "until "},
		"nodes":  {"spot-1"},
	}},
	{"misspelled", func(s *live.Scenario) {
		s.PatchDeployment("web", `{"metadata":{"annotations":{"spot-aware-scheduler.io/min-ondemand":"2"}}}`)
	}, map[string][]string{
		"status":  {"annotation spot-aware-scheduler.io/min-ondemand on the Deployment is unknown: did you mean"},
		"explain": {"spot-aware-scheduler.io/min-ondemand"},
	}},
	{"on-demand cordoned", func(s *live.Scenario) {
		s.LoseNodes("spot-1", "spot-2", "spot-3")
		for _, node := range []string{"od-1", "od-2"} {
			out, err := kubectl(s.T, "", "cordon", node)
			if err != nil {
				s.Fatal(out)
			}
		}
		s.Scale("admin", 2)
	}, map[string][]string{
		"status":        {"Waiting", "unschedulable"},
		"explain admin": {"kubectl uncordon"},
		"nodes":         {"SchedulingDisabled"},
	}},
}

// TestStates asks the questions of docs/kubectl-spot.md in five states of a cluster. With -v it
// prints all answers. The variable KUBECTL_SPOT selects another program, for a comparison.
func TestStates(t *testing.T) {
	install(t)
	s := live.NewScenario(t, controlPlane, client, append(live.OnDemand(2, 12), live.Spot(3, 6)...)...)
	s.Watch()
	s.StartScheduler(lab.SchedulerOptions{})
	s.StartController(live.Settings{})
	minOnDemand := func(floor string) string {
		return `{"metadata":{"annotations":{"spot-aware-scheduler.io/min-on-demand":"` + floor + `"}}}`
	}
	for name, replicas := range map[string]int{"web": 6, "batch": 4, "admin": 1} {
		s.Deploy(name, replicas)
	}
	s.PatchDeployment("batch", minOnDemand("0"))
	s.Eventually(live.Soon, s.HaveReadySplits(map[string]live.Split{"web": {OnDemand: 1, Spot: 5}, "batch": {Spot: 4}, "admin": {OnDemand: 1}}))
	for _, state := range states {
		state.enter(s)
		answers := map[string]string{}
		s.Eventually(time.Minute, func() error { return requireAnswers(s, state, answers) })
		for command, answer := range answers {
			t.Logf("%s: kubectl spot %s\n%s", state.name, command, answer)
		}
	}
}

// requireAnswers runs all commands. It returns an error if an answer lacks a part that state wants.
func requireAnswers(s *live.Scenario, state state, answers map[string]string) error {
	for name, args := range map[string][]string{
		"status": {"status"}, "explain": {"explain", "deploy/web"}, "explain admin": {"explain", "deploy/admin"},
		"what-if": {"what-if", "--lose", "all-spot", "-o", "wide"}, "nodes": {"nodes"}, "savings": {"savings"}, "assess": {"assess"},
	} {
		r := spot(s.T, controlPlane, append(args, "-n", s.Namespace)...)
		answers[name] = r.out + r.err
		if r.status != 0 && r.status != 3 || strings.Contains(r.err, ".go:") {
			s.Errorf("%s: kubectl spot %v: exit status %d\n%s", state.name, args, r.status, r.err)
		}
		for _, want := range state.want[name] {
			if !strings.Contains(answers[name], want) {
				return fmt.Errorf("%s: kubectl spot %s lacks %q:\n%s", state.name, name, want, answers[name])
			}
		}
	}
	return nil
}
