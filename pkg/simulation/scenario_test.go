package simulation_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// TestScenarios runs testdata/*.txt. Each directive is followed by a cluster in the notation of
// package clustertest, and by the expected answer, which the flag -rewrite replaces. Directives:
//
//	replace POD...                       the nodes of the replacements, in this order
//	demand [places=(...)] [moves=(...)]  the nodes that fit pod web-0
//	obstacles POD                        why the pod cannot run on each node
//	fits-any-node                        whether an empty node fits pod x-0
//	fits-new-node                        the capacity types of new nodes that fit pod x-0
//	fits-other-node                      whether a node other than its own fits pod x-0
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w := clustertest.NewWorld(t)
			w.Build(d.Input)
			s := w.Snapshot()
			switch d.Cmd {
			case "replace":
				return replacements(t, s, d)
			case "demand":
				return demand(t, s, d)
			case "obstacles":
				return obstacles(t, s, d)
			case "fits-any-node":
				fits, p := simulation.FitsAnyNode(s.Nodes), clustertest.Find(t, s, "x-0")
				first := fits(p)
				if again := fits(p); again != first {
					t.Errorf("%s: %t from the cache, %t before", d.Pos, again, first)
				}
				return fmt.Sprintln(first)
			case "fits-new-node":
				return newNodes(w, clustertest.Find(t, s, "x-0"), s)
			case "fits-other-node":
				f := (*simulation.Provisioning)(nil).Feasibility(s)
				return fmt.Sprintln(f.FitsOtherNode(clustertest.Find(t, s, "x-0"), decision.Unassigned))
			}
			d.Fatalf(t, "unknown directive %q", d.Cmd)
			return ""
		})
	})
}

func replacements(t *testing.T, s *snapshot.Snapshot, d *datadriven.TestData) string {
	room := simulation.NewRoom(s)
	var out strings.Builder
	for _, arg := range d.CmdArgs {
		to, why := room.Replace(clustertest.Find(t, s, arg.Key), decision.Unassigned)
		if to == nil {
			fmt.Fprintf(&out, "%s nowhere: %s\n", arg.Key, why)
			continue
		}
		fmt.Fprintln(&out, strings.TrimSpace(fmt.Sprintf("%s on %s %s", arg.Key, to.Name, why)))
	}
	return out.String()
}

func demand(t *testing.T, s *snapshot.Snapshot, d *datadriven.TestData) string {
	read := func(name string) map[*snapshot.Pod]*snapshot.Node {
		places := map[*snapshot.Pod]*snapshot.Node{}
		for _, arg := range d.CmdArgs {
			if arg.Key != name {
				continue
			}
			for _, value := range arg.Vals {
				pod, to, _ := strings.Cut(value, ">")
				p := clustertest.Find(t, s, pod)
				places[p] = nil
				for _, node := range s.Nodes {
					if node.Name == to {
						places[p] = node
					}
				}
			}
		}
		return places
	}
	demand := simulation.NewDemand(s, clustertest.Find(t, s, "web-0"), read("places"))
	fitting := func() string {
		names := ""
		for _, node := range s.Nodes {
			if demand.Fits(node, read("moves")) {
				names += " " + node.Name
			}
		}
		return strings.TrimSpace(names) + "\n"
	}
	first := fitting()
	if again := fitting(); again != first {
		t.Errorf("%s: %q, and %q before: the first answer leaves traces", d.Pos, again, first)
	}
	return first
}

func obstacles(t *testing.T, s *snapshot.Snapshot, d *datadriven.TestData) string {
	inspection := simulation.NewInspection(s, clustertest.Find(t, s, d.CmdArgs[0].Key))
	var out strings.Builder
	for _, node := range s.Nodes {
		fmt.Fprintln(&out, strings.TrimSpace(node.Name+": "+strings.Join(inspection.Obstacles(node), "; ")))
	}
	return out.String()
}

func newNodes(w *clustertest.World, p *snapshot.Pod, s *snapshot.Snapshot) string {
	f := (&simulation.Provisioning{Policy: &w.Policy}).Feasibility(s)
	var fitting []string
	for _, requires := range []decision.AssignedCapacity{decision.AssignedOnDemand, decision.AssignedSpot, decision.Unassigned} {
		if f.FitsNewNode(p, requires) {
			fitting = append(fitting, cmp.Or(requires.String(), "any"))
		}
	}
	return cmp.Or(strings.Join(fitting, " "), "none") + "\n"
}
