package report_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// statusLines returns each status as a line.
func statusLines(all []report.Status) (lines []string) {
	for _, s := range all {
		line := fmt.Sprintf("%s %s: %d of %d", s.Ref, s.State, s.Floor, s.Desired)
		if s.Spot != nil {
			line += fmt.Sprintf(", %d+%d, left %d and %d without %s", *s.OnDemand, *s.Spot, *s.WithoutSpot, *s.WithoutPool, s.LargestPool)
		}
		if s.Waiting > 0 {
			line += fmt.Sprintf(", %d wait", s.Waiting)
		}
		lines = append(lines, fmt.Sprintf("%s %q", line, s.Reasons))
	}
	return lines
}

func TestStatuses(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		want    []string
		others  int
	}{
		"worst first": {
			cluster: `
				node od on-demand m/a
				node sp-1 spot m/a
				node sp-2 spot m/b
				deployment fine 3 od sp-1 sp-2
				deployment short 3 sp-1 sp-1 sp-2
				deployment shorter 3 sp-1 sp-2 - min=2 waits=10s
				deployment slow 2 od - waits=10s
				deployment few 4 od sp-1
				deployment theirs 1 sp-1 profile=default-scheduler`,
			want: []string{
				`deployment/shorter BelowFloor: 2 of 3, 0+2, left 0 and 1 without m/a, 1 wait ` +
					`["0 of the floor of 2 on on-demand" "1 on spot beyond the budget of 1" "1 pod waits: 0/2 nodes are available: 2 Insufficient cpu"]`,
				`deployment/short BelowFloor: 1 of 3, 0+3, left 0 and 1 without m/a ["0 of the floor of 1 on on-demand" "1 on spot beyond the budget of 2"]`,
				`deployment/few Waiting: 1 of 4, 1+1, left 1 and 1 without m/a, 2 wait ["2 pods are not created by its controller yet"]`,
				`deployment/slow Waiting: 1 of 2, 1+0, left 1 and 1 without , 1 wait ["1 pod waits: 0/2 nodes are available: 2 Insufficient cpu"]`,
				`deployment/fine OK: 1 of 3, 1+2, left 1 and 2 without m/a []`,
			},
			others: 1,
		},
		"ordinals": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\nstatefulset db 2 sp od",
			want:    []string{`statefulset/db BelowFloor: 1 of 2, 1+1, left 1 and 1 without m/a ["db-0 of the floor on spot"]`},
		},
		"an ordinal below the first, without a floor": {
			cluster: "node sp spot m/a\nstatefulset db 1 sp start=5 min=0",
			want:    []string{`statefulset/db OK: 0 of 1, 0+1, left 0 and 0 without m/a []`},
		},
		"a Job": {
			cluster: "node sp spot m/a\njob sum 2 sp sp",
			want:    []string{`job/sum OK: 0 of 2, 0+2, left 0 and 0 without m/a []`},
		},
		"spot only by its own selector": {
			cluster: "node sp spot m/a\ndeployment web 2 sp sp only=spot",
			want: []string{`deployment/web OK: 1 of 2, 0+2, left 0 and 0 without m/a ` +
				`["its own constraints admit only spot: the floor does not apply"]`},
		},
		"spot only by the nodes that its constraints admit": {
			cluster: "node od on-demand m/b\nnode sp spot m/a\ndeployment web 2 sp sp zone=a",
			want: []string{`deployment/web OK: 1 of 2, 0+2, left 0 and 0 without m/a ` +
				`["its own constraints admit only spot: the floor does not apply"]`},
		},
		"pods that their controller did not create": {
			cluster: `
				node od on-demand m/a
				node sp spot m/a
				deployment stream 1 od
				pod task-1 sp owner=Deployment/stream
				pod task-2 sp owner=Deployment/stream
				pod driver od
				pod exec-1 od owner=v1/Pod/driver`,
			want: []string{
				`podsofdeployment/stream BelowFloor: 1 of 2, 0+2, left 0 and 0 without m/a ["0 of the floor of 1 on on-demand" "1 on spot beyond the budget of 1"]`,
				`deployment/stream OK: 1 of 1, 1+0, left 1 and 1 without  []`,
				`pod/driver OK: 1 of 1, 1+0, left 1 and 1 without  []`,
				`podsofpod/driver OK: 1 of 1, 1+0, left 1 and 1 without  []`,
			},
		},
		"roles under one controller, each by its own settings": {
			cluster: `
				node od on-demand m/a
				node sp spot m/a
				pod a-worker sp owner=ray.io/v1/RayCluster/train min=0
				pod b-head od owner=ray.io/v1/RayCluster/train min=100%
				pod c-worker sp owner=ray.io/v1/RayCluster/train min=0`,
			want: []string{
				`raycluster/train (min-on-demand="0") OK: 0 of 2, 0+2, left 0 and 0 without m/a []`,
				`raycluster/train (min-on-demand="100%") OK: 1 of 1, 1+0, left 1 and 1 without  []`,
			},
		},
		"a rollout": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\ndeployment web 2 od od sp old=1",
			want:    []string{`deployment/web RollingOut: 1 of 2, 2+1, left 2 and 2 without m/a ["rolling out"]`},
		},
		"no pods": {
			cluster: "deployment web 2\nstatefulset db 1\ndeployment theirs 1 profile=other\ndeployment off 0",
			want: []string{
				`deployment/web Waiting: 1 of 2, 0+0, left 0 and 0 without , 2 wait ["its controller has created none of its pods: see the events of its ReplicaSet or StatefulSet"]`,
				`statefulset/db Waiting: 1 of 1, 0+0, left 0 and 0 without , 1 wait ["its controller has created none of its pods: see the events of its ReplicaSet or StatefulSet"]`,
			},
		},
		"moving from another scheduler": {
			cluster: "node sp spot m/a\ndeployment web 1 profile=spot-aware-scheduler\npod web-0 sp owner=ReplicaSet/web-r profile=other",
			others:  1,
		},
		"a deleted node, and a node without a pool": {
			cluster: "node od on-demand m/a\nnode sp spot /\ndeployment web 3 od sp gone",
			want:    []string{`deployment/web Waiting: 1 of 3, 1+1, left 1 and 1 without node sp, 1 wait ["1 pod is on a deleted node"]`},
		},
		"an invalid annotation": {
			cluster: "node od on-demand m/a\ndeployment web 1 od min=many",
			want: []string{`deployment/web OK: 1 of 1, 1+0, left 1 and 1 without  ` +
				`["annotation spot-aware-scheduler.io/min-on-demand on the Deployment is ignored: invalid value \"many\": ` +
				`expected a count of 0 or more such as \"2\", or a percentage such as \"30%\", at most 100%"]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, others := newView(t, basic(), test.cluster).Statuses()
			if diff := cmp.Diff(test.want, statusLines(all)); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			if others != test.others {
				t.Errorf("%d other workloads, want %d", others, test.others)
			}
		})
	}
}

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
	if labels := listed.Labels("argoproj.io/v1alpha1", "Rollout", "shop", "web"); labels["app"] != "web" {
		t.Errorf("labels %v, want the labels of its pods", labels)
	}
}

// With exemptions ignored, a workload that admits only spot is below its floor.
func TestStatusOfIgnoredExemptions(t *testing.T) {
	policy := basic()
	policy.Defaults.Exemptions = decision.IgnoreExemptions
	all, _ := newView(t, policy, "node sp spot m/a\ndeployment web 2 sp sp only=spot").Statuses()
	want := []string{`deployment/web BelowFloor: 1 of 2, 0+2, left 0 and 0 without m/a ` +
		`["0 of the floor of 1 on on-demand" "1 on spot beyond the budget of 1"]`}
	if diff := cmp.Diff(want, statusLines(all)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestStatusWithoutNodes(t *testing.T) {
	view := newView(t, basic(), "deployment web 2 somewhere -")
	view.NodesUnknown = true
	all, _ := view.Statuses()
	want := []string{`deployment/web Waiting: 1 of 2, 1 wait ["1 pod waits: no scheduler has reported a reason" "nodes cannot be read"]`}
	if diff := cmp.Diff(want, statusLines(all)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}
