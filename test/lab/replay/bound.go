package replay

import (
	"cmp"
	"slices"
	"time"
)

// Bound is the cost of the cheapest placement at each moment that keeps every floor on on-demand
// and uses only the spot nodes that exist. It knows no moves, notices or start-up.
type Bound struct {
	// PodHoursCost is a lower bound for every placement: replicas may be split over nodes.
	PodHoursCost float64 `json:"podHoursCost"`
	// PackedPodHoursCost is the cost of a placement of whole replicas, by first fit decreasing. The
	// cheapest placement of whole replicas costs at most this and at least PodHoursCost.
	PackedPodHoursCost float64 `json:"packedPodHoursCost"`
	// AllOnDemandPodHoursCost is the cost of all replicas on on-demand.
	AllOnDemandPodHoursCost float64 `json:"allOnDemandPodHoursCost"`
	// SpotUsedNodeHours is the spot that the placement of PodHoursCost uses.
	SpotUsedNodeHours float64 `json:"spotUsedNodeHours"`
	// Series are the costs of the parts of the window, as in Point.
	Series []BoundPoint `json:"series"`
}

// BoundPoint is a part of the window, from Seconds to the next point.
type BoundPoint struct {
	Seconds      float64 `json:"seconds"`
	PodHoursCost float64 `json:"podHoursCost"`
}

// item is the replicas of a service that may run on spot, with their shares of a node. pods is the
// share of the node's largest number of pods. larger is the larger share of cpu and memory.
type item struct {
	count                     int
	cpu, memory, pods, larger float64
}

// Bound computes the bound for the start of the window, up to a time.
func (p *Plan) Bound(length time.Duration) Bound {
	var b Bound
	changes := []time.Duration{0}
	spot := p.SpotCount()
	for _, s := range spot {
		changes = append(changes, s.At)
	}
	for _, s := range p.Services {
		for _, step := range s.Replicas {
			changes = append(changes, step.At)
		}
	}
	width := p.Window.Length / bucketCount
	for i := range bucketCount {
		changes = append(changes, time.Duration(i)*width)
	}
	slices.Sort(changes)
	changes = slices.Compact(changes)
	for i, begin := range changes {
		end := p.Window.Length
		if i+1 < len(changes) {
			end = changes[i+1]
		}
		if end = min(end, length); end <= begin {
			continue
		}
		hours := (end - begin).Hours()
		nodes := at(spot, begin)
		items, total := p.itemsAt(begin)
		split, packed := splitOnSpot(items, float64(nodes)), packedOnSpot(items, nodes)
		saving := max(0, p.Node.OnDemandUSD-p.Node.SpotUSD)
		cost := (total*p.Node.OnDemandUSD - split*saving) * hours
		b.AllOnDemandPodHoursCost += total * p.Node.OnDemandUSD * hours
		b.PodHoursCost += cost
		b.PackedPodHoursCost += (total*p.Node.OnDemandUSD - packed*saving) * hours
		b.SpotUsedNodeHours += split * hours
		bucket := min(bucketCount-1, int(begin/max(width, 1)))
		at := (time.Duration(bucket) * width).Seconds()
		if n := len(b.Series); n == 0 || b.Series[n-1].Seconds != at {
			b.Series = append(b.Series, BoundPoint{Seconds: at})
		}
		b.Series[len(b.Series)-1].PodHoursCost += cost
	}
	return b
}

// itemsAt returns the replicas beyond the floors at a time, and the shares of all replicas.
func (p *Plan) itemsAt(when time.Duration) (items []item, total float64) {
	for _, s := range p.Services {
		desired := at(s.Replicas, when)
		larger := s.Share(p.Node)
		total += float64(desired) * larger
		items = append(items, item{
			count: desired - p.Floor.Of(desired), larger: larger,
			cpu:    float64(s.CPUMilli) / float64(p.Node.CPUMilli),
			memory: float64(s.MemoryMiB) / float64(p.Node.MemoryMiB), pods: 1 / float64(p.maxPods()),
		})
	}
	return items, total
}

// splitOnSpot returns an upper bound for the shares that fit on spot nodes. Replicas may be split.
// It is the smallest optimum of relaxations with one resource: the number of pods, or a weighted
// sum of CPU and memory. Each relaxation results in an upper bound.
func splitOnSpot(items []item, nodes float64) float64 {
	const steps = 64
	smallest := 0.0
	for step := range steps + 2 {
		weight := float64(step) / steps
		size := func(i item) float64 { return weight*i.cpu + (1-weight)*i.memory }
		if step > steps {
			size = func(i item) float64 { return i.pods }
		}
		sorted := slices.Clone(items)
		// Sort by larger/size, descending: the most valuable use of the resource is first.
		slices.SortStableFunc(sorted, func(a, b item) int { return cmp.Compare(b.larger*size(a), a.larger*size(b)) })
		room, value := nodes, 0.0
		for _, i := range sorted {
			fits := float64(i.count)
			if used := size(i); used > 0 {
				fits = min(fits, room/used)
				room -= fits * used
			}
			value += fits * i.larger
		}
		if step == 0 || value < smallest {
			smallest = value
		}
	}
	return smallest
}

// packedOnSpot returns the shares of whole replicas that first fit decreasing places on spot nodes.
func packedOnSpot(items []item, nodes int) float64 {
	const slack = 1e-9
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(b.larger, a.larger) })
	type free struct{ cpu, memory, pods float64 }
	room := make([]free, nodes)
	for i := range room {
		room[i] = free{1, 1, 1}
	}
	value := 0.0
	for _, i := range items {
		for range i.count {
			at := slices.IndexFunc(room, func(f free) bool {
				return f.cpu+slack >= i.cpu && f.memory+slack >= i.memory && f.pods+slack >= i.pods
			})
			if at < 0 {
				break
			}
			room[at].cpu -= i.cpu
			room[at].memory -= i.memory
			room[at].pods -= i.pods
			value += i.larger
		}
	}
	return value
}
