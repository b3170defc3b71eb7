package safety_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// history is what happens to the processes and to the ledger.
type history struct {
	limits controller.Limits
	steps  []step
}

// step is one event, and the time that passes afterwards.
type step struct {
	kind    string
	process int
	offset  time.Duration
	verb    string
	move    safety.Removal
	// again is how many steps ago the pod was moved that is moved again; 0 for a new pod.
	again  int
	fault  fault
	tamper string
	then   time.Duration
}

var offsets = []time.Duration{0, 0, -24 * time.Hour, 24 * time.Hour, -30 * time.Second, 30 * time.Second}

// drawHistory draws a history. Only some histories have wrong clocks or an edited ledger, because
// these often reset what is known.
func drawHistory(t *rapid.T) history {
	upTo := func(n int, label string) int32 { return int32(rapid.IntRange(0, n).Draw(t, label)) }
	h := history{limits: controller.Limits{
		MovesPerHour: 1 + upTo(4, "movesPerHour"), MovesPerHourPerNamespace: 1 + upTo(3, "perNamespace"), MovesPerHourPerWorkload: 1 + upTo(2, "perWorkload"),
	}}
	if rapid.Bool().Draw(t, "limits heal") {
		h.limits.Reasons = map[string]int32{"heal": upTo(2, "heal")}
	}
	kinds := []string{"move", "move", "move", "move", "move", "move", "move", "move", "move", "unlimited", "start", "start", "kill"}
	clocks := offsets[:1]
	switch rapid.SampledFrom([]string{"", "faults", "clocks", "backwards", "tampers", "all"}).Draw(t, "disturbance") {
	case "faults":
		kinds = append(kinds, "fault", "fault")
	case "clocks":
		kinds, clocks = append(kinds, "clock"), offsets
	case "backwards":
		clocks = []time.Duration{0, -30 * time.Second, -24 * time.Hour}
	case "tampers":
		kinds = append(kinds, "tamper")
	case "all":
		kinds, clocks = append(kinds, "fault", "clock", "tamper"), offsets
	}
	waits := []time.Duration{
		0, 0, 0, 0, 5 * time.Millisecond, 15 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second, 20 * time.Second, 59 * time.Minute, 61 * time.Minute,
	}
	draw := rapid.Custom(func(t *rapid.T) step {
		s := step{kind: rapid.SampledFrom(kinds).Draw(t, "kind"), then: rapid.SampledFrom(waits).Draw(t, "then")}
		if s.kind != "start" {
			s.process = rapid.IntRange(0, 2).Draw(t, "process")
		}
		switch s.kind {
		case "start", "clock":
			s.offset = rapid.SampledFrom(clocks).Draw(t, "offset")
		case "tamper":
			s.tamper = rapid.SampledFrom([]string{"delete", "empty", "garble", "truncate", "add", "future"}).Draw(t, "tamper")
		case "fault":
			s.fault = fault(rapid.IntRange(int(refused), int(slow)).Draw(t, "fault"))
		case "move":
			s.again = max(rapid.IntRange(-10, 5).Draw(t, "again"), 0)
			s.verb = rapid.SampledFrom([]string{"evict", "delete", "patch"}).Draw(t, "verb")
			s.move.Cause = rapid.SampledFrom([]safety.Cause{safety.Heal, safety.ReturnToSpot}).Draw(t, "cause")
			s.move.Namespace = nameOf("ns", rapid.IntRange(0, 1).Draw(t, "namespace"))
			s.move.Workload = "Deployment/" + nameOf("web", rapid.IntRange(0, 1).Draw(t, "workload"))
			s.fault = rapid.SampledFrom([]fault{works, works, works, works, refused, lostBefore, lostAfter, slow}).Draw(t, "fault")
		}
		return s
	})
	h.steps = rapid.SliceOfN(draw, 15, 80).Draw(t, "steps")
	return h
}

// tampers change the data of the ledger; nil deletes it.
var tampers = map[string]func(data map[string]string) map[string]string{
	"delete": func(map[string]string) map[string]string { return nil },
	"empty":  func(map[string]string) map[string]string { return map[string]string{} },
	"garble": func(data map[string]string) map[string]string {
		for pod, text := range data {
			data[pod] = "x" + text
		}
		return data
	},
	"truncate": func(data map[string]string) map[string]string {
		pods := slices.Sorted(maps.Keys(data))
		for _, pod := range pods[:(len(pods)+1)/2] {
			data[pod] = data[pod][:len(data[pod])/2]
		}
		return data
	},
	"add": func(data map[string]string) map[string]string {
		data["x"], data["y"] = `{"time":"2026-13-45","cause":"heal"}`, strings.Repeat("y ", 500)
		data["z"] = `{"time":"` + time.Now().UTC().Format(time.RFC3339) + `","cause":"deadline","namespace":"ns0"}`
		return data
	},
	"future": func(data map[string]string) map[string]string {
		at := time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)
		data["forged"] = `{"time":"` + at + `","cause":"heal","namespace":"ns0","workload":"Deployment%2Fweb0"}`
		return data
	},
}

