package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// If rules give the pods of one role different floors, the highest floor counts, whichever pod is
// first.
func TestStatusOfMixedFloors(t *testing.T) {
	policy := basic()
	policy.Rules = []decision.Rule{{PriorityClasses: []string{"critical"}, Overrides: clustertest.Overrides("minOnDemand", "2")}}
	for _, critical := range []string{"a", "b"} {
		cluster := "node od on-demand m/a\nnode sp spot m/a"
		for _, name := range []string{"a", "b"} {
			cluster += "\npod " + name + " od owner=CloneSet/c"
			if name == critical {
				cluster += " class=critical"
			}
		}
		all, _ := newView(t, policy, cluster).Statuses()
		want := []string{"cloneset/c OK: 2 of 2, 2+0, left 2 and 2 without  []"}
		if diff := cmp.Diff(want, statusLines(all)); diff != "" {
			t.Errorf("%s is critical (-want +got):\n%s", critical, diff)
		}
	}
}

// It is unknown whether a JobSet starts a failed Job again. That matters only if a replica may run
// on spot.
func TestStatusOfJobThatMayBeRestarted(t *testing.T) {
	for pods, want := range map[string]report.State{"od sp min=1": report.Unknown, "od od min=100%": report.OK} {
		objects := clustertest.Objects("node od on-demand m/a\nnode sp spot m/a\njob train 2 " + pods + " by=jobset.x-k8s.io/v1alpha2/JobSet/train")
		for _, object := range objects {
			if job, ok := object.(*batchv1.Job); ok {
				job.Spec.BackoffLimit = new(int32(0))
			}
		}
		listed, err := lister.Load(t.Context(), "-", strings.NewReader(listertest.Dump(t, objects...)), lister.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := viewOf(t, listed, basic()).Statuses()
		if len(all) != 1 || all[0].State != want {
			t.Errorf("%s: %+v, want %s", pods, statusLines(all), want)
		}
	}
}

// Explain prefers a role with a waiting pod to the first one. It finds a role by its name in the
// status.
func TestExplainRoles(t *testing.T) {
	view := newView(t, basic(), `
		node od on-demand m/a
		pod a od owner=ray.io/v1/RayCluster/train min=1
		pod b - owner=ray.io/v1/RayCluster/train min=100% waits=10s`)
	for name, want := range map[string]string{
		"train":                        `raycluster/train (min-on-demand="100%")`,
		`train (min-on-demand="100%")`: `raycluster/train (min-on-demand="100%")`,
		`train (min-on-demand="1")`:    `raycluster/train (min-on-demand="1")`,
	} {
		e, err := view.Explain("rayCluster", "shop", name)
		if err != nil || e.Object.String() != want {
			t.Errorf("%s: explains %v, error %v; want %s", name, e, err, want)
			continue
		}
		if want := []string{"annotations on its controller are not read: set them in the pod template"}; !cmp.Equal(want, e.Ignored) {
			t.Errorf("%s: ignored %q, want %q", name, e.Ignored, want)
		}
	}
}
