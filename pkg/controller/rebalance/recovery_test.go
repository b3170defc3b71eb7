package rebalance_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// brokenRoom panics if it is asked about the pods of one workload.
type brokenRoom struct {
	*room
	bad string
}

func (r brokenRoom) Replace(p *snapshot.Pod, requires decision.AssignedCapacity) (*snapshot.Node, string) {
	if p.Workload.Name == r.bad {
		panic("no such domain")
	}
	return r.room.Replace(p, requires)
}

// A panic in the planning of one workload does not affect other workloads or use up their moves.
func TestPlanAfterPanic(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		edit  func(s *snapshot.Snapshot)
		want  []string
	}{
		"heal": {lines: []string{"node o on-demand 4", "node s spot 9", "Deployment bad 2 floor 2: s s", "Deployment web 2 floor 1: s s"},
			want: []string{"web-0 heal"}},
		"make room": {lines: []string{"node o on-demand 1", "node p on-demand 2", "node s spot 9", "Deployment one 1 floor 1: -", "Deployment two 1 floor 1: -",
			"Deployment bad 1 floor 0: o", "Deployment web 2 floor 0: p p"},
			want: []string{"web-0 make-room"}},
		"return to spot": {lines: []string{"node o on-demand 9", "node s spot 9", "Deployment bad 3 floor 1: o o o", "Deployment web 3 floor 1: o o o"},
			want: []string{"web-0 return-to-spot"}},
		"a workload that cannot be judged": {lines: []string{"node o on-demand 9", "node s spot 9", "Deployment bad 2 floor 1: s s", "Deployment web 2 floor 1: s s"},
			edit: func(s *snapshot.Snapshot) {
				for _, p := range s.Pods {
					if p.Workload.Name == "bad" {
						p.Subject = nil
					}
				}
			}, want: []string{"web-0 heal"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(test.lines...)
			limited := settings
			limited.MaxMoves = 1
			s := w.snapshot()
			room := brokenRoom{newRoom(s), "bad"}
			if test.edit != nil {
				test.edit(s)
			}
			var got []string
			for _, m := range rebalance.NewPlanner(limited).Plan(s, room) {
				got = append(got, m.Pod.Name+" "+string(m.Reason))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
		})
	}
}
