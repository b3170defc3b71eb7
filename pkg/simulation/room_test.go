package simulation_test

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// A replacement that requires a capacity type finds room only on that type, regardless of the
// policy.
func TestReplaceRequires(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build(`
		node gone on-demand m/a cordoned
		node o on-demand m/a
		node s spot m/a
		deployment web 3 gone gone gone min=1
		deployment low 3 gone gone gone min=1`)
	never := clustertest.Find(t, w.Snapshot(), "low-0").Workload.Deployment
	never.Annotations["spot-aware-scheduler.io/overflow"] = "Never"
	w.Put(never)
	for name, test := range map[string]struct {
		pod      string
		requires decision.AssignedCapacity
		want     string
	}{
		"unassigned, beyond the floor":   {"web-0", decision.Unassigned, "s"},
		"any":                            {"web-0", decision.AssignedAny, "s"},
		"on-demand":                      {"web-0", decision.AssignedOnDemand, "o"},
		"spot":                           {"web-0", decision.AssignedSpot, "s"},
		"on-demand with overflow Never":  {"low-0", decision.AssignedOnDemand, "o"},
		"unassigned with overflow Never": {"low-0", decision.Unassigned, "s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := w.Snapshot()
			if to, why := simulation.NewRoom(s).Replace(clustertest.Find(t, s, test.pod), test.requires); nameOf(to) != test.want {
				t.Errorf("replacement on %s (%s), want %s", nameOf(to), why, test.want)
			}
		})
	}
}

// After its time has ended, a Room returns only earlier results and reserves no room.
func TestRoomUntil(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build(`
		node a on-demand m/a cpu=1
		node b on-demand m/b cpu=1
		node gone on-demand m/a cordoned
		deployment web 3 gone gone gone min=3`)
	s := w.Snapshot()
	all := 0
	simulation.NewRoomUntil(s, func() bool { all++; return false }).Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned)
	if all < 2 {
		t.Fatalf("checked the time %d times for one pod, want more than once", all)
	}
	for left := range all {
		room := simulation.NewRoomUntil(s, func() bool { left--; return left < 0 })
		for range 2 {
			if to, why := room.Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned); to != nil || why != simulation.NotExamined {
				t.Errorf("%s, %q, want %q", nameOf(to), why, simulation.NotExamined)
			}
		}
	}
	over := false
	room := simulation.NewRoomUntil(s, func() bool { return over })
	first, _ := room.Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned)
	over = true
	if again, _ := room.Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned); again == nil || again != first {
		t.Errorf("%s, want the earlier result: %s", nameOf(again), nameOf(first))
	}
	if to, why := room.Replace(clustertest.Find(t, s, "web-1"), decision.Unassigned); to != nil || why != simulation.NotExamined {
		t.Errorf("%s, %q, want %q", nameOf(to), why, simulation.NotExamined)
	}
}

// The capacity type that the controller assigned to a pod is no requirement of its replacement,
// which gets its own.
func TestReplaceAssigned(t *testing.T) {
	for name, test := range map[string]struct {
		assigned, on string
		requires     decision.AssignedCapacity
		slots, want  string // of node s
	}{
		"on-demand, returns to spot": {"on-demand", "gone", decision.AssignedSpot, "9", "s"},
		"on-demand, remains there":   {"on-demand", "gone", decision.Unassigned, "9", "o"},
		"spot, needs on-demand":      {"spot", "gone", decision.AssignedOnDemand, "9", "o"},
		"spot, spot is full":         {"spot", "gone", decision.Unassigned, "0", "o"},
		"waits for its own node":     {"spot", "-", decision.Unassigned, "0", "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("node gone on-demand m/a cordoned\nnode o on-demand m/a\nnode s spot m/a cpu=" + test.slots + "\ndeployment web 1 " + test.on +
				" min=0 kept assigned=" + test.assigned + ":_why requires=node.kubernetes.io/capacity=" + test.assigned)
			s := w.Snapshot()
			if to, why := simulation.NewRoom(s).Replace(clustertest.Find(t, s, "web-0"), test.requires); nameOf(to) != test.want {
				t.Errorf("replacement on %s (%s), want %s", nameOf(to), why, test.want)
			}
		})
	}
}
