package replay

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// world returns inputs with two pools and three services, and settings for a window of two hours.
func world() (Inputs, Settings) {
	in := Inputs{
		Capacity: Capacity{Dataset: "d", Pools: []PoolTrace{
			{Name: "a", End: 2 * time.Hour, Steps: []Step{{Count: 3}, {At: time.Hour, Count: 0}, {At: 90 * time.Minute, Count: 2}}},
			{Name: "b", End: 2 * time.Hour, Steps: []Step{{At: 30 * time.Minute, Count: 2}, {At: time.Hour, Count: 1}}},
		}},
		Prices: map[string]Price{"m": {CPUMilli: 4000, MemoryMiB: 16000, MaxPods: 58, OnDemandUSD: 1, SpotUSD: 0.25}},
		Services: []ServiceTrace{
			{Name: "x", Max: 4, CPUMilli: 10000, MemoryMiB: 40000, Replicas: []Step{{Count: 3}, {At: time.Hour, Count: 4}}},
			{Name: "y", Max: 2, CPUMilli: 10000, MemoryMiB: 40000, Replicas: []Step{{Count: 2}}},
			{Name: "z", Max: 1, CPUMilli: 10000, MemoryMiB: 40000, Replicas: []Step{{Count: 1}}},
		},
	}
	return in, Settings{
		Seed: 1, Length: 2 * time.Hour, Notice: 2 * time.Minute, Startup: 5 * time.Second, Provisioning: time.Minute, EmptyAfter: 10 * time.Minute,
		VMsPerNode: 1, InstanceType: "m", Services: 10, Pods: 100, Demand: 0.5, Floor: "1", Budget: "50%",
	}
}

// newPlan returns the plan of the world, with changed settings.
func newPlan(t *testing.T, change func(*Inputs, *Settings)) *Plan {
	t.Helper()
	in, s := world()
	if change != nil {
		change(&in, &s)
	}
	p, err := NewPlan(in, s)
	must(t, err)
	return p
}

func TestNodes(t *testing.T) {
	p := newPlan(t, nil)
	type times struct{ Up, Notice, Down time.Duration }
	got := map[string]times{}
	for _, n := range p.Nodes {
		got[n.Name] = times{n.Up, n.Notice, n.Down}
	}
	initial := times{0, 58 * time.Minute, time.Hour}
	want := map[string]times{
		"spot-a-1": initial, "spot-a-2": initial, "spot-a-3": initial,
		"spot-a-4": {91 * time.Minute, never, never}, "spot-a-5": {91 * time.Minute, never, never},
		"spot-b-1": {31 * time.Minute, never, never}, "spot-b-2": {31 * time.Minute, never, never},
	}
	// The seed selects one of the nodes of pool b.
	victims := 0
	for _, name := range []string{"spot-b-1", "spot-b-2"} {
		if got[name].Down == time.Hour {
			victims++
			want[name] = times{31 * time.Minute, 58 * time.Minute, time.Hour}
		}
	}
	if victims != 1 {
		t.Errorf("%d nodes of pool b are removed, want 1", victims)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Step{{0, 3}, {31 * time.Minute, 5}, {time.Hour, 1}, {91 * time.Minute, 3}}, p.SpotCount()); diff != "" {
		t.Errorf("spot nodes (-want +got):\n%s", diff)
	}
}

// TestWindowWithAllPools: the seed selects a window in which every pool was recorded, if there is
// one.
func TestWindowWithAllPools(t *testing.T) {
	steps := func(first time.Duration) []Step { return []Step{{At: first, Count: 1}} }
	c := Capacity{Dataset: "d", Pools: []PoolTrace{
		{Name: "a", Steps: steps(0), End: 100 * time.Hour}, {Name: "b", Steps: steps(70 * time.Hour), End: 200 * time.Hour},
	}}
	for seed := range uint64(50) {
		w, err := Settings{Seed: seed, From: -1, Length: 24 * time.Hour}.window(c)
		if err != nil || w.From < 70*time.Hour || w.From > 76*time.Hour {
			t.Errorf("seed %d: from %s, %v; want 70 to 76 h", seed, w.From, err)
		}
		w, err = Settings{Seed: seed, From: -1, Length: 48 * time.Hour}.window(c)
		if err != nil || w.From < 0 || w.From > 152*time.Hour {
			t.Errorf("seed %d: from %s, %v; want 0 to 152 h", seed, w.From, err)
		}
	}
	if w, err := (Settings{From: time.Hour, Length: 24 * time.Hour}).window(c); err != nil || w.From != time.Hour {
		t.Errorf("from %s, %v; want the explicit begin", w.From, err)
	}
}

