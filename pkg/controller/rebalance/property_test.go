package rebalance_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// floorDeficits computes the floor deficit of each workload independently of the planner.
func floorDeficits(w *world) map[string]int {
	deficits := map[string]int{}
	for _, work := range w.workloads {
		onDemand := 0
		for _, p := range work.pods {
			if p.node != nil && p.node.facts.Capacity.Type == decision.OnDemand && (work.kind != "StatefulSet" || p.ordinal < work.floor) {
				onDemand++
			}
		}
		deficits[work.name] = max(0, min(work.floor, len(work.pods))-onDemand)
	}
	return deficits
}

// draw adds nodes, and workloads of the given kinds with pods on any of the nodes. The tests do not
// cover how this state was reached.
func (w *world) draw(t *rapid.T, kinds ...string) {
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		w.addNode(fmt.Sprintf("n%d", i), rapid.SampledFrom([]string{"spot", "on-demand"}).Draw(t, "capacity"), rapid.Int64Range(1, 6).Draw(t, "slots"))
	}
	used := map[*testNode]int64{}
	for i := range rapid.IntRange(1, 6).Draw(t, "workloads") {
		work := &testWorkload{name: fmt.Sprintf("w%d", i), kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
		work.desired = rapid.IntRange(1, 5).Draw(t, "desired")
		work.floor = rapid.IntRange(0, work.desired).Draw(t, "floor")
		for ordinal := range work.desired {
			p := &pod{name: fmt.Sprintf("%s-%d", work.name, ordinal), ordinal: ordinal, slots: 1, created: start.Add(-time.Hour)}
			if n := rapid.SampledFrom(w.nodes).Draw(t, "on"); used[n] < n.slots {
				p.node = n
				used[n]++
			}
			work.pods = append(work.pods, p)
		}
		w.workloads = append(w.workloads, work)
	}
}

// In any cluster, no round exceeds the limits of moves, no floor deficit grows, and the moves end.
// At the end no deficit remains that on-demand has room to heal.
func TestMovesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.draw(t, "Deployment", "StatefulSet")
		surge := rapid.Bool().Draw(t, "surge")
		p := rebalance.NewPlanner(settings)
		moves, quiet := 0, 0
		for round := 0; quiet < 90; round++ {
			if moves > 200 {
				t.Fatalf("still moving after %d moves", moves)
			}
			w.now = w.now.Add(time.Minute)
			w.schedule()
			before := floorDeficits(w)
			s := w.snapshot()
			planned := p.Plan(s, simulation.NewRoom(s))
			if len(planned) > int(settings.Rebalance.MaxMoves) {
				t.Fatalf("%d moves at a time", len(planned))
			}
			seen := map[*snapshot.Workload]bool{}
			for _, m := range planned {
				if m.Useless != "" {
					continue
				}
				if seen[m.Pod.Workload] {
					t.Fatalf("two moves of %s at a time", m.Pod.Workload.Name)
				}
				seen[m.Pod.Workload] = true
				w.move(m.Pod.Name, surge)
				moves++
			}
			for name, deficit := range floorDeficits(w) {
				if deficit > before[name] {
					t.Fatalf("%s lacked %d of its floor, and lacks %d after %v", name, before[name], deficit, planned)
				}
			}
			if quiet++; len(planned) > 0 {
				quiet = 0
			}
		}
		waiting, room := 0, int64(0)
		for _, n := range w.nodes {
			if n.facts.Capacity.Type == decision.OnDemand {
				room += n.slots
			}
		}
		for _, work := range w.workloads {
			for _, p := range work.pods {
				if p.node == nil {
					waiting++
				} else if p.node.facts.Capacity.Type == decision.OnDemand {
					room--
				}
			}
		}
		for name, deficit := range floorDeficits(w) {
			if deficit > 0 && room > 0 && waiting == 0 {
				t.Fatalf("%s lacks %d of its floor, and on-demand has %d slots", name, deficit, room)
			}
		}
	})
}
