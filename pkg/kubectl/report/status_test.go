package report_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
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

// Status lists a workload that something else than the label of its pod template was meant to opt
// in.
func TestOptInMistakes(t *testing.T) {
	const label, typo = "spot-aware-scheduler.io/opt-in", "spot-aware-scheduler.io/optin"
	for name, test := range map[string]struct {
		edit func(*appsv1.Deployment, *v1.Namespace)
		want string
	}{
		"nothing": {func(*appsv1.Deployment, *v1.Namespace) {}, ""},
		"label of the Deployment": {func(d *appsv1.Deployment, _ *v1.Namespace) { d.Labels = map[string]string{label: "keep-scheduler"} },
			"label spot-aware-scheduler.io/opt-in on the Deployment has no effect: it must be in the pod template"},
		"annotation": {func(d *appsv1.Deployment, _ *v1.Namespace) {
			d.Spec.Template.Annotations = map[string]string{label: "keep-scheduler"}
		},
			"annotation spot-aware-scheduler.io/opt-in on the pod has no effect: it must be a label of the pod"},
		"label": {func(d *appsv1.Deployment, _ *v1.Namespace) {
			d.Spec.Template.Labels = map[string]string{typo: "keep-scheduler"}
		},
			"label spot-aware-scheduler.io/optin on the pod has no effect: did you mean spot-aware-scheduler.io/opt-in?"},
		"label of the namespace": {func(_ *appsv1.Deployment, n *v1.Namespace) { n.Labels = map[string]string{typo: "true"} },
			"label spot-aware-scheduler.io/optin on the namespace has no effect: did you mean spot-aware-scheduler.io/opt-in?"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := clustertest.Objects("namespace shop false\nnode sp spot m/a\ndeployment web 1 sp profile=default-scheduler")
			test.edit(objects[2].(*appsv1.Deployment), objects[0].(*v1.Namespace))
			listed, err := lister.List(t.Context(), listertest.Start(t, objects...).Client(), lister.Scope{})
			if err != nil {
				t.Fatal(err)
			}
			all, _ := viewOf(t, listed, basic()).Statuses()
			var got, want []string
			for _, s := range all {
				got = append(got, s.Reasons...)
			}
			if test.want != "" {
				want = []string{"it does not opt in: " + test.want}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
		})
	}
}

// A quota that keeps the controllers of a Deployment from creating pods is the reason why they
// wait.
func TestQuota(t *testing.T) {
	const message = `pods "web-r-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`
	for cluster, want := range map[string]string{
		"deployment web 2":    "its controller has created none of its pods: " + message,
		"deployment web 3 od": "2 pods are not created by its controller yet: " + message,
	} {
		objects := clustertest.Objects(cluster + "\nnode od on-demand m/a")
		objects[0].(*appsv1.Deployment).Status.Conditions = []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentReplicaFailure, Status: v1.ConditionTrue, Reason: "FailedCreate", Message: message}}
		listed, err := lister.List(t.Context(), listertest.Start(t, objects...).Client(), lister.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		view := viewOf(t, listed, basic())
		all, _ := view.Statuses()
		if len(all) != 1 || !slices.Contains(all[0].Reasons, want) {
			t.Errorf("%s: %+v, want the reason %q", cluster, all, want)
		}
		if e, err := view.Explain("Deployment", "shop", "web"); err != nil || !strings.Contains(e.Answer, message) {
			t.Errorf("%s: explained as %+v, %v", cluster, e, err)
		}
	}
}
