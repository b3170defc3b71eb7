package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision/decisiontest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// An explanation shows every setting with an effect, in the order of the table, with its value and
// its source.
func TestExplainShowsEverySetting(t *testing.T) {
	for i := range decision.Settings {
		setting := &decision.Settings[i]
		policy := basic()
		policy.Defaults.DisruptionLimit = 5 // with it, all settings have an effect on Jobs
		value := clustertest.Overrides(setting.Name, decisiontest.OtherValue(setting, policy.Defaults))
		policy.Rules = []decision.Rule{{Name: "r", Overrides: value}}
		for _, object := range []string{"job/sum", "deployment/web"} {
			kind, name, _ := strings.Cut(object, "/")
			e, err := newView(t, policy, "node od on-demand m/a\njob sum 1 od\ndeployment web 1 od").Explain(kind, clustertest.Namespace, name)
			if err != nil {
				t.Fatal(err)
			}
			settings := value.Apply(policy.Defaults)
			var want []report.Setting
			for j := range decision.Settings {
				other := &decision.Settings[j]
				source := "the profile"
				switch {
				case j == i:
					source = `rule "r"`
				case other.Name == "protect":
					source = "the default"
				}
				shown := report.Setting{Name: other.Name, Value: other.Text(settings), Source: source}
				if kind == "job" && other.Name == "minOnDemand" && j != i {
					shown.Value, shown.Source = "0", "the default of Jobs that retry"
				}
				if other.Applies(settings, kind == "job") {
					want = append(want, shown)
				}
			}
			if diff := cmp.Diff(want, e.Settings); diff != "" {
				t.Errorf("%s with another %s: settings (-want +got):\n%s", object, setting.Name, diff)
			}
		}
	}
}

// Rules by QoS class and by priority also apply to workloads without pods, by their pod templates.
func TestRulesWithoutPods(t *testing.T) {
	policy := basic()
	policy.Rules = []decision.Rule{
		{Name: "important", MinPriority: ptr.To[int32](100), Overrides: clustertest.Overrides("minOnDemand", "3")},
		{Name: "burstable", QOSClasses: []string{"Burstable"}, Overrides: clustertest.Overrides("minOnDemand", "2")},
	}
	const workloads = "class high 100\ndeployment web 5 class=high\nstatefulset db 5\ndeployment idle 0 class=high"
	view := newView(t, policy, workloads)
	got := map[string]string{}
	for _, object := range []string{"Deployment/web", "StatefulSet/db", "Deployment/idle"} {
		kind, name, _ := strings.Cut(object, "/")
		e, err := view.Explain(kind, "shop", name)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = fmt.Sprintf("%d, %s from %s", e.Floor, e.Settings[0].Value, e.Settings[0].Source)
	}
	want := map[string]string{"web": `3, 3 from rule "important"`, "db": `2, 2 from rule "burstable"`, "idle": `0, 3 from rule "important"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explained (-want +got):\n%s", diff)
	}
	all, _ := view.Statuses()
	if len(all) != 2 || all[0].Floor != 3 || all[1].Floor != 2 {
		t.Errorf("statuses %v, want the floors 3 and 2", statusLines(all))
	}
}
