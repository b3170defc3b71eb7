package rebalance_test

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// brokenRoom panics if it is asked about the pods of one workload.
type brokenRoom struct {
	rebalance.Room
	bad string
}

func (r brokenRoom) Replace(p *snapshot.Pod, requires decision.AssignedCapacity) (*snapshot.Node, string) {
	if p.Workload.Name == r.bad {
		panic("no such domain")
	}
	return r.Room.Replace(p, requires)
}

// A panic in the planning of one workload does not affect other workloads or use up their moves.
func TestPlanAfterPanic(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		edit  func(s *snapshot.Snapshot)
		want  []string
	}{
		"heal": {lines: []string{"node o on-demand cpu=4", "node s spot cpu=9", "deployment bad 2 s s min=2", "deployment web 2 s s min=1"},
			want: []string{"web-0 heal"}},
		"make room": {lines: []string{"node o on-demand cpu=1", "node p on-demand cpu=2", "node s spot cpu=9", "deployment one 1 - min=1", "deployment two 1 - min=1",
			"deployment bad 1 o min=0", "deployment web 2 p p min=0"},
			want: []string{"web-0 make-room"}},
		"return to spot": {lines: []string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment bad 3 o o o min=1", "deployment web 3 o o o min=1"},
			want: []string{"web-0 return-to-spot"}},
		"a workload that cannot be judged": {lines: []string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment bad 2 s s min=1", "deployment web 2 s s min=1"},
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
			limited.Rebalance.MaxMoves = 1
			s := w.snapshot()
			room := brokenRoom{simulation.NewRoom(s), "bad"}
			if test.edit != nil {
				test.edit(s)
			}
			var got []string
			for _, m := range rebalance.NewPlanner(limited).Plan(s, room) {
				got = append(got, m.Pod.Name+" "+string(m.Reason))
			}
			clustertest.Equal(t, "moves", test.want, got)
		})
	}
}
