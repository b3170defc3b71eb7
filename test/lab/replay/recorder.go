package replay

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// PodState is a pod as the API server reports it.
type PodState struct {
	UID, Service string
	// Node is empty while the pod is not bound.
	Node  string
	Ready bool
	// Evicted reports that the eviction API removes the pod, and Deleted that the controller
	// deletes it at a deadline.
	Evicted, Deleted bool
	// Released reports that the controller has released the pod to replace it first.
	Released bool
}

// Recorder computes the result of an arm from the events of watches. Times are times of the trace.
// A time before the previous one counts as the previous one. A Recorder is safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	plan    *Plan
	now     time.Duration
	started bool

	nodes map[string]string // capacity type of each node
	// spotNames contains the spot nodes of the plan, also after they have vanished.
	spotNames map[string]bool
	pods      map[string]PodState
	services  map[string]*tally
	order     []*tally // services by name
	nodeHours nodeHours
	buckets   []bucket
	gap       Gap
}

// nodeHours are the node-hours of each capacity type, idle nodes included.
type nodeHours struct{ spot, onDemand float64 }

// measured contains the measurements of a service, or the totals of all services.
type measured struct {
	spotShares, onDemandShares   float64 // node-hours of the pods' requests
	pending                      time.Duration
	desiredSeconds, readySeconds float64
	outages                      int
	outage, longestOutage        time.Duration
	belowFloor, belowBudget      time.Duration
	exposed, longestExposed      time.Duration
	largestLoss                  int

	evictions, surges, deletions, lost int // pods
}

// add adds the measurements of a service to totals.
func (m *measured) add(s measured) {
	m.spotShares += s.spotShares
	m.onDemandShares += s.onDemandShares
	m.pending += s.pending
	m.desiredSeconds += s.desiredSeconds
	m.readySeconds += s.readySeconds
	m.outages += s.outages
	m.outage += s.outage
	m.longestOutage = max(m.longestOutage, s.longestOutage)
	m.belowFloor += s.belowFloor
	m.belowBudget += s.belowBudget
	m.exposed += s.exposed
	m.longestExposed = max(m.longestExposed, s.longestExposed)
	m.largestLoss = max(m.largestLoss, s.largestLoss)
	m.evictions += s.evictions
	m.surges += s.surges
	m.deletions += s.deletions
	m.lost += s.lost
}

// figures returns the measurements with their costs on nodes of this price.
func (m *measured) figures(node Price) Figures {
	return Figures{
		PodHoursCost: podUSD(m.spotShares, m.onDemandShares, node), SpotShare: share(m.spotShares, m.onDemandShares),
		ReadyShare: ratio(m.readySeconds, m.desiredSeconds),
		Outages:    m.outages, OutageSeconds: m.outage.Seconds(), LongestOutageSeconds: m.longestOutage.Seconds(),
		BelowFloorSeconds: m.belowFloor.Seconds(), BelowBudgetSeconds: m.belowBudget.Seconds(),
		ExposedSeconds: m.exposed.Seconds(), LongestExposedSeconds: m.longestExposed.Seconds(),
		LargestLoss: m.largestLoss, Evictions: m.evictions, Moves: m.evictions + m.deletions, Surges: m.surges,
		DeletedAtDeadline: m.deletions, LostPods: m.lost, PendingSeconds: m.pending.Seconds(),
	}
}

// podUSD returns the cost of shares of nodes.
func podUSD(spotShares, onDemandShares float64, node Price) float64 {
	return spotShares*node.SpotUSD + onDemandShares*node.OnDemandUSD
}

// tally is the state of a service and its measurements.
type tally struct {
	Service
	measured
	desired int
	// reached is the number of replicas that must stay available: the highest number of ready
	// replicas since the service had its current scale. So a scale-up is no outage.
	reached               int
	ready, readySpot      int
	outageFor, exposedFor time.Duration
	recentLosses          []time.Duration
	// returnableFor is the time for which a replica could have run on spot instead of on-demand.
	returnableFor time.Duration
}

// bucket is a part of the window for plots.
type bucket struct {
	desired, lowestReady    float64 // sums over services
	spotNodes, spotUsed     float64 // node-seconds
	podUSD                  float64
	desiredTime, lengthTime float64
	touched                 bool
}

// lossWindow is the time within which the losses of a service count as simultaneous.
const lossWindow = 10 * time.Second

