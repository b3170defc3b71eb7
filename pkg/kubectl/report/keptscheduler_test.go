package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

// Explain promises nothing that another scheduler does not know.
func TestKeptIgnored(t *testing.T) {
	const capped = "maxPerPool has no effect: node affinity cannot express it"
	for options, want := range map[string][]string{
		"profile=default-scheduler cap=50%": {capped},
		"profile=default-scheduler":         nil,
		"profile=default-scheduler optin=true cap=50%": {
			`label spot-aware-scheduler.io/opt-in=true on the pod has no effect: expected keep-scheduler or "false"`, capped},
		"cap=50%": nil,
	} {
		view := newView(t, basic(), "namespace shop keep-scheduler\nnode sp spot m/a\ndeployment web 2 sp sp "+options)
		e, err := view.Explain("Deployment", clustertest.Namespace, "web")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, e.Ignored); diff != "" {
			t.Errorf("%s (-want +got):\n%s", options, diff)
		}
	}
}

// Pods of kube-system cannot keep their scheduler and opt in.
func TestAssessSystem(t *testing.T) {
	pod := clustertest.NewPod("a", clustertest.OwnedBy("CloneSet", "a"))
	pod.Namespace, pod.Spec.NodeName = metav1.NamespaceSystem, "od"
	view := assessedView(t, "node od on-demand m/a\nnode sp spot m/a", nil, pod)
	for mode, want := range map[report.Mode]report.Class{report.ModeOwn: report.NeedsChange, report.ModeKeepScheduler: report.NotForSpot} {
		view.Mode = mode
		if got := view.Assess(pricing.BuiltIn(), true).Workloads; len(got) != 1 || got[0].Class != want {
			t.Errorf("%s: %+v, want %s", mode, got, want)
		}
	}
}
