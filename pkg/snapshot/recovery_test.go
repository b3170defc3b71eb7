package snapshot_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// A pod that cannot be read belongs to no workload and counts nowhere. It does not affect other
// pods.
func TestUnreadablePod(t *testing.T) {
	const lines = "node sp spot m/a\nnode od on-demand m/a\ndeployment web 3 sp od ~sp"
	w := clustertest.NewWorld(t)
	w.Policy.Rules = []decision.Rule{{Name: "broken", PodSelector: func(labels map[string]string) bool {
		if labels["app"] == "bad" {
			panic("no such label")
		}
		return false
	}}}
	w.Build(lines)
	want := describe(w.Snapshot())
	w.Build("deployment bad 2 sp sp\nstatefulset bad 1 od")
	foreign := clustertest.NewPod("aaa", clustertest.OwnedBy("example.com/v1/Foo", "foo")) // with its own workload
	foreign.Labels = map[string]string{"app": "bad"}
	w.Put(foreign)
	for _, when := range []string{"first", "cached"} {
		s := w.Snapshot()
		bad := map[string]bool{"aaa": true, "bad-0": true, "bad-1": true}
		for name := range bad {
			if p := clustertest.Find(t, s, name); p.Workload != nil || p.Revision != nil || p.Subject != nil {
				t.Errorf("%s: %s belongs to %+v, want nothing", when, name, p.Workload)
			}
		}
		for i := 0; i < len(s.Pods); i++ {
			if bad[s.Pods[i].Name] {
				s.Pods = append(s.Pods[:i], s.Pods[i+1:]...)
				i--
			}
		}
		if diff := cmp.Diff(want, describe(s)); diff != "" {
			t.Errorf("%s: the others (-without +with unreadable pods):\n%s", when, diff)
		}
	}
}

// A released pod that cannot be read counts neither as released nor as a replica, and the
// controller does nothing with it.
func TestUnreadableReleasedPod(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Policy.Rules = []decision.Rule{{Name: "broken", PodSelector: func(map[string]string) bool { panic("no such label") }}}
	w.Build("node sp spot m/a\ndeployment web 1 ~sp")
	s := w.Snapshot()
	if p := clustertest.Find(t, s, "web-0"); p.Release != nil || p.ReleasedFrom != nil || len(s.Workloads) != 0 {
		t.Errorf("release %+v of %d workloads, want none", p.Release, len(s.Workloads))
	}
}

// A node that cannot be read remains in the Snapshot with its pods, but accepts no new pods.
func TestUnreadableNode(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node sp spot m/a\ndeployment web 1 sp")
	w.Reader.BreakNodes()
	s := w.Snapshot()
	want := decision.Node{Capacity: decision.Capacity{Type: decision.Spot}, Signal: decision.Drain}
	if diff := cmp.Diff(want, s.Nodes[0].Facts); diff != "" || len(s.Nodes[0].Pods) != 1 {
		t.Errorf("%d pods on it, want 1; facts (-want +got):\n%s", len(s.Nodes[0].Pods), diff)
	}
}
