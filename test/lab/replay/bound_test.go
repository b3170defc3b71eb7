package replay

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestBound computes the bound by hand. Each replica is 2.5/7 of a node. A service has a floor of
// 1.
func TestBound(t *testing.T) {
	p := newPlan(t, nil)
	share := p.Services[0].Share(p.Node)
	b := p.Bound(p.Window.Length)
	// 3 replicas of 6 are beyond floors until 1:00, afterwards 4 of 7. Spot has room for all but
	// from 1:00 to 1:31, when one node has room for 1.
	firstHour := 6*share - 3*share*0.75
	oneNode := (7*share - 1*0.75) * 31 / 60
	rest := (7*share - 4*share*0.75) * 29 / 60
	near(t, "the bound", b.PodHoursCost, firstHour+oneNode+rest)
	near(t, "the cost on on-demand", b.AllOnDemandPodHoursCost, 6*share+7*share)
	// Two whole replicas fit the one node.
	near(t, "the packed cost", b.PackedPodHoursCost, firstHour+(7*share-2*share*0.75)*31/60+rest)
	near(t, "the used spot", b.SpotUsedNodeHours, 3*share+31.0/60+4*share*29/60)
	half := p.Bound(30 * time.Minute)
	near(t, "the bound of half an hour", half.PodHoursCost, firstHour/2)
	sum := 0.0
	for _, point := range b.Series {
		sum += point.PodHoursCost
	}
	near(t, "the sum of the series", sum, b.PodHoursCost)
}

// TestSplitIsNotBelowPacked compares both placements of random replicas: a placement of whole
// replicas never uses more spot than the upper bound.
func TestSplitIsNotBelowPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(0, 8).Draw(t, "nodes")
		var items []item
		total, pods := 0.0, rapid.Float64Range(0.01, 0.5).Draw(t, "pods")
		for range rapid.IntRange(0, 6).Draw(t, "services") {
			i := item{
				count: rapid.IntRange(0, 9).Draw(t, "count"),
				cpu:   rapid.Float64Range(0.01, 1).Draw(t, "cpu"), memory: rapid.Float64Range(0.01, 1).Draw(t, "memory"),
				pods: pods,
			}
			i.larger = max(i.cpu, i.memory)
			total += float64(i.count) * i.larger
			items = append(items, i)
		}
		split, packed := splitOnSpot(items, float64(nodes)), packedOnSpot(items, nodes)
		if packed > split+1e-6 || split > total+1e-6 || split > 2*float64(nodes)+1e-6 {
			t.Fatalf("packed %v, split %v of %v on %d nodes", packed, split, total, nodes)
		}
	})
}

// TestPodsLimitSpot covers small replicas: a node has room for a limited number of pods.
func TestPodsLimitSpot(t *testing.T) {
	items := []item{{count: 20, cpu: 0.01, memory: 0.02, pods: 0.25, larger: 0.02}}
	near(t, "split", splitOnSpot(items, 2), 8*0.02)
	near(t, "packed", packedOnSpot(items, 2), 8*0.02)
}
