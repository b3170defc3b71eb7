package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// Gap divides the difference between the cost of an arm and the bound by its reasons, in US
// dollars. What is left is the packing: spot that the bound uses, because it may split replicas
// over nodes, and that no waiting replica fits.
type Gap struct {
	// Extra is the cost of pods beyond the desired replicas: a replacement that starts before its
	// pod ends, and pods that end. Missing is the cost of replicas that are not bound, below zero.
	// Both at the price of on-demand.
	Extra   float64 `json:"extra"`
	Missing float64 `json:"missing"`
	// Delay is the saving missed by replicas beyond the floor that run on on-demand although a spot
	// node has room, for up to returnDelay. Late is the same after that time.
	Delay float64 `json:"delay"`
	Late  float64 `json:"late"`
	// Floors is the saving by replicas on spot that the floor requires on on-demand, below zero.
	Floors float64 `json:"floors"`
}

// returnDelay is the time within which a controller with the shipped settings returns a replica to
// spot: pauseAfterInterruption (5 minutes) and calmPeriod (10 minutes).
const returnDelay = 15 * time.Minute

// addGap adds a time in which nothing changed.
func (r *Recorder) addGap(dt time.Duration) {
	price := r.plan.Node
	bound, onSpot := map[*tally]int{}, map[*tally]int{}
	for _, pod := range r.pods {
		t := r.services[pod.Service]
		switch r.nodes[pod.Node] {
		case lab.Spot:
			onSpot[t]++
			bound[t]++
		case lab.OnDemand:
			bound[t]++
		}
	}
	returnable := r.returnable()
	for _, t := range r.order {
		cost := t.Share(price) * dt.Hours()
		saving := t.Share(price) * (price.OnDemandUSD - price.SpotUSD)
		r.gap.Floors -= float64(max(0, onSpot[t]-(t.desired-r.plan.Floor.Of(t.desired)))) * saving * dt.Hours()
		r.gap.Extra += float64(max(0, bound[t]-t.desired)) * cost * price.OnDemandUSD
		r.gap.Missing += float64(min(0, bound[t]-t.desired)) * cost * price.OnDemandUSD
		if returnable[t] == 0 {
			t.returnableFor = 0
			continue
		}
		early := min(dt, max(0, returnDelay-t.returnableFor))
		t.returnableFor += dt
		r.gap.Delay += float64(returnable[t]) * saving * early.Hours()
		r.gap.Late += float64(returnable[t]) * saving * (dt - early).Hours()
	}
}

// returnable returns how many replicas beyond the floor of each service run on on-demand although
// spot nodes without notice have room for them. It fills the room with the largest replicas first.
func (r *Recorder) returnable() map[*tally]int {
	free, onDemand := map[string]*room{}, map[*tally]int{}
	for _, node := range r.plan.Nodes {
		if r.nodes[node.Name] != "" && r.now < node.Notice {
			empty := r.plan.newRoom()
			free[node.Name] = &empty
		}
	}
	for _, pod := range r.pods {
		t := r.services[pod.Service]
		if room := free[pod.Node]; room != nil {
			room.use(t.CPUMilli, t.MemoryMiB)
		} else if r.nodes[pod.Node] == lab.OnDemand && !pod.Released {
			onDemand[t]++
		}
	}
	names := sortedKeys(free)
	fitting := map[*tally]int{}
	for _, t := range slices.SortedStableFunc(slices.Values(r.order), func(a, b *tally) int {
		return cmp.Compare(b.Share(r.plan.Node), a.Share(r.plan.Node))
	}) {
		for range onDemand[t] - r.plan.Floor.Of(t.desired) {
			at := slices.IndexFunc(names, func(name string) bool { return free[name].fits(t.CPUMilli, t.MemoryMiB) })
			if at < 0 {
				break
			}
			free[names[at]].use(t.CPUMilli, t.MemoryMiB)
			fitting[t]++
		}
	}
	return fitting
}

// gapPart is one reason for the cost above the bound.
type gapPart struct {
	reason string
	usd    float64
}

// gapParts returns the reasons for the cost of an arm above the bound. Their sum is the difference.
// A partial arm, which covers another time than the bound, has none, and neither has an arm without
// spot.
func (r *Report) gapParts(a ArmResult) []gapPart {
	isOnDemand := func(arm Arm) bool { return arm.Name == a.Name && !arm.Spot }
	if a.Partial || r.Bound.PodHoursCost == 0 || slices.ContainsFunc(Arms, isOnDemand) {
		return nil
	}
	g := a.Gap
	parts := []gapPart{
		{"replaced first", g.Extra}, {"waiting pods", g.Missing}, {"return within 15 min", g.Delay}, {"no return", g.Late}, {"floor on spot",
			g.Floors},
	}
	rest := gapPart{"packing", a.PodHoursCost - r.Bound.PodHoursCost}
	for _, part := range parts {
		rest.usd -= part.usd
	}
	return append(parts, rest)
}

// acceptedGap is the share above the bound from which the report names the main reason.
const acceptedGap = 0.05

// mainReason returns the part that costs most of an arm's gap; nil if the arm costs at most
// acceptedGap above the bound.
func (r *Report) mainReason(a ArmResult) *gapPart {
	parts := r.gapParts(a)
	if len(parts) == 0 || a.PodHoursCost <= (1+acceptedGap)*r.Bound.PodHoursCost {
		return nil
	}
	most := slices.MaxFunc(parts, func(x, y gapPart) int { return cmp.Compare(x.usd, y.usd) })
	return &most
}
