package report_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// The revisions of a canary are one workload, in every report.
func TestRolloutIsOneWorkload(t *testing.T) {
	objects := clustertest.AsRollout(clustertest.Objects("deployment web 4 od sp sp sp old=3"))
	objects = append(objects, clustertest.Objects("node od on-demand m/a\nnode sp spot m/a")...)
	listed, err := lister.List(t.Context(), listertest.Start(t, objects...).Client(), lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	view := viewOf(t, listed, basic())
	all, _ := view.Statuses()
	want := []string{`rollout/web RollingOut: 1 of 4, 1+3, left 1 and 1 without m/a ["rolling out"]`}
	if diff := cmp.Diff(want, statusLines(all)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	for _, object := range [][2]string{{"rollout", "web"}, {"replicaset", "web-r"}} {
		if e, err := view.Explain(object[0], "shop", object[1]); err != nil || e.Workload.Kind != "Rollout" || e.Desired != 4 || e.Budget != 3 {
			t.Errorf("%s: %+v, %v; want a Rollout of 4 with a budget of 3", object[0], e, err)
		}
	}
	for app, want := range map[string]int{"web": 1, "db": 0} {
		if got := view.Select(slices.Clone(all), labels.SelectorFromSet(labels.Set{"app": app})); len(got) != want {
			t.Errorf("app=%s selects %d workloads, want %d: the labels of its pods count", app, len(got), want)
		}
	}
}

// For a kind that is read, the labels of the workload's own object count, not the labels of its
// pods.
func TestSelectByOwnLabels(t *testing.T) {
	objects := clustertest.Objects("node od on-demand m/a\ndeployment web 1 od")
	objects[1].(*appsv1.Deployment).Labels = map[string]string{"team": "a"}
	listed, err := lister.List(t.Context(), listertest.Start(t, objects...).Client(), lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	view := viewOf(t, listed, basic())
	all, _ := view.Statuses()
	for selector, want := range map[string]int{"team=a": 1, "app=web": 0} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := view.Select(slices.Clone(all), parsed); len(got) != want {
			t.Errorf("%s selects %d workloads, want %d", selector, len(got), want)
		}
	}
}