// NewRecorder returns a recorder that measures nothing before Start.
func NewRecorder(p *Plan) *Recorder {
	r := &Recorder{
		plan: p, nodes: map[string]string{}, spotNames: map[string]bool{}, pods: map[string]PodState{},
		services: map[string]*tally{}, buckets: make([]bucket, bucketCount),
	}
	for _, node := range p.Nodes {
		r.spotNames[node.Name] = true
	}
	for _, s := range p.Services {
		t := &tally{Service: s, desired: s.Desired()}
		r.services[s.Name] = t
		r.order = append(r.order, t)
	}
	return r
}

// Start begins the measurement at the start of the window, with the current pods and nodes.
func (r *Recorder) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.now = true, 0
	for _, t := range r.order {
		t.measured, t.recentLosses = measured{}, nil
		t.reached = min(t.ready, t.desired)
	}
}

// Node records that a node exists with a capacity type, or that it does not with "".
func (r *Recorder) Node(at time.Duration, name, capacity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(at)
	if capacity == "" {
		delete(r.nodes, name)
	} else {
		r.nodes[name] = capacity
	}
}

// Scale records the desired replicas of a service.
func (r *Recorder) Scale(at time.Duration, service string, replicas int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(at)
	if t := r.services[service]; t != nil {
		t.desired = replicas
		t.reached = min(max(t.reached, t.ready), replicas)
	}
}

// Pod records a new or changed pod. Pods of unknown services are ignored.
func (r *Recorder) Pod(at time.Duration, pod PodState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(at)
	t := r.services[pod.Service]
	if t == nil {
		return
	}
	before := r.pods[pod.UID]
	r.pods[pod.UID] = pod
	if before.Ready != pod.Ready {
		r.setReady(t, pod, pod.Ready)
	}
}

// PodGone records that a pod no longer exists. lost reports that it ran on a node that vanished.
func (r *Recorder) PodGone(at time.Duration, uid string, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(at)
	pod, ok := r.pods[uid]
	if !ok {
		return
	}
	delete(r.pods, uid)
	t := r.services[pod.Service]
	switch {
	case pod.Evicted:
		t.evictions++
		if pod.Released {
			t.surges++
		}
	case pod.Deleted:
		t.deletions++
	case lost:
		t.lost++
	}
	if pod.Ready {
		r.setReady(t, pod, false)
	}
}

// setReady changes the number of ready replicas of a service.
func (r *Recorder) setReady(t *tally, pod PodState, ready bool) {
	change := 1
	if !ready {
		change = -1
	}
	t.ready += change
	if r.spotNames[pod.Node] {
		t.readySpot += change
	}
	t.reached = max(t.reached, min(t.ready, t.desired))
	if ready || !r.started {
		return
	}
	t.recentLosses = slices.DeleteFunc(t.recentLosses, func(at time.Duration) bool { return r.now-at > lossWindow })
	if t.ready < t.desired { // otherwise a scale-down or a replaced pod
		t.recentLosses = append(t.recentLosses, r.now)
		t.largestLoss = max(t.largestLoss, len(t.recentLosses))
	}
	if t.ready == 0 && t.reached > 0 {
		t.outages++
	}
}

// advance adds the time since the last event to all integrals.
func (r *Recorder) advance(to time.Duration) {
	to = min(to, r.plan.Window.Length)
	if !r.started || to <= r.now {
		return
	}
	from := r.now
	dt := to - from
	hours := dt.Hours()
	var spotShares, onDemandShares float64
	for _, pod := range r.pods {
		t := r.services[pod.Service]
		share := t.Share(r.plan.Node)
		switch {
		case pod.Node == "":
			t.pending += dt
		case r.nodes[pod.Node] == lab.Spot:
			spotShares += share
			t.spotShares += share * hours
		case r.nodes[pod.Node] != "":
			onDemandShares += share
			t.onDemandShares += share * hours
		}
	}
	var spotNodes, onDemandNodes float64
	for _, capacity := range r.nodes {
		if capacity == lab.Spot {
			spotNodes++
		} else {
			onDemandNodes++
		}
	}
	r.nodeHours.spot += spotNodes * hours
	r.nodeHours.onDemand += onDemandNodes * hours
	r.addGap(dt)
	desired, ready := 0.0, 0.0
	for _, t := range r.order {
		t.advance(dt, r.plan)
		desired += float64(t.desired)
		ready += float64(min(t.ready, t.desired))
	}
	r.now = to
	r.fill(from, to, bucket{
		desired: desired, lowestReady: ready, spotNodes: spotNodes, spotUsed: spotShares,
		podUSD: podUSD(spotShares, onDemandShares, r.plan.Node),
	})
}

