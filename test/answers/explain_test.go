package answers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// explain answers like `kubectl spot explain pod/NAME`.
func explain(t *testing.T, c *scenario) *report.Explanation {
	t.Helper()
	policy, signals := c.readPolicy(t)
	listed, err := lister.List(t.Context(), listertest.New(t, append(slices.Clone(c.objects), c.pod)...).Client(), lister.Scope{AllPods: true, Volumes: true})
	if err != nil {
		t.Fatal(err)
	}
	scope := workload.Scope{Profile: profile}
	snapshot, err := listed.Snapshot(policy, signals, scope, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	owners, err := listed.Owners(policy)
	if err != nil {
		t.Fatal(err)
	}
	view := &report.View{Snapshot: snapshot, Policy: policy, Signals: signals, Scope: scope, Owners: owners}
	explanation, err := view.Explain("pod", c.pod.Namespace, c.pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	return explanation
}

// explained returns the answers of an explanation. All nodes have room, so every node that the
// policy admits takes the pod.
func explained(t *testing.T, e *report.Explanation) answers {
	t.Helper()
	all := answers{}
	for _, group := range e.Nodes {
		answer := ""
		if len(group.Reasons) > 0 {
			answer = group.Reasons[0] // the reason of the policy, if it refuses the nodes
		} else if !group.Accepts {
			answer = "rejected without a reason"
		}
		if answer != "" && group.Accepts {
			t.Errorf("nodes %v would take the pod, but: %s", group.Names, answer)
		}
		for _, name := range group.Names {
			all[name] = answer
		}
	}
	return all
}

// settingsShown returns the settings that an explanation shows, in the format of
// decision.WorkloadSettings.
func settingsShown(e *report.Explanation) string {
	var words []string
	for _, setting := range e.Settings {
		if setting.Name == "disruptionLimit" && setting.Value == "never" {
			continue
		}
		words = append(words, setting.Name+"="+setting.Value)
	}
	if n, _, limited := strings.Cut(e.Disruptions, " of "); limited {
		words = append(words, "disruptions="+n)
	}
	return strings.Join(words, " ")
}

// numbers are the settings and counts of a plan.
type numbers struct {
	Settings                           string
	Desired, Floor, Budget             int
	SiblingsOnSpot, SiblingsOnOnDemand int
}

// numbersShown returns the numbers that an explanation shows.
func numbersShown(e *report.Explanation) numbers {
	return numbers{settingsShown(e), e.Desired, e.Floor, e.Budget, *e.OnSpot, *e.OnOnDemand}
}

// numbersPlanned returns the numbers of a plan.
func numbersPlanned(settings decision.WorkloadSettings, desired int, plan *decision.Plan) numbers {
	placed := plan.Placed()
	return numbers{settings.String(), desired, plan.Floor, plan.Budget, placed.Spot, placed.OnDemand}
}
