package rebalance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// market is a world in the autoscaler mode: new pods get assignments as in package gating, and an
// autoscaler provisions the nodes that are for sale.
type market struct {
	*world
	sells map[decision.CapacityType]bool
	// surging has the replacements of released pods.
	surging map[*pod]*pod
}

// replace creates the replacement of a pod.
func (m *market) replace(work *testWorkload, p *pod, requires decision.AssignedCapacity) *pod {
	m.replacements++
	next := &pod{name: fmt.Sprintf("%s-r%d", work.name, m.replacements), ordinal: p.ordinal, slots: p.slots, created: m.now}
	assigned := 0
	for _, other := range work.pods {
		if other != p && other.released == "" && other.onlyOnDemand {
			assigned++
		}
	}
	switch ordered := work.kind == "StatefulSet"; {
	case ordered && p.ordinal < work.floor, !ordered && assigned < work.floor:
		next.onlyOnDemand, next.annotations = true, map[string]string{spot.AssignedAnnotation: "on-demand: floor"}
	case requires == decision.AssignedSpot:
		next.onlySpot = true
	}
	return next
}

// place schedules waiting pods, and then provisions nodes for replacements that require a capacity
// type, until each has one: pods that waited before may take the first nodes.
func (m *market) place() {
	m.schedule()
	for _, work := range m.workloads {
		for _, p := range slices.Clone(work.pods) {
			if next := m.surging[p]; next != nil {
				m.provision(next)
			}
		}
	}
}

// provision adds nodes until a replacement has one, if its required capacity type is for sale.
func (m *market) provision(p *pod) {
	for capacity, requires := range map[decision.CapacityType]bool{decision.OnDemand: p.onlyOnDemand, decision.Spot: p.onlySpot} {
		for p.node == nil && requires && m.sells[capacity] {
			m.replacements++
			m.addNode(fmt.Sprintf("provisioned%03d", m.replacements), capacity.String(), 1).created = m.now
			m.schedule()
		}
	}
}

// begin begins a move: a surge for a Deployment, otherwise an eviction.
func (m *market) begin(work *testWorkload, move migration.Move) {
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

// end ends the moves that began two rounds ago. Pods with a running replacement leave; other pods
// stay, and their replacements are deleted. It returns the names of the workloads of both.
func (m *market) end() (done, undone []string) {
	for _, work := range m.workloads {
		for _, p := range slices.Clone(work.pods) {
			next, ok := m.surging[p]
			if !ok || m.now.Sub(p.releasedAt) < 2*time.Minute {
				continue
			}
			leaver := p
			if next.node == nil {
				leaver, p.released = next, ""
				undone = append(undone, work.name)
			} else {
				done = append(done, work.name)
			}
			work.pods = slices.DeleteFunc(work.pods, func(o *pod) bool { return o == leaver })
			delete(m.surging, p)
		}
	}
	return done, undone
}

// TestProvisioningMovesEnd is TestMovesEnd in the autoscaler mode. A workload whose nodes are not
// for sale surges less and less often. If on-demand is for sale, every floor of a Deployment ends
// there and requires it. If spot is for sale, no other replica of a Deployment remains on
// on-demand.
func TestProvisioningMovesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &market{newWorld(), map[decision.CapacityType]bool{}, map[*pod]*pod{}}
		m.sells[decision.OnDemand], m.sells[decision.Spot] = rapid.Bool().Draw(t, "sells on-demand"), rapid.Bool().Draw(t, "sells spot")
		m.draw(t, "Deployment", "Deployment", "StatefulSet")
		p := rebalance.NewPlanner(provisioning())
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
				delete(vain, name) // the next move follows a successful one
				quiet = 0
			}
			m.place()
			before := floorDeficits(m.world)
			s := m.snapshot()
			planned := p.Plan(s, simulation.NewRoom(s))
			if len(planned) > int(settings.Rebalance.MaxMoves) {
				t.Fatalf("%d moves at a time", len(planned))
			}
			seen := map[string]bool{}
			for _, move := range planned {
				if move.Useless != "" {
					continue
				}
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
					break // a pod that waits from the start prevents its workload from settling
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
