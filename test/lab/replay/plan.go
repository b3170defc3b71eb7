package replay

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Settings are the parameters of a replay that every arm shares.
type Settings struct {
	// Seed selects the services, the window if From is negative, and the reclaimed nodes.
	Seed uint64
	// From is the start of the window in the trace. Negative: the seed selects it, if possible such
	// that all pools are recorded in the window.
	From time.Duration
	// Length is the largest duration of the window, which ends with the trace at the latest. Zero:
	// to the end of the trace.
	Length time.Duration
	// Notice is the time from the notice to the removal of a node. Zero: nodes vanish without
	// notice.
	Notice time.Duration
	// Startup is the time from the binding of a pod to its readiness.
	Startup time.Duration
	// Provisioning is the time from the request for a node until it is Ready.
	Provisioning time.Duration
	// EmptyAfter is the time after which an empty on-demand node is removed.
	EmptyAfter time.Duration
	// VMsPerNode is the number of recorded VMs that one node represents, at least 1. Fractions are
	// rounded up.
	VMsPerNode int
	// InstanceType is the type of all nodes.
	InstanceType string
	// Services is the largest number of services, and Pods the largest number of pods.
	Services, Pods int
	// Demand is the requested share of the largest spot capacity in the window, with all services
	// at their largest number of replicas.
	Demand float64
	// Floor is the value of the annotation min-on-demand of all services, and Budget the value of
	// minAvailable of their PodDisruptionBudgets: a count or a percentage.
	Floor, Budget string
}

// Plan is what every arm replays.
type Plan struct {
	Settings Settings
	Dataset  string
	Window   Window
	// Node is the shape and price of all nodes.
	Node Price
	// Zones are the zones of the spot pools, sorted by the names of the pools. Each pool is a zone.
	Zones []string
	// Nodes are the spot nodes, sorted by Up, then by name.
	Nodes []SpotNode
	// Services are sorted by name.
	Services []Service
	// Divisor is the number by which the recorded CPU and memory of replicas were divided.
	Divisor float64
	// Floor and Budget are the decoded settings.
	Floor, Budget Amount
}

// SpotNode is a spot node of the plan.
type SpotNode struct {
	Name, Zone string
	// Up is when the node becomes Ready; 0 for the nodes at the start of the window.
	Up time.Duration
	// Down is when the node vanishes; the length of the window or later if it does not.
	Down time.Duration
	// Notice is when the notice of the removal is given. It equals Down without notice, and is
	// never before Up.
	Notice time.Duration
}

// Service is a service of the plan.
type Service struct {
	Name      string
	CPUMilli  int64 // per replica, scaled
	MemoryMiB int64 // per replica, scaled
	// Replicas are the desired replicas, from 0.
	Replicas []Step
}

// bucketCount is the number of parts of the window for which costs and plots are computed.
const bucketCount = 288

// never is after every window.
const never = time.Duration(math.MaxInt64)

// NewPlan computes the plan from the inputs. The same inputs and settings result in the same plan.
func NewPlan(in Inputs, s Settings) (*Plan, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	p := &Plan{Settings: s, Dataset: in.Capacity.Dataset}
	var err error
	if p.Floor, err = ParseAmount(s.Floor); err != nil {
		return nil, fmt.Errorf("--floor: %w", err)
	}
	if p.Budget, err = ParseAmount(s.Budget); err != nil {
		return nil, fmt.Errorf("--budget: %w", err)
	}
	if p.Window, err = s.window(in.Capacity); err != nil {
		return nil, err
	}
	if err := s.checkNodes(in.Capacity); err != nil {
		return nil, err
	}
	price, ok := in.Prices[s.InstanceType]
	if !ok {
		return nil, fmt.Errorf("--instance-type: %q: not in the file of prices", s.InstanceType)
	}
	if price.incomplete != nil {
		return nil, price.incomplete
	}
	if price.SpotUSD > price.OnDemandUSD {
		return nil, fmt.Errorf("--instance-type: %q: spot costs %g and on-demand %g per hour: expected a lower price of spot", s.InstanceType,
			price.SpotUSD, price.OnDemandUSD)
	}
	p.Node = price
	for _, pool := range in.Capacity.Pools {
		steps := window(pool.nodeSteps(s.VMsPerNode), p.Window)
		zone := objectName(pool.Name)
		if slices.Contains(p.Zones, zone) {
			return nil, fmt.Errorf("two pools of dataset %q have the zone name %q", p.Dataset, zone)
		}
		p.Zones = append(p.Zones, zone)
		p.Nodes = append(p.Nodes, poolNodes(zone, steps, s, p.Window.Length)...)
	}
	slices.SortFunc(p.Nodes, func(a, b SpotNode) int {
		return cmp.Or(cmp.Compare(a.Up, b.Up), cmp.Compare(a.Name, b.Name))
	})
	most := 0
	for _, s := range p.SpotCount() {
		most = max(most, s.Count)
	}
	if most == 0 {
		return nil, fmt.Errorf("dataset %q has no spot capacity from %s for %s: choose another --from or --hours", p.Dataset, p.Window.From,
			p.Window.Length)
	}
	return p, p.selectServices(in.Services, most)
}

