package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// history drives a recorder with a service of 3 or 4 replicas. Times are in seconds.
type history struct {
	*testing.T
	*Recorder
	states map[string]PodState
}

// newHistory returns a recorder of the service svc-x, with these ready pods at the begin, such as
// "od" on on-demand and "spot-a-1" on that spot node.
func newHistory(t *testing.T, floor, budget string, nodes ...string) *history {
	p := newPlan(t, func(in *Inputs, s *Settings) { in.Services, s.Floor, s.Budget = in.Services[:1], floor, budget })
	h := &history{T: t, Recorder: NewRecorder(p), states: map[string]PodState{}}
	h.Node(0, "od", lab.OnDemand)
	for _, n := range p.Nodes {
		if n.Up == 0 {
			h.Node(0, n.Name, lab.Spot)
		}
	}
	for i, node := range nodes {
		h.pod(0, fmt.Sprint(i), node, true)
	}
	h.Start()
	return h
}

func sec(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (h *history) pod(at float64, uid, node string, ready bool) {
	h.states[uid] = PodState{UID: uid, Service: "svc-x", Node: node, Ready: ready}
	h.Pod(sec(at), h.states[uid])
}

// result returns the result at a time.
func (h *history) result(at float64) Result { return h.Result(sec(at)) }

func TestOutage(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "spot-a-1", "spot-a-2")
	h.PodGone(sec(100), "1", true)
	h.PodGone(sec(100), "2", true)
	r := h.result(110)
	near(t, "outages", float64(r.Outages), 0)
	near(t, "below the budget", r.BelowBudgetSeconds, 10) // 1 of 3, the budget requires 2
	near(t, "below the floor", r.BelowFloorSeconds, 0)
	h.PodGone(sec(110), "0", false)
	h.pod(120, "3", "od", false)
	h.pod(130, "3", "od", true)
	r = h.result(200)
	near(t, "outages", float64(r.Outages), 1)
	near(t, "outage", r.OutageSeconds, 20)
	near(t, "longest outage", r.Services[0].LongestOutageSeconds, 20)
	near(t, "below the floor", r.BelowFloorSeconds, 20)
	near(t, "below the budget", r.BelowBudgetSeconds, 100)
	near(t, "lost", float64(r.LostPods), 2)
	near(t, "largest loss", float64(r.LargestLoss), 3) // within ten seconds
	near(t, "ready", r.ReadyShare, (3*100+1*10+0*20+1*70)/(3*200.0))
}

func TestLossesApartAreNotSimultaneous(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "spot-a-1", "spot-a-2")
	h.PodGone(sec(100), "1", true)
	h.PodGone(sec(111), "2", true)
	near(t, "largest loss", float64(h.result(120).LargestLoss), 1)
}

func TestScaleUpIsNoOutage(t *testing.T) {
	h := newHistory(t, "50%", "100%", "od", "od", "spot-a-1")
	h.Scale(sec(10), "svc-x", 8)
	r := h.result(100)
	if r.BelowBudgetSeconds != 0 || r.BelowFloorSeconds != 0 || r.Outages != 0 {
		t.Errorf("a scale-up counts as an outage: %+v", r)
	}
	near(t, "ready", r.ReadyShare, (3*10+3*90)/(3*10+8*90.0))
	// A replica that has been ready counts.
	h.pod(100, "3", "od", true)
	h.PodGone(sec(110), "3", false)
	near(t, "below the budget", h.result(120).BelowBudgetSeconds, 10)
}

func TestScaleFromZeroIsNoOutage(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "od", "od")
	h.Scale(sec(10), "svc-x", 0)
	for _, uid := range []string{"0", "1", "2"} {
		h.PodGone(sec(11), uid, false)
	}
	h.Scale(sec(20), "svc-x", 2)
	r := h.result(30)
	if r.Outages != 0 || r.OutageSeconds != 0 || r.LargestLoss != 0 {
		t.Errorf("a scale from and to zero counts as an outage: %+v", r)
	}
}

// TestReadyAboveDesiredDoesNotCount covers a surge: a released pod is ready beside its replacement.
func TestReadyAboveDesiredDoesNotCount(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "od", "od", "od") // one replica more: a released pod
	h.PodGone(sec(10), "3", false)
	r := h.result(20)
	near(t, "ready", r.ReadyShare, 1)
	near(t, "largest loss", float64(r.LargestLoss), 0)
}

