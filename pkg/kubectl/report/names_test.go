package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// Keys with the prefix of the project that have no effect are reasons, with the name that is meant.
func TestUnknownKeys(t *testing.T) {
	for name, test := range map[string]struct {
		owner, pod, labels map[string]string
		want               []string
	}{
		"misspelled on the owner": {owner: map[string]string{spot.Domain + "min-on-demnad": "2"},
			want: []string{"annotation spot-aware-scheduler.io/min-on-demnad on the Deployment is unknown: did you mean spot-aware-scheduler.io/min-on-demand?"}},
		"misspelled on the pod": {pod: map[string]string{spot.Domain + "fallbackAfter": "2"},
			want: []string{"annotation spot-aware-scheduler.io/fallbackAfter on the pod is unknown: did you mean spot-aware-scheduler.io/fallback-after?"}},
		"another domain": {pod: map[string]string{"spot-aware-schedular.io/min-on-demand": "2"},
			want: []string{"annotation spot-aware-schedular.io/min-on-demand on the pod is unknown: did you mean spot-aware-scheduler.io/min-on-demand?"}},
		"like no other": {pod: map[string]string{spot.Domain + "zebra": "2"},
			want: []string{"annotation spot-aware-scheduler.io/zebra on the pod is unknown"}},
		"a label": {labels: map[string]string{spot.MinOnDemandAnnotation: "2", spot.Domain + "over-flow": "Never"}, want: []string{
			"label spot-aware-scheduler.io/min-on-demand on the pod has no effect: it must be an annotation",
			"label spot-aware-scheduler.io/over-flow on the pod has no effect: did you mean spot-aware-scheduler.io/overflow?"}},
		"known, and others'": {owner: map[string]string{spot.SurgeAnnotation: "false"},
			pod: map[string]string{spot.DeletionCostAnnotation: "1", "example.com/min-on-demnad": "2"}, labels: map[string]string{"app": "web"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := clustertest.Objects("node od on-demand\ndeployment web 1 od")
			objects[1].(*appsv1.Deployment).Annotations = test.owner
			pod := objects[len(objects)-1].(*v1.Pod)
			pod.Annotations = test.pod
			for key, value := range test.labels {
				pod.Labels[key] = value
			}
			listed, err := lister.List(t.Context(), listertest.Start(t, objects...).Client(), lister.Scope{})
			if err != nil {
				t.Fatal(err)
			}
			view := viewOf(t, listed, basic())
			all, _ := view.Statuses()
			if diff := cmp.Diff(test.want, all[0].Reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			e, err := view.Explain("Deployment", clustertest.Namespace, "web")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, e.Ignored); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
		})
	}
}