func (s Settings) validate() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"hours", s.Length}, {"notice", s.Notice}, {"startup", s.Startup}, {"provisioning", s.Provisioning}, {"empty-after", s.EmptyAfter}} {
		if d.value < 0 || d.value > maxOffset {
			return fmt.Errorf("--%s: %s: must be between 0 and 100 years", d.flag, d.value)
		}
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"vms-per-node", s.VMsPerNode}, {"services-limit", s.Services}, {"pods-limit", s.Pods}} {
		if n.value < 1 || n.value > maxNumber {
			return fmt.Errorf("--%s: %d: must be between 1 and %d", n.flag, n.value, maxNumber)
		}
	}
	if !(s.Demand > 0 && s.Demand <= 10) {
		return fmt.Errorf("--demand: %g: must be above 0 and at most 10", s.Demand)
	}
	return nil
}

// window returns the window in the trace.
func (s Settings) window(c Capacity) (Window, error) {
	begin, end := c.Span()
	w := Window{From: s.From, Length: s.Length}
	if w.From < 0 {
		// Prefer a window in which every pool was recorded: otherwise a pool has no capacity before
		// its recording, and its last capacity after it.
		first, last := c.Common()
		if last-first < w.Length {
			first, last = begin, end
		}
		if room := last - first - w.Length; w.Length == 0 || room < 0 {
			w.From = begin
		} else {
			// Whole hours after the first possible begin are enough choices.
			w.From = first + time.Duration(stream(s.Seed, "window").Int64N(int64(room/time.Hour)+1))*time.Hour
		}
	}
	if w.Length == 0 {
		w.Length = end - w.From
	}
	if w.From < begin || w.From >= end {
		return w, fmt.Errorf("--from: %s: dataset %q lasts from %s to %s", w.From, c.Dataset, begin, end)
	}
	w.Length = min(w.Length, end-w.From) // the report states the length
	return w, nil
}

// maxNodes is the largest number of spot nodes of a pool: a control plane on one machine cannot run
// more nodes at a useful speed.
const maxNodes = 5000

// checkNodes returns an error if a pool would have too many nodes.
func (s Settings) checkNodes(c Capacity) error {
	for _, pool := range c.Pools {
		for _, step := range pool.nodeSteps(s.VMsPerNode) {
			if step.Count > maxNodes {
				return fmt.Errorf("--vms-per-node: %d: pool %q has %d nodes at %gs of dataset %q, at most %d: increase it",
					s.VMsPerNode, pool.Name, step.Count, step.At.Seconds(), c.Dataset, maxNodes)
			}
		}
	}
	return nil
}