// run performs a history in a synctest bubble.
func (h *history) run(t testing.TB) *server {
	s := &server{removed: map[string]bool{}}
	processes := []*process{s.start(t, h.limits, 0)} // the newest is the last
	for i, step := range h.steps {
		if step.kind == "start" || len(processes) == 0 {
			processes = append(processes, s.start(t, h.limits, step.offset))
			processes = processes[max(0, len(processes)-3):] // older ones send nothing any more
		}
		n := len(processes) - 1 - step.process%len(processes)
		p := processes[n]
		switch step.kind {
		case "kill":
			s.mu.Lock()
			p.dead = true
			s.mu.Unlock()
			processes = slices.Delete(processes, n, n+1)
		case "clock":
			time.Sleep(time.Duration(i+1) * time.Microsecond) // not while a process reads the ledger
			p.offset.Store(int64(step.offset))
		case "fault":
			s.mu.Lock()
			s.faults = append(s.faults, step.fault)
			s.mu.Unlock()
		case "tamper":
			s.tamper(tampers[step.tamper])
		case "unlimited":
			r := safety.Removal{Cause: safety.Deadline, Pod: "p", Namespace: "ns", Starts: true}
			go func() { _ = p.request("delete", r, works) }()
		case "move":
			earlier := max(i-step.again, 0)
			if h.steps[earlier].kind != "move" {
				earlier = i
			}
			r := h.steps[earlier].move
			r.Pod, r.Starts = types.UID(fmt.Sprint("pod-", earlier)), true
			go func() { _ = p.request(step.verb, r, step.fault) }()
		}
		time.Sleep(step.then)
	}
	time.Sleep(3 * time.Minute) // until nothing has to be written
	return s
}

// TestLimitsHold: whatever happens to processes, clocks, connections and the ledger, no more
// limited moves are performed in any hour than each limit allows, between two resets (safety.Gate).
// Unlimited moves are all performed.
func TestLimitsHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		var s *server
		synctest.Test(t, func(t *testing.T) { s = h.run(t) })
		for _, at := range exceeded(s, h.limits) {
			rt.Errorf("%s", at)
		}
		last := map[*process]time.Time{}
		for _, w := range s.writes {
			if at, ok := last[w.process]; ok && w.began.Sub(at) < 200*time.Millisecond {
				rt.Errorf("two writes of the ledger within %s", w.began.Sub(at))
			}
			last[w.process] = w.began
		}
	})
}

// exceeded returns the limits that the moves of a server exceed.
func exceeded(s *server, limits controller.Limits) (broken []string) {
	count := func(name string, most int32, matches func(a, b safety.Removal) bool) {
		for i, first := range s.moves {
			pods := map[types.UID]bool{}
			for _, m := range s.moves[i:] {
				within := m.at.Sub(first.at) < time.Hour
				reset := slices.ContainsFunc(s.resets, func(at time.Time) bool {
					return !at.After(m.at) && (!at.Before(first.began) || !at.Before(m.began))
				})
				if safety.Rules[m.Cause].Limited && within && !reset && matches(first.Removal, m.Removal) {
					pods[m.Pod] = true
				}
			}
			if safety.Rules[first.Cause].Limited && len(pods) > int(most) {
				broken = append(broken, fmt.Sprintf("%s: %d moves in the hour from %s, at most %d", name, len(pods), first.at, most))
			}
		}
	}
	count("cluster", limits.MovesPerHour, func(_, _ safety.Removal) bool { return true })
	count("namespace", limits.MovesPerHourPerNamespace, func(a, b safety.Removal) bool { return a.Namespace == b.Namespace })
	count("workload", limits.MovesPerHourPerWorkload, func(a, b safety.Removal) bool { return a.Namespace == b.Namespace && a.Workload == b.Workload })
	if most, limited := limits.Reasons["heal"]; limited {
		count("heal", most, func(a, b safety.Removal) bool { return a.Cause == safety.Heal && b.Cause == safety.Heal })
	}
	return broken
}
