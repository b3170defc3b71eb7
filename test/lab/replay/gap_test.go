package replay

import (
	"testing"
	"time"
)

// TestGap: one replica is the floor. Two more could run on spot, but at first only one does.
func TestGap(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "od", "spot-a-1")
	p := h.plan
	share := p.Services[0].Share(p.Node)
	saving := share * 0.75             // the prices are 1 and 0.25
	h.pod(1800, "3", "spot-a-2", true) // a replacement beside its pod, for 6 minutes
	h.PodGone(sec(2160), "1", false)
	h.PodGone(sec(3000), "3", false) // missing for 10 minutes
	got := h.result(3600).Gap
	near(t, "return within 15 min", got.Delay, saving/4)
	// Until the replacement is bound, and while it runs beside the pod, which still counts.
	near(t, "no return", got.Late, saving*(2160-900)/3600)
	near(t, "extra", got.Extra, share*360/3600)
	near(t, "missing", got.Missing, -share*600/3600)
	near(t, "floor on spot", got.Floors, 0)
}

// TestGapOfBrokenFloor: all three replicas run on spot, so one is cheaper than its floor permits.
func TestGapOfBrokenFloor(t *testing.T) {
	h := newHistory(t, "1", "50%", "spot-a-1", "spot-a-2", "spot-a-3")
	got := h.result(1800).Gap
	near(t, "floor on spot", got.Floors, -0.75*h.plan.Services[0].Share(h.plan.Node)/2)
	near(t, "no return", got.Late, 0)
}

// TestNoGapWithoutRoom: replicas on on-demand have no gap if their spot nodes have notice or do
// not exist.
func TestNoGapWithoutRoom(t *testing.T) {
	h := newHistory(t, "1", "50%", "od", "od", "od")
	h.Node(0, "spot-b-1", "")
	for _, node := range h.plan.Nodes {
		if node.Zone == "a" && node.Up == 0 && node.Notice != 58*time.Minute {
			t.Fatalf("the notice of %s is at %s", node.Name, node.Notice)
		}
	}
	before := h.Result(58 * time.Minute).Gap
	after := h.Result(time.Hour).Gap
	if before.Late == 0 {
		t.Error("nothing could return before the notice")
	}
	near(t, "no return", after.Late, before.Late)
}

// TestGapParts: the parts are the whole difference, and the largest is the main reason.
func TestGapParts(t *testing.T) {
	r := &Report{Bound: Bound{PodHoursCost: 10}}
	arm := ArmResult{Result: Result{Figures: Figures{PodHoursCost: 12}, Gap: Gap{Extra: 0.5, Missing: -0.25, Delay: 0.25, Late: 1.25}}}
	sum := 0.0
	for _, part := range r.gapParts(arm) {
		sum += part.usd
	}
	near(t, "sum", sum, 2)
	if reason := r.mainReason(arm); reason == nil || reason.reason != "no return" {
		t.Errorf("the main reason is %v", reason)
	}
	arm.PodHoursCost = 10.5
	if reason := r.mainReason(arm); reason != nil {
		t.Errorf("5 %% above the bound has the main reason %v", reason)
	}
	arm.Partial = true
	if parts := r.gapParts(arm); parts != nil {
		t.Errorf("a partial arm has the parts %v", parts)
	}
}
