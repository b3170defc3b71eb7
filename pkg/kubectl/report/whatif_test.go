package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

const shop = `
	node od-a on-demand m/a
	node od-b on-demand m/b
	node sp-a spot m/a
	node sp-b spot m/b
	node od-c on-demand c/b
	node sp-c spot /
	deployment web 4 od-a sp-a sp-a sp-b
	deployment api 4 od-a od-b sp-a sp-b min=3
	deployment one 1 sp-b
	job sum 2 sp-a sp-b
	deployment theirs 2 sp-a sp-a profile=other
	daemonset log sp-a`

func TestInvalidLosses(t *testing.T) {
	for text, want := range map[string]string{
		"":             `invalid value "": expected all-spot, pool=`,
		"spot":         `invalid value "spot": expected all-spot`,
		"all-spot=1":   `invalid value "all-spot=1": expected all-spot`,
		"pool=m":       `invalid value "pool=m": expected pool=TYPE/ZONE`,
		"pool=m/":      `invalid value "pool=m/": expected pool=TYPE/ZONE`,
		"zone=":        `invalid value "zone=": expected all-spot`,
		"node=":        `invalid value "node=": expected all-spot`,
		"zone=z":       "--lose zone=z: no node matches; possible values: zone=a, zone=b",
		"pool=c/a":     "--lose pool=c/a: no node matches; possible values: pool=m/a, pool=m/b",
		"node=missing": "--lose node=missing: no node matches; possible values: node=od-a, node=od-b, node=od-c, node=sp-a, node=sp-b, node=sp-c",
	} {
		err := report.CheckLoss(text)
		if err == nil {
			_, err = newView(t, basic(), shop).SimulateLoss([]string{text})
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestChanges(t *testing.T) {
	stricter, other := basic(), basic()
	stricter.Rules = []decision.Rule{{Name: "web", OwnerKinds: []string{"Deployment"}, Overrides: clustertest.Overrides("minOnDemand", "2")}}
	other.Defaults.MinOnDemand = decision.Count(0)
	burstable := basic()
	burstable.Rules = []decision.Rule{{Name: "burstable", QOSClasses: []string{"Burstable"}, Overrides: clustertest.Overrides("minOnDemand", "2")}}
	none := basic()
	none.Defaults.MinOnDemand = decision.Count(0)
	unlabeled := basic()
	unlabeled.UnlabeledNodes = decision.Spot
	for name, test := range map[string]struct {
		cluster   string // shop if it is empty
		now, then *decision.Policy
		want      []string
	}{
		"same policy": {then: basic()},
		"a rule":      {then: stricter, want: []string{"deployment/web 1 to 2: 1 there, lacks 1, frees 0"}},
		"no floors":   {then: other, want: []string{"deployment/one 1 to 0: 0 there, lacks 0, frees 0", "deployment/web 1 to 0: 1 there, lacks 0, frees 1"}},
		"an existing surplus": {
			cluster: "node od on-demand m/a\ndeployment web 4 od od od",
			now:     basic(), then: none,
			want: []string{"deployment/web 1 to 0: 3 there, lacks 0, frees 1"},
		},
		"no pods, same policy": {cluster: "deployment web 4", now: basic(), then: basic()},
		"no pods, or none wanted": {
			cluster: "deployment web 4\nstatefulset db 2\ndeployment idle 0\ndeployment some 4 -",
			now:     basic(), then: burstable,
			want: []string{"deployment/web 1 to 2: 0 there, lacks 0, frees 0", "statefulset/db 1 to 2: 0 there, lacks 0, frees 0"},
		},
		"nodes of another capacity type, also of a workload that does not opt in": {
			cluster: "node n - m/a\ndeployment web 2 n n\ndeployment theirs 1 n profile=default-scheduler min=1",
			now:     basic(), then: unlabeled,
			want: []string{"deployment/web 1 to 1: 0 there, lacks 1, frees 0"},
		},
		"an ordinal on spot, and pods that admit only spot": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\nstatefulset db 2 sp od\ndeployment web 2 sp sp only=spot",
			now:     none, then: basic(),
			want: []string{"statefulset/db 0 to 1: 1 there, lacks 1, frees 0", "deployment/web 0 to 1: 0 there, lacks 0, frees 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Both policies apply to the same list.
			if test.cluster == "" {
				test.cluster, test.now = shop, basic()
			}
			listed := list(t, test.cluster, lister.Scope{})
			var got []string
			for _, c := range viewOf(t, listed, test.now).Changes(viewOf(t, listed, test.then)) {
				got = append(got, fmt.Sprintf("%s %d to %d: %d there, lacks %d, frees %d", c.Ref, c.FloorNow, c.FloorThen, c.OnDemandThen, c.FloorDeficit, c.AdditionalSpot))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing creates a bare pod again, and a terminating pod is not lost. A loss does not change the
// View.
func TestLossOfPodsWithoutReplacement(t *testing.T) {
	view := newView(t, basic(), "node od on-demand m/a\nnode sp spot m/a\npod bare sp\ndeployment web 3 sp sp !sp")
	for range 2 {
		result, err := view.SimulateLoss([]string{"all-spot"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range result.Workloads {
			got = append(got, fmt.Sprintf("%s %d to %d, room for %d", w.Ref, w.Before, w.After, w.Recoverable))
		}
		want := []string{"deployment/web 2 to 0, room for 2", "pod/bare 1 to 0, room for 0"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lost (-want +got):\n%s", diff)
		}
		if n := view.Nodes(labels.Everything()); n[0].Interruption+n[1].Interruption != "nonenone" {
			t.Errorf("the loss remains: %v", n)
		}
	}
}