// fill adds rates to the buckets from a time to another.
func (r *Recorder) fill(from, to time.Duration, rates bucket) {
	width := r.plan.Window.Length / bucketCount
	for i := max(0, int(from/max(width, 1))); i < len(r.buckets); i++ {
		begin, end := time.Duration(i)*width, time.Duration(i+1)*width
		if i == len(r.buckets)-1 {
			end = r.plan.Window.Length
		}
		if begin >= to {
			return
		}
		part := (min(end, to) - max(begin, from)).Seconds()
		if part <= 0 {
			continue
		}
		b := &r.buckets[i]
		if !b.touched || rates.lowestReady < b.lowestReady {
			b.lowestReady = rates.lowestReady
		}
		b.touched = true
		b.desiredTime += rates.desired * part
		b.spotNodes += rates.spotNodes * part
		b.spotUsed += rates.spotUsed * part
		b.podUSD += rates.podUSD * part / 3600
		b.lengthTime += part
	}
}

// advance adds a time in which nothing changed.
func (t *tally) advance(dt time.Duration, p *Plan) {
	t.desiredSeconds += float64(t.desired) * dt.Seconds()
	t.readySeconds += float64(min(t.ready, t.desired)) * dt.Seconds()
	if t.ready == 0 && t.reached > 0 {
		t.outage += dt
		t.outageFor += dt
		t.longestOutage = max(t.longestOutage, t.outageFor)
	} else {
		t.outageFor = 0
	}
	if t.ready < p.Floor.Of(t.reached) {
		t.belowFloor += dt
	}
	if t.ready < p.Budget.Of(t.reached) {
		t.belowBudget += dt
	}
	if t.readySpot > 0 && t.ready-t.readySpot < p.Floor.Of(t.reached) {
		t.exposed += dt
		t.exposedFor += dt
		t.longestExposed = max(t.longestExposed, t.exposedFor)
	} else {
		t.exposedFor = 0
	}
}

// Current are the current figures for the progress.
type Current struct {
	Desired, Ready int
	Figures
}

// Current returns the current figures.
func (r *Recorder) Current() Current {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Current{Figures: r.totals()}
	for _, t := range r.order {
		c.Desired += t.desired
		c.Ready += min(t.ready, t.desired)
	}
	return c
}

// totals returns the figures of all services together.
func (r *Recorder) totals() Figures {
	var all measured
	for _, t := range r.order {
		all.add(t.measured)
	}
	return all.figures(r.plan.Node)
}

func share(part, rest float64) float64 {
	if part+rest == 0 {
		return 0
	}
	return part / (part + rest)
}

// Result ends the measurement at a time, and returns its result. Only the part of the window before
// that time is measured.
func (r *Recorder) Result(at time.Duration) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(at)
	price := r.plan.Node
	result := Result{
		Figures: r.totals(), MeasuredSeconds: r.now.Seconds(), Gap: r.gap,
		NodeHoursCost: podUSD(r.nodeHours.spot, r.nodeHours.onDemand, price),
		SpotNodeHours: r.nodeHours.spot, OnDemandNodeHours: r.nodeHours.onDemand,
	}
	for _, t := range r.order {
		result.SpotUsedNodeHours += t.spotShares
		result.Services = append(result.Services, ServiceResult{Name: t.Name, Figures: t.figures(price)})
	}
	slices.SortStableFunc(result.Services, func(a, b ServiceResult) int {
		return cmp.Or(cmp.Compare(b.OutageSeconds, a.OutageSeconds), cmp.Compare(a.Name, b.Name))
	})
	for i, b := range r.buckets {
		if !b.touched {
			continue
		}
		result.Series = append(result.Series, Point{
			Seconds: (time.Duration(i) * (r.plan.Window.Length / bucketCount)).Seconds(),
			Desired: ratio(b.desiredTime, b.lengthTime), LowestReady: b.lowestReady,
			SpotNodes: ratio(b.spotNodes, b.lengthTime), SpotUsed: ratio(b.spotUsed, b.lengthTime), PodHoursCost: b.podUSD,
		})
	}
	return result
}

// ratio returns a quotient; 1 if both are 0.
func ratio(part, of float64) float64 {
	if of == 0 {
		return 1
	}
	return part / of
}
