package rebalance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Slots of MaxMoves are used by pods that were released from existing workloads, one per workload,
// and by moved pods until they are overdue. A tenant's own pods cannot block the moves of other
// workloads.
func TestSlots(t *testing.T) {
	const others = 5 // pods of another workload, as many as there are slots
	lines := []string{"node o on-demand cpu=9", "node s spot cpu=20", "deployment bad 5 s s s s s min=0", "deployment web 2 s s min=1"}
	heals := []string{"web-0 heal"}
	for name, test := range map[string]struct {
		lines []string
		bad   func(w *world, p *pod)
		want  []string
	}{
		"released from different workloads": {
			lines: []string{"node o on-demand cpu=9", "node s spot cpu=20", "deployment bad 1 s min=0", "deployment b 1 s min=0", "deployment c 1 s min=0",
				"deployment d 1 s min=0", "deployment e 1 s min=0", "deployment web 2 s s min=1"},
			bad: func(_ *world, p *pod) { p.released = "heal" },
		},
		"released from one workload": {bad: func(_ *world, p *pod) { p.released = "heal" }, want: heals},
		"released from different workloads long ago": {
			lines: []string{"node o on-demand cpu=9", "node s spot cpu=20", "deployment bad 1 s min=0", "deployment b 1 s min=0", "deployment c 1 s min=0",
				"deployment d 1 s min=0", "deployment e 1 s min=0", "deployment web 2 s s min=1"},
			bad: func(_ *world, p *pod) { p.released, p.releasedAt = "heal", start.Add(-time.Hour) }, want: heals,
		},
		"released from a deleted workload": {bad: func(_ *world, p *pod) { p.released, p.orphaned = "heal", true }, want: heals},
		"released for an interruption":     {bad: func(_ *world, p *pod) { p.released = "interruption" }, want: heals},
		"terminating, but not moved":       {bad: func(_ *world, p *pod) { p.terminating = true }, want: heals},
	} {
		t.Run(name, func(t *testing.T) {
			if test.lines == nil {
				test.lines = lines
			}
			w := newWorld(test.lines...)
			n := 0
			for _, work := range w.workloads {
				if work.name != "web" {
					for _, p := range work.pods {
						n++
						test.bad(w, p)
					}
				}
			}
			if n != others {
				t.Fatalf("%d pods of other workloads, want %d", n, others)
			}
			clustertest.Equal(t, "moves", test.want, w.plan(rebalance.NewPlanner(settings)))
		})
	}
}

// A moved pod that does not end uses its slot until a minute after its grace period, unless the
// grace period is very long.
func TestSlotOfLingeringPod(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*pod)
		want []string
	}{
		"evicted":  {func(*pod) {}, []string{"91: web-0 heal", "120: web-0 heal"}},
		"released": {func(p *pod) { p.released = "heal" }, []string{"91: web-0 heal", "120: web-0 heal"}},
		"evicted, with a grace period of hours": {func(p *pod) { p.ends = start.Add(2 * time.Hour) },
			[]string{"10: web-0 heal", "90: web-0 heal", "91: web-0 heal", "120: web-0 heal"}},
	} {
		t.Run(name, func(t *testing.T) {
			limited := settings
			limited.Rebalance.MaxMoves = 1
			w := newWorld("node o on-demand cpu=9", "node s spot cpu=9", "deployment api 2 s s min=1", "deployment web 2 s s min=1")
			p := rebalance.NewPlanner(limited)
			var got []string
			for _, second := range []int{0, 10, 90, 91, 120} {
				w.now = start.Add(time.Duration(second) * time.Second)
				if second == 10 {
					api := w.pod("api-0")
					api.terminating, api.ends = true, start.Add(30*time.Second)
					test.end(api)
				}
				for _, move := range w.plan(p) {
					got = append(got, fmt.Sprintf("%d: %s", second, move))
				}
			}
			clustertest.Equal(t, "moves", append([]string{"0: api-0 heal"}, test.want...), got)
		})
	}
}