func TestNoticeIsWithinTheLifeOfANode(t *testing.T) {
	p := newPlan(t, func(_ *Inputs, s *Settings) { s.Notice = 5 * time.Hour })
	for _, n := range p.Nodes {
		if n.Notice < n.Up || n.Notice > n.Down {
			t.Errorf("node %s: notice at %s, up from %s to %s", n.Name, n.Notice, n.Up, n.Down)
		}
	}
	p = newPlan(t, func(_ *Inputs, s *Settings) { s.Notice = 0 })
	for _, e := range p.Timeline(true) {
		if e.Kind == NodeNotice {
			t.Errorf("notice of %s although there is none", e.Node.Name)
		}
	}
}

// TestSeed compares plans: the same seed results in the same plan, and another seed in other
// victims.
func TestSeed(t *testing.T) {
	in, err := ReadInputs(Files{}, SampleDataset)
	must(t, err)
	_, s := world()
	s.InstanceType, s.Length, s.From = SampleInstanceType, 12*time.Hour, -1
	make := func(seed uint64) *Plan {
		s.Seed = seed
		p, err := NewPlan(in, s)
		must(t, err)
		return p
	}
	first := make(1)
	if diff := cmp.Diff(first, make(1), cmp.AllowUnexported(Amount{}, Price{})); diff != "" {
		t.Errorf("the same seed differs:\n%s", diff)
	}
	windows, victims := map[time.Duration]bool{}, map[string]bool{}
	for seed := range uint64(8) {
		p := make(seed)
		windows[p.Window.From] = true
		if p.Window.From+p.Window.Length > 24*time.Hour {
			t.Errorf("seed %d: the window is %+v", seed, p.Window)
		}
		s.From = 0
		names := ""
		for _, e := range make(seed).Timeline(true) {
			if e.Kind == NodeDown {
				names += e.Node.Name + " "
			}
		}
		victims[names] = true
		s.From = -1
	}
	if len(windows) < 3 || len(victims) < 3 {
		t.Errorf("8 seeds: %d windows, %d sequences of victims", len(windows), len(victims))
	}
}

func TestTimeline(t *testing.T) {
	p := newPlan(t, nil)
	events := p.Timeline(true)
	if !slices.IsSortedFunc(events, func(a, b Event) int { return int(a.At - b.At) }) {
		t.Error("the timeline is not sorted")
	}
	counts := map[Kind]int{}
	up := map[string]bool{}
	for _, n := range p.Nodes {
		up[n.Name] = n.Up == 0
	}
	for _, e := range events {
		counts[e.Kind]++
		switch e.Kind {
		case NodeUp:
			up[e.Node.Name] = true
		case NodeNotice, NodeDown:
			if !up[e.Node.Name] {
				t.Errorf("at %s: an event of node %s, which does not exist", e.At, e.Node.Name)
			}
			up[e.Node.Name] = e.Kind != NodeDown
		}
	}
	if diff := cmp.Diff(map[Kind]int{NodeUp: 4, NodeNotice: 4, NodeDown: 4, Scale: 1}, counts); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, e := range p.Timeline(false) {
		if e.Kind != Scale {
			t.Errorf("without spot: event %+v", e)
		}
	}
}