func TestCosts(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "spot-a-1", "spot-a-2")
	share := h.plan.Services[0].Share(h.plan.Node)
	h.PodGone(sec(1800), "1", true)
	h.Node(sec(1800), "spot-a-1", "")
	h.pod(1800, "3", "", false) // pending pods cost nothing
	h.pod(2700, "3", "od", false)
	r := h.result(3600)
	near(t, "pod-hours", r.PodHoursCost, share*(1*1+0.25*0.5+0.25*1+1*0.25))
	near(t, "node-hours", r.NodeHoursCost, 1+0.25*(0.5+1+1))
	near(t, "pending", r.PendingSeconds, 900)
	near(t, "on spot", r.SpotShare, 1.5/(1.5+1.25))
	near(t, "measured", r.MeasuredSeconds, 3600)
	service := r.Services[0]
	near(t, "pod-hours of the service", service.PodHoursCost, r.PodHoursCost)
	near(t, "pending of the service", service.PendingSeconds, 900)
	near(t, "on spot of the service", service.SpotShare, r.SpotShare)
	cost, used := 0.0, 0.0
	for _, point := range r.Series {
		cost += point.PodHoursCost
		used += point.SpotUsed
	}
	near(t, "the sum of the series", cost, r.PodHoursCost)
	if r.Series[0].LowestReady != 3 || r.Series[len(r.Series)-1].LowestReady != 2 {
		t.Errorf("series %+v", r.Series)
	}
	near(t, "the end is the window's", h.Result(100*time.Hour).MeasuredSeconds, 7200)
}

func TestWaysToLeave(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "spot-a-1", "spot-a-1", "spot-a-1")
	leave := func(uid string, change func(*PodState)) {
		state := h.states[uid]
		change(&state)
		h.Pod(sec(10), state)
		h.PodGone(sec(10), uid, true)
	}
	leave("1", func(s *PodState) { s.Evicted = true })
	leave("2", func(s *PodState) { s.Evicted, s.Released = true, true })
	leave("3", func(s *PodState) { s.Deleted = true })
	h.PodGone(sec(10), "0", true)
	h.PodGone(sec(10), "unknown", true)
	r := h.result(20)
	if r.Evictions != 2 || r.Surges != 1 || r.DeletedAtDeadline != 1 || r.Moves != 3 || r.LostPods != 1 {
		t.Errorf("evictions %d, surges %d, deletions %d, moves %d, lost %d", r.Evictions, r.Surges, r.DeletedAtDeadline, r.Moves, r.LostPods)
	}
	if s := r.Services[0]; s.Evictions != 2 || s.DeletedAtDeadline != 1 || s.Moves != 3 || s.LostPods != 1 {
		t.Errorf("the service: %+v", s)
	}
}

// TestBrokenFloor reports an arm that violates floors: after a loss, and before any loss because
// too few replicas are on on-demand.
func TestBrokenFloor(t *testing.T) {
	healthy := newHistory(t, "1", "50%", "od", "spot-a-1", "spot-a-2")
	if got := healthy.result(3600).broken(); len(got) != 0 {
		t.Errorf("broken %v", got)
	}
	exposed := newHistory(t, "1", "50%", "spot-a-1", "spot-a-2", "spot-a-3")
	if got := exposed.result(exposedTolerance.Seconds()).broken(); len(got) != 0 {
		t.Errorf("broken %v within the tolerance", got)
	}
	if got := exposed.result(exposedTolerance.Seconds() + 1).broken(); len(got) != 1 {
		t.Errorf("broken %v, want that the service is exposed", got)
	}
	surge := newHistory(t, "1", "50%", "od", "spot-a-1", "spot-a-2")
	surge.pod(10, "3", "spot-a-1", true)
	if got := surge.result(exposedTolerance.Seconds() + 60); got.ExposedSeconds != 0 {
		t.Errorf("exposed for %.0f s although a replica is on on-demand", got.ExposedSeconds)
	}
	lost := newHistory(t, "2", "50%", "od", "spot-a-1", "spot-a-2")
	lost.PodGone(sec(10), "1", true)
	lost.PodGone(sec(10), "2", true)
	if got := lost.result(20).broken(); len(got) != 1 {
		t.Errorf("broken %v, want the time below the floor", got)
	}
}

func TestNothingIsMeasuredBeforeStart(t *testing.T) {
	r := NewRecorder(newPlan(t, nil))
	r.Node(0, "od", lab.OnDemand)
	r.Scale(sec(600), "svc-x", 4)
	r.Start()
	if result := r.Result(0); result.NodeHoursCost != 0 || result.MeasuredSeconds != 0 {
		t.Errorf("measured %.0f s and $%.2f before the start", result.MeasuredSeconds, result.NodeHoursCost)
	}
}

func TestTimesDoNotDecrease(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "spot-a-1", "spot-a-2")
	h.PodGone(sec(100), "1", true)
	h.PodGone(sec(50), "2", true)
	near(t, "ready", h.result(200).ReadyShare, (3*100+1*100)/600.0)
}
