package main

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

func TestSpreadOf(t *testing.T) {
	// Two pools have a spot and an on-demand node each; the third zone has only on-demand nodes.
	nodes := []lab.NodeSpec{
		{Name: "spot-a", Capacity: lab.Spot, Zone: "a", InstanceType: "m"},
		{Name: "spot-b", Capacity: lab.Spot, Zone: "b", InstanceType: "m"},
		{Name: "od-a", Capacity: lab.OnDemand, Zone: "a", InstanceType: "m"},
		{Name: "od-b", Capacity: lab.OnDemand, Zone: "b", InstanceType: "m"},
		{Name: "od-c", Capacity: lab.OnDemand, Zone: "c", InstanceType: "r"},
		{Name: "od-d", Capacity: lab.OnDemand, Zone: "c", InstanceType: "m"},
	}
	for name, test := range map[string]struct {
		placed placements
		want   Spread
	}{
		"a floor on on-demand": {
			placements{"one": {"spot-a": 2, "spot-b": 1, "od-c": 1}},
			Spread{
				Node: Skew{2, 2}, Zone: Skew{1, 1}, Pool: Skew{2, 2}, SpotPool: Skew{1, 1},
				OnSpot: 0.75, SpotUsed: 1,
			},
		},
		"all in one spot pool": {
			placements{"one": {"spot-a": 4}},
			Spread{
				Node: Skew{4, 4}, Zone: Skew{4, 4}, Pool: Skew{4, 4}, SpotPool: Skew{4, 4},
				OnSpot: 1, SpotUsed: 1, WithoutOnDemand: 1,
			},
		},
		"on-demand although spot has room": {
			placements{"one": {"spot-a": 1, "od-a": 1, "od-b": 1, "od-c": 1}},
			Spread{
				Node: Skew{1, 1}, Zone: Skew{1, 1}, Pool: Skew{2, 2}, SpotPool: Skew{1, 1},
				OnSpot: 0.25, SpotUsed: 1.0 / 3,
			},
		},
		"maximum and mean of two workloads": {
			placements{"one": {"spot-a": 1, "od-b": 1, "od-c": 1}, "two": {"spot-a": 2, "spot-b": 2}},
			Spread{
				Node: Skew{2, 1.5}, Zone: Skew{2, 1}, Pool: Skew{2, 1.5}, SpotPool: Skew{1, 0.5},
				OnSpot: 5.0 / 7, SpotUsed: 4.0 / 5, WithoutOnDemand: 1,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var workloads []workload
			for app, counts := range test.placed {
				w := workload{app: app}
				for _, n := range counts {
					w.replicas += n
				}
				workloads = append(workloads, w)
			}
			if diff := cmp.Diff(test.want, spreadOf(test.placed, workloads, nodes), nearly); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestWorkloadsFor(t *testing.T) {
	for pods, want := range map[int][]int{1: {1}, 10: {10}, 35: {10, 20, 5}, 200: {10, 20, 50, 100, 10, 10}} {
		var got []int
		for _, w := range workloadsFor(pods) {
			got = append(got, w.replicas)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d pods: (-want +got)\n%s", pods, diff)
		}
	}
}

// TestLayouts counts the nodes of each class, by zone and by pool.
func TestLayouts(t *testing.T) {
	type counts struct{ spot, onDemand int }
	for name, test := range map[string]struct {
		wantZones map[string]counts
		wantPool  counts // of every pool; zero means that the pools differ
	}{
		"mixed":          {map[string]counts{"zone-a": {280, 120}, "zone-b": {280, 120}, "zone-c": {280, 120}}, counts{70, 30}},
		"rare-spot":      {map[string]counts{"zone-a": {0, 380}, "zone-b": {0, 380}, "zone-c": {60, 380}}, counts{}},
		"rare-on-demand": {map[string]counts{"zone-a": {380, 0}, "zone-b": {380, 0}, "zone-c": {380, 60}}, counts{}},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse([]string{"-layout", name}, t.Output())
			must(t, err)
			perZone, perPool, names := map[string]counts{}, map[string]counts{}, map[string]bool{}
			for i, node := range o.layout.nodes(1200) {
				names[node.Name] = true
				for key, into := range map[string]map[string]counts{node.Zone: perZone, node.Zone + node.InstanceType: perPool} {
					n := into[key]
					if node.Capacity == lab.Spot {
						n.spot++
					} else {
						n.onDemand++
					}
					into[key] = n
				}
				if want := fmt.Sprintf("node-%05d", i); node.Name != want {
					t.Fatalf("node %d is %s, want %s", i, node.Name, want)
				}
			}
			if diff := cmp.Diff(test.wantZones, perZone, cmp.AllowUnexported(counts{})); diff != "" {
				t.Errorf("zones (-want +got)\n%s", diff)
			}
			if len(names) != 1200 || len(perPool) != 12 {
				t.Errorf("%d names, %d pools, want 1200 and 12", len(names), len(perPool))
			}
			for pool, n := range perPool {
				if test.wantPool != (counts{}) && n != test.wantPool {
					t.Errorf("%s: %+v, want %+v", pool, n, test.wantPool)
				}
			}
		})
	}
}