func TestServicesAreScaled(t *testing.T) {
	p := newPlan(t, nil)
	// At most 7 replicas share half of at most 5 nodes.
	if got := p.Services[0].Share(p.Node) * 7; got < 2.499 || got > 2.501 {
		t.Errorf("all replicas request %.4f nodes, want 2.5", got)
	}
	if diff := cmp.Diff([]Step{{0, 3}, {time.Hour, 4}}, p.Services[0].Replicas); diff != "" {
		t.Errorf("replicas of x (-want +got):\n%s", diff)
	}
	later := newPlan(t, func(_ *Inputs, s *Settings) { s.From, s.Length = 30*time.Minute, time.Hour })
	if diff := cmp.Diff([]Step{{0, 3}, {30 * time.Minute, 4}}, later.Services[0].Replicas); diff != "" {
		t.Errorf("replicas in a later window (-want +got):\n%s", diff)
	}
	few := newPlan(t, func(_ *Inputs, s *Settings) { s.Pods = 30 })
	for _, s := range few.Services {
		if s.Name == "svc-x" {
			t.Error("a service with more than a tenth of all pods is selected")
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Inputs, *Settings)
		want   string
	}{
		"before the trace":   {func(_ *Inputs, s *Settings) { s.From = 3 * time.Hour }, "--from"},
		"unknown type":       {func(_ *Inputs, s *Settings) { s.InstanceType = "q" }, "--instance-type"},
		"negative notice":    {func(_ *Inputs, s *Settings) { s.Notice = -1 }, "--notice"},
		"floor":              {func(_ *Inputs, s *Settings) { s.Floor = "x" }, "--floor"},
		"budget above 100 %": {func(_ *Inputs, s *Settings) { s.Budget = "101%" }, "--budget"},
		"no VMs":             {func(_ *Inputs, s *Settings) { s.VMsPerNode = 0 }, "--vms-per-node"},
		"no demand":          {func(_ *Inputs, s *Settings) { s.Demand = 0 }, "--demand"},
		"large replicas":     {func(_ *Inputs, s *Settings) { s.Demand = 10 }, "--demand"},
		"no service fits":    {func(in *Inputs, s *Settings) { in.Services = in.Services[:1]; s.Pods = 2 }, "no service fits"},
		"no capacity at all": {func(in *Inputs, _ *Settings) {
			in.Capacity.Pools = in.Capacity.Pools[:1]
			in.Capacity.Pools[0].Steps = []Step{{}}
		}, "no spot capacity"},
		"price without value": {func(in *Inputs, _ *Settings) {
			in.Prices["m"] = Price{incomplete: &InputError{File: "p.csv", Line: 7, Problem: "missing"}}
		}, "p.csv:7"},
	} {
		t.Run(name, func(t *testing.T) {
			in, s := world()
			test.change(&in, &s)
			_, err := NewPlan(in, s)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestWindowAtEnd: a window ends with the trace.
func TestWindowAtEnd(t *testing.T) {
	p := newPlan(t, func(_ *Inputs, s *Settings) { s.From, s.Length = time.Hour, 24*time.Hour })
	if want := (Window{From: time.Hour, Length: time.Hour}); p.Window != want {
		t.Errorf("window %v, want %v", p.Window, want)
	}
}

func TestAmount(t *testing.T) {
	for text, want := range map[string][]int{"0": {0, 0, 0}, "2": {0, 1, 2}, "50%": {0, 1, 2}, "30%": {0, 1, 1}, "100%": {0, 1, 3}} {
		a, err := ParseAmount(text)
		must(t, err)
		if got := []int{a.Of(0), a.Of(1), a.Of(3)}; !slices.Equal(got, want) {
			t.Errorf("%s of 0, 1 and 3 is %v, want %v", text, got, want)
		}
	}
}

func TestTooManyNodes(t *testing.T) {
	in, s := world()
	in.Capacity.Pools[0].Steps[0].Count = 2 * maxNodes
	if _, err := NewPlan(in, s); err == nil || !strings.Contains(err.Error(), "--vms-per-node") {
		t.Errorf("error %v, want one that names --vms-per-node", err)
	}
	s.VMsPerNode, s.Demand = 2, 0.0001
	if _, err := NewPlan(in, s); err != nil {
		t.Error(err)
	}
}

// TestRecordingGaps covers a window that is longer than the recording of a pool.
func TestRecordingGaps(t *testing.T) {
	in, s := world()
	p, err := NewPlan(in, s)
	must(t, err)
	want := []string{"Pool b was recorded from 30m0s to 2h0m0s only. Its capacity counts as 0 before, and does not change after."}
	if diff := cmp.Diff(want, p.recordingGaps(in)); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
	s.From, s.Length = 65*time.Minute, 30*time.Minute
	if p, err = NewPlan(in, s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"No service is scaled in this window."}, p.recordingGaps(in)); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
