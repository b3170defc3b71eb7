package rebalance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/rebalance"
)

// market is a world in the autoscaler mode: new pods are assigned what they require as package gating does, and an autoscaler buys for them what
// can be bought.
type market struct {
	*world
	sells map[decision.CapacityType]bool
	// surging are the replacements of released pods.
	surging map[*pod]*pod
}

// replace makes the replacement of a pod of a workload.
func (m *market) replace(work *workload, p *pod, requires decision.Assignment) *pod {
	m.made++
	next := &pod{name: fmt.Sprintf("%s-r%d", work.name, m.made), ordinal: p.ordinal, slots: p.slots, born: m.now}
	assigned := 0
	for _, other := range work.pods {
		if other != p && other.released == "" && other.onlyOnDemand {
			assigned++
		}
	}
	switch ordered := work.kind == "StatefulSet"; {
	case ordered && p.ordinal < work.floor, !ordered && assigned < work.floor:
		next.onlyOnDemand, next.annotations = true, map[string]string{kube.AssignedAnnotation: "on-demand: floor"}
	case requires == decision.AssignedSpot:
		next.onlySpot = true
	}
	return next
}

// place lets the scheduler place what waits, then the autoscaler buy for what still waits and requires something.
func (m *market) place() {
	m.schedule()
	for _, p := range m.surging {
		for capacity, requires := range map[decision.CapacityType]bool{decision.OnDemand: p.onlyOnDemand, decision.Spot: p.onlySpot} {
			if p.node == nil && requires && m.sells[capacity] {
				m.made++
				m.addNode(fmt.Sprintf("bought%03d", m.made), capacity.String(), 1).born = m.now
			}
		}
	}
	m.schedule()
}

// begin begins a move: a surge of a Deployment's pod, else an eviction.
func (m *market) begin(work *workload, move migration.Move) {
	i := slices.IndexFunc(work.pods, func(p *pod) bool { return p.name == move.Pod.Name })
	p := work.pods[i]
	next := m.replace(work, p, move.Requires)
	if work.kind == "StatefulSet" {
		work.pods[i] = next
	} else {
		p.released, p.releasedAt = string(move.Reason), m.now
		work.pods = append(work.pods, next)
		m.surging[p] = next
	}
	m.place()
}

// end ends what was begun two rounds ago: pods whose replacements run leave, the others stay, and their replacements go. It returns the names of the
// workloads of both.
func (m *market) end() (done, undone []string) {
	for _, work := range m.workloads {
		for _, p := range slices.Clone(work.pods) {
			next, ok := m.surging[p]
			if !ok || m.now.Sub(p.releasedAt) < 2*time.Minute {
				continue
			}
			leaves := p
			if next.node == nil {
				leaves, p.released = next, ""
				undone = append(undone, work.name)
			} else {
				done = append(done, work.name)
			}
			work.pods = slices.DeleteFunc(work.pods, func(o *pod) bool { return o == leaves })
			delete(m.surging, p)
		}
	}
	return done, undone
}

// As TestComesToAnEnd, in the autoscaler mode. A workload for which nothing can be bought surges less and less often. If on-demand can be bought,
// every floor of a Deployment ends there and requires it; if spot can, no other replica of one is left on on-demand.
func TestBuyingComesToAnEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &market{newWorld(), map[decision.CapacityType]bool{}, map[*pod]*pod{}}
		m.sells[decision.OnDemand], m.sells[decision.Spot] = rapid.Bool().Draw(t, "sells on-demand"), rapid.Bool().Draw(t, "sells spot")
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			m.addNode(fmt.Sprintf("n%d", i), rapid.SampledFrom([]string{"spot", "on-demand"}).Draw(t, "capacity"), rapid.Int64Range(1, 6).Draw(t, "slots"))
		}
		used := map[*node]int64{}
		for i := range rapid.IntRange(1, 6).Draw(t, "workloads") {
			work := &workload{name: fmt.Sprintf("w%d", i), kind: rapid.SampledFrom([]string{"Deployment", "Deployment", "StatefulSet"}).Draw(t, "kind")}
			work.desired = rapid.IntRange(1, 5).Draw(t, "desired")
			work.floor = rapid.IntRange(0, work.desired).Draw(t, "floor")
			for ordinal := range work.desired {
				p := &pod{name: fmt.Sprintf("%s-%d", work.name, ordinal), ordinal: ordinal, slots: 1, born: start.Add(-time.Hour)}
				if n := rapid.SampledFrom(m.nodes).Draw(t, "on"); used[n] < n.slots {
					p.node = n
					used[n]++
				}
				work.pods = append(work.pods, p)
			}
			m.workloads = append(m.workloads, work)
		}
		p := rebalance.NewPlanner(buying())
		moves, quiet := 0, 0
		vain := map[string][]time.Time{}
		for quiet < 90 {
			if moves > 200 {
				t.Fatalf("still moving after %d moves", moves)
			}
			m.now = m.now.Add(time.Minute)
			done, undone := m.end()
			for _, name := range undone {
				if vain[name] = append(vain[name], m.now); len(vain[name]) > 6 && m.now.Sub(vain[name][len(vain[name])-7]) < time.Hour {
					t.Fatalf("seven surges of %s in an hour were undone", name)
				}
			}
			quiet++
			for _, name := range done {
				delete(vain, name) // what helped is followed by the next
				quiet = 0
			}
			m.place()
			before := floorDeficits(m.world)
			s := m.snapshot()
			planned := p.Plan(s, newRoom(s))
			if len(planned) > settings.MaxMoves {
				t.Fatalf("%d moves at a time", len(planned))
			}
			seen := map[string]bool{}
			for _, move := range planned {
				name := move.Pod.Workload.Name
				if seen[name] {
					t.Fatalf("two moves of %s at a time", name)
				}
				seen[name] = true
				work := m.workload(name)
				if work.kind == "StatefulSet" {
					moves, quiet = moves+1, 0
				}
				m.begin(work, move)
			}
			moves += len(done)
			for name, deficit := range floorDeficits(m.world) {
				if deficit > before[name] {
					t.Fatalf("%s lacked %d of its floor, and lacks %d after %v", name, before[name], deficit, planned)
				}
			}
		}
		m.now = m.now.Add(time.Hour)
		m.end()
		for _, work := range m.workloads {
			onDemand, required := 0, 0
			for _, p := range work.pods {
				if p.node == nil {
					onDemand, required = -1, -1
					break // what waits from the beginning keeps its workload from settling
				}
				if p.node.facts.Capacity.Type == decision.OnDemand {
					onDemand++
				}
				if p.onlyOnDemand {
					required++
				}
			}
			if work.kind == "StatefulSet" || onDemand < 0 {
				continue
			}
			if m.sells[decision.OnDemand] && (onDemand < work.floor || required < work.floor) {
				t.Fatalf("%s has %d pods on on-demand, and %d that require it; its floor is %d", work.name, onDemand, required, work.floor)
			}
			if m.sells[decision.OnDemand] && m.sells[decision.Spot] && onDemand > work.floor {
				t.Fatalf("%s has %d pods on on-demand; its floor is %d", work.name, onDemand, work.floor)
			}
		}
	})
}