// A pod that does not end does not count as making room for a waiting pod: other room is made.
func TestRoomOfLingeringPod(t *testing.T) {
	for name, test := range map[string]struct {
		ends time.Time
		want []string
	}{
		"grace period has just ended": {start, nil},
		"overdue":                     {start.Add(-time.Hour), []string{"web-0 make-room"}},
		"very long grace period":      {start.Add(2 * time.Hour), []string{"web-0 make-room"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("node o on-demand cpu=2", "node s spot cpu=9", "deployment bad 1 o min=0", "deployment one 1 - min=1", "deployment web 2 o s min=1")
			w.workload("web").floor = 0
			bad := w.pod("bad-0")
			bad.terminating, bad.ends = true, test.ends
			clustertest.Equal(t, "moves", test.want, w.plan(rebalance.NewPlanner(rebalance.Settings{Rebalance: controller.Rebalance{MakeRoom: true, MaxMoves: 5}})))
		})
	}
}

// A move that limits refuse uses no slot of MaxMoves. It has not failed: it is planned at once when
// the limit ends.
func TestLimitedMoves(t *testing.T) {
	limited, why := settings, "limits.movesPerHour is 1"
	limited.Rebalance.MaxMoves = 1
	limited.Limited = func(p *snapshot.Pod, _ migration.Reason) string {
		if p.Workload.Name == "api" {
			return why
		}
		return ""
	}
	w := newWorld("node o on-demand cpu=9", "node s spot cpu=9", "deployment api 2 s s min=1", "deployment web 2 s s min=1")
	p := rebalance.NewPlanner(limited)
	clustertest.Equal(t, "moves", []string{"web-0 heal", "api-0 heal limited"}, w.plan(p))
	w.workload("web").floor = 0
	for _, after := range []time.Duration{time.Minute, 2 * time.Hour} { // longer than moveTimeout
		w.now = start.Add(after)
		clustertest.Equal(t, "moves", []string{"api-0 heal limited"}, w.plan(p))
	}
	why = ""
	clustertest.Equal(t, "moves", []string{"api-0 heal"}, w.plan(p))
}

// A pod gets room from a workload that limits do not refuse to move.
func TestLimitedMakeRoom(t *testing.T) {
	w := newWorld("node o on-demand cpu=2", "node s spot cpu=9", "deployment a 1 o min=0", "deployment b 1 o min=0", "deployment one 1 - min=1")
	limited := rebalance.Settings{Rebalance: controller.Rebalance{MakeRoom: true, MaxMoves: 5}}
	limited.Limited = func(p *snapshot.Pod, _ migration.Reason) string {
		return map[string]string{"a": "limits.movesPerHourPerWorkload is 0"}[p.Workload.Name]
	}
	clustertest.Equal(t, "moves", []string{"b-0 make-room", "a-0 make-room limited"}, w.plan(rebalance.NewPlanner(limited)))
}

// Limits that refuse the moves of many workloads do not keep others from moving, and no time is
// spent on the search for their room.
func TestLimitedMovesDelayNoOthers(t *testing.T) {
	cluster := []string{"node o on-demand cpu=99", "node s spot cpu=99", "deployment web 2 s s min=1", "deployment back 2 o o min=0"}
	for i := range 30 {
		cluster = append(cluster, fmt.Sprintf("deployment heal-%02d 3 s s s min=3", i), fmt.Sprintf("deployment return-%02d 2 o o min=0", i))
	}
	w := newWorld(cluster...)
	limited := settings
	limited.Limited = func(p *snapshot.Pod, _ migration.Reason) string {
		if strings.Contains(p.Workload.Name, "-") {
			return "limits.movesPerHourPerWorkload is 0"
		}
		return ""
	}
	counts := map[string]int{}
	for _, move := range w.plan(rebalance.NewPlanner(limited)) {
		name, what, _ := strings.Cut(move, " ")
		counts[name[:strings.Index(name, "-")]+" "+what]++
	}
	clustertest.Equal(t, "moves", map[string]int{
		"web heal": 1, "heal heal limited": 30, "back return-to-spot": 1, "return return-to-spot limited": 30,
	}, counts)
}
