package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
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