// recordingGaps describes the parts of the window for which nothing was recorded.
func (p *Plan) recordingGaps(in Inputs) []string {
	var gaps []string
	begin, end := p.Window.From, p.Window.From+p.Window.Length
	for _, pool := range in.Capacity.Pools {
		first, last := pool.Steps[0].At, pool.End
		if begin < first || end > last {
			gaps = append(gaps, fmt.Sprintf("Pool %s was recorded from %s to %s only. Its capacity counts as 0 before, and does not change after.",
				pool.Name, first, last))
		}
	}
	if !slices.ContainsFunc(p.Services, func(s Service) bool { return len(s.Replicas) > 1 }) {
		gaps = append(gaps, "No service is scaled in this window.")
	}
	return gaps
}

// stream returns the random numbers for one purpose. Purposes do not influence each other.
func stream(seed uint64, purpose string) *rand.Rand {
	hash := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(purpose) {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, hash))
}

// nodeSteps returns the number of nodes of the pool over time.
func (t PoolTrace) nodeSteps(vmsPerNode int) []Step {
	steps := make([]Step, len(t.Steps))
	for i, s := range t.Steps {
		steps[i] = Step{At: s.At, Count: (s.Count + vmsPerNode - 1) / vmsPerNode}
	}
	return steps
}

// poolNodes returns the nodes of a pool. A rise of the capacity starts nodes, and a drop removes
// nodes that the seed selects. A node that is removed before it has started never exists.
func poolNodes(zone string, steps []Step, s Settings, length time.Duration) []SpotNode {
	random := stream(s.Seed, "pool "+zone)
	var held, nodes []SpotNode
	created := 0
	for i, step := range steps {
		for len(held) < step.Count {
			created++
			node := SpotNode{Name: fmt.Sprintf("spot-%s-%d", zone, created), Zone: zone, Down: never, Notice: never}
			if i > 0 {
				node.Up = step.At + s.Provisioning
			}
			held = append(held, node)
		}
		for len(held) > step.Count {
			victim := random.IntN(len(held))
			node := held[victim]
			held = slices.Delete(held, victim, victim+1)
			node.Down = step.At
			node.Notice = max(node.Up, step.At-s.Notice)
			if node.Up < node.Down {
				nodes = append(nodes, node)
			}
		}
	}
	for _, node := range held {
		if node.Up < length {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// SpotCount returns the number of spot nodes over time, from 0.
func (p *Plan) SpotCount() []Step {
	changes := map[time.Duration]int{0: 0}
	for _, node := range p.Nodes {
		changes[node.Up]++
		if node.Down < p.Window.Length {
			changes[node.Down]--
		}
	}
	var steps []Step
	for at, change := range changes {
		steps = append(steps, Step{At: at, Count: change})
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	for i := 1; i < len(steps); i++ {
		steps[i].Count += steps[i-1].Count
	}
	return steps
}

// Kind is the kind of an event of the timeline.
type Kind int

// The kinds, in the order in which events at the same time are applied: the cloud first removes
// what it no longer has.
const (
	NodeDown Kind = iota
	NodeUp
	NodeNotice
	Scale
)

// Event is a change that the driver applies to the cluster.
type Event struct {
	At   time.Duration
	Kind Kind
	// Node is the subject of all kinds except Scale.
	Node SpotNode
	// Service is the subject of Scale, and Replicas its desired replicas.
	Service  string
	Replicas int
}

// Timeline returns the events after the start of the window, in the order in which they are
// applied. Without spot it contains only replica changes.
func (p *Plan) Timeline(spot bool) []Event {
	var events []Event
	add := func(e Event) {
		if e.At < p.Window.Length {
			events = append(events, e)
		}
	}
	if spot {
		for _, node := range p.Nodes {
			if node.Up > 0 {
				add(Event{At: node.Up, Kind: NodeUp, Node: node})
			}
			if node.Notice < node.Down {
				add(Event{At: node.Notice, Kind: NodeNotice, Node: node})
			}
			add(Event{At: node.Down, Kind: NodeDown, Node: node})
		}
	}
	for _, s := range p.Services {
		for _, step := range s.Replicas[1:] {
			add(Event{At: step.At, Kind: Scale, Service: s.Name, Replicas: step.Count})
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Node.Name, b.Node.Name),
			cmp.Compare(a.Service, b.Service))
	})
	return events
}

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
