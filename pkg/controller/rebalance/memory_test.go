package rebalance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node/nodetest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// script plans at the given minutes after the start and returns the moves with their minute. act,
// if not nil, changes the world before each round.
func script(w *world, minutes []float64, act func(minute float64)) []string {
	p := rebalance.NewPlanner(settings)
	var log []string
	for _, minute := range minutes {
		w.now = start.Add(time.Duration(minute * float64(time.Minute)))
		if act != nil {
			act(minute)
		}
		for _, move := range w.plan(p) {
			log = append(log, fmt.Sprintf("%g: %s", minute, move))
		}
	}
	return log
}

func TestMemory(t *testing.T) {
	surplus := []string{"node o on-demand cpu=9", "node r spot cpu=0", "node s spot cpu=9", "deployment web 3 o o o min=1"}
	occupied := append(slices.Clone(surplus), "deployment batch 1 r min=0")
	overBudget := []string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 2 s s min=1"}
	cases := map[string]struct {
		lines   []string
		minutes []float64
		act     func(w *world, minute float64)
		want    []string
	}{
		"a move is planned until it starts": {surplus, []float64{0, 1, 2}, nil,
			[]string{"0: web-0 return-to-spot", "1: web-0 return-to-spot", "2: web-0 return-to-spot"}},
		"a planned move stays first": {surplus, []float64{0, 1},
			func(w *world, minute float64) {
				if minute == 1 {
					w.pod("web-2").created = start.Add(-time.Minute)
				}
			}, []string{"0: web-0 return-to-spot", "1: web-0 return-to-spot"}},
		"a move that does not start in time is backed off": {surplus, []float64{0, 4.9, 5, 5.9, 6}, nil,
			[]string{"0: web-0 return-to-spot", "4.9: web-0 return-to-spot", "6: web-0 return-to-spot"}},
		"an undone move is retried with an increasing back-off": {surplus, []float64{0, 0.5, 1, 1.9, 2, 2.5, 3, 4.9, 5},
			func(w *world, minute float64) {
				w.pod("web-0").released = map[bool]string{true: "return-to-spot"}[minute == 0.5 || minute == 2.5]
			}, []string{"0: web-0 return-to-spot", "2: web-0 return-to-spot", "5: web-0 return-to-spot"}},
		"a move that did not help is retried after a back-off": {overBudget, []float64{0, 1, 1.9, 2},
			func(w *world, minute float64) {
				if minute == 1 { // replaced on the same node
					w.pod("web-0").name = "web-9"
				}
			}, []string{"0: web-0 heal", "2: web-1 heal"}},
		"a move that helped is followed by the next": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 s s s min=2"}, []float64{0, 1, 1.1},
			func(w *world, minute float64) {
				if minute == 1 {
					w.pod("web-0").node, w.pod("web-0").name = w.node("o"), "web-9"
				}
			}, []string{"0: web-0 heal", "1: web-1 heal", "1.1: web-1 heal"}},
		// The other pods are as many as the workload wants, so that none seems to be missing.
		"no move of a paused rollout before its ReplicaSet has created the replacement": {
			[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 2 s s s min=2"}, []float64{0, 1, 1.5},
			func(w *world, minute float64) {
				web := w.workload("web")
				web.rollingOut, web.paused = true, true
				switch minute {
				case 0:
					w.pod("web-2").revision = 1
				case 1:
					web.pods, web.uncreated = web.pods[1:], 1
				case 1.5:
					web.pods, web.uncreated = append(web.pods, &pod{name: "web-9", slots: 1, node: w.node("o"), created: start}), 0
				}
			}, []string{"0: web-0 heal", "1.5: web-2 heal"}},
		"a move that helped, although more replicas are on spot since": {
			[]string{"node a on-demand cpu=9", "node o on-demand cpu=9", "node s spot cpu=9", "statefulset db 3 s s a min=3"}, []float64{0, 1, 2},
			func(w *world, minute float64) {
				if minute == 1 {
					w.pod("db-0").node, w.pod("db-0").name = w.node("o"), "new-0"
					w.workload("db").desired = 4
					w.workload("db").floor = 4
					w.workload("db").pods = append(w.workload("db").pods, &pod{name: "db-3", ordinal: 3, slots: 1, node: w.node("s"), created: start})
				}
			}, []string{"0: db-0 heal", "1: db-3 heal", "2: db-3 heal"}},
		"no heal after one that did not help, although its only pod was missing": {
			[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset db 1 s min=1"}, []float64{0, 1, 2, 8, 59},
			func(w *world, minute float64) {
				db := w.workload("db")
				if db.pods = nil; minute != 1 {
					db.pods = []*pod{{name: fmt.Sprint("db-0-", minute > 1), slots: 1, node: w.node("s"), created: start}}
				}
			}, []string{"0: db-0-false heal", "2: db-0-true heal stopped"}},
		"no heal of a group after one that did not help and created it anew": {
			[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset g-0 1 s min=1"}, []float64{0, 1, 2, 8, 59},
			func(w *world, minute float64) {
				group := w.workload("g-0")
				group.leaders = "g"
				if group.pods = nil; minute != 1 {
					group.recreated = fmt.Sprint(minute > 1)
					group.pods = []*pod{{name: "g-0-0-" + group.recreated, slots: 1, node: w.node("s"), created: start}}
				}
			}, []string{"0: g-0-0-false heal", "2: g-0-0-true heal stopped"}},
		"no heal of a group while the leaders roll out": {
			[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset g 1 s min=0", "statefulset g-0 1 s min=1"}, []float64{0, 1},
			func(w *world, minute float64) {
				w.workload("g-0").leaders, w.workload("g").rollingOut = "g", minute == 0
			}, []string{"1: g-0-0 heal"}},
		"a move that helped, although a scale removed another such replica": {
			[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 s s s o min=3"}, []float64{0, 1},
			func(w *world, minute float64) {
				if minute == 1 {
					web := w.workload("web")
					web.desired, web.pods = 3, web.pods[:3]
					web.pods[0].node, web.pods[0].name = w.node("o"), "web-9"
				}
			}, []string{"0: web-0 heal", "1: web-1 heal"}},
		"a group that cannot start does not block the heal of another for long": {
			[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset g-0 1 - min=1", "statefulset g-1 1 s min=1"}, []float64{0, 4.9, 5},
			func(w *world, minute float64) {
				w.workload("g-0").leaders, w.workload("g-1").leaders = "g", "g"
				w.pod("g-0-0").slots = 99
			}, []string{"5: g-1-0 heal"}},
		"no move while the replacement starts": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 s s s min=2"}, []float64{0, 1, 2},
			func(w *world, minute float64) {
				switch minute {
				case 1:
					p := w.pod("web-0")
					p.node, p.name, p.created, p.unready = w.node("o"), "web-9", w.now, true
				case 2:
					w.pod("web-9").unready = false
				}
			}, []string{"0: web-0 heal", "2: web-1 heal"}},
		"a replica that has waited for 5 minutes does not block heal": {
			[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 s s s - min=2"}, []float64{0, 1, 5.9, 6, 7},
			func(w *world, minute float64) {
				switch minute {
				case 0:
					w.node("o").slots = 0
					w.pod("web-3").slots = 99
				case 1:
					w.node("o").slots = 9
				}
			}, []string{"5.9: web-0 heal", "6: web-0 heal", "7: web-0 heal"}},
		"a replica that has waited for less blocks heal": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 s s s - min=2"}, []float64{0, 1, 4.9, 5},
			func(w *world, minute float64) { w.pod("web-3").slots = 99 }, []string{"5: web-0 heal"}},
		"a replica that has been missing for 5 minutes does not block heal": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 s s min=2"}, []float64{0, 1, 4.9, 5},
			nil, []string{"5: web-0 heal"}},
		"a StatefulSet with a waiting replica": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset db 3 s s - min=2"}, []float64{0, 5},
			func(w *world, minute float64) { w.pod("db-2").slots = 99 }, []string{"5: db-0 heal"}},
		"a StatefulSet with a missing replica, because it evicts first": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset db 3 s s min=2"}, []float64{0, 5, 60},
			nil, nil},
		"the time starts again after all replicas have run": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 s s - min=2"}, []float64{0, 3, 4, 8.9, 9},
			func(w *world, minute float64) {
				w.pod("web-2").slots, w.pod("web-2").node = 99, nil
				if minute == 3 {
					w.pod("web-2").node = w.node("s")
					w.node("o").slots = 0
				} else {
					w.node("o").slots = 9
				}
			}, []string{"9: web-0 heal"}},
		"a heal with a stuck replica ends and is followed by the next": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 s s s - min=2"}, []float64{0, 5, 6, 7},
			func(w *world, minute float64) {
				w.pod("web-3").slots = 99
				switch minute {
				case 6:
					p := w.pod("web-0")
					p.node, p.name, p.created, p.unready = w.node("o"), "web-9", w.now, true
				case 7:
					w.pod("web-9").unready = false
				}
			}, []string{"5: web-0 heal", "7: web-1 heal"}},
		"no heal follows a heal whose replacement waits": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 s s s - min=2"}, []float64{0, 5, 6, 12, 60, 600},
			func(w *world, minute float64) {
				w.pod("web-3").slots = 99
				if minute == 6 {
					p := w.pod("web-0")
					p.node, p.name, p.created, p.slots = nil, "web-9", w.now, 99
				}
			}, []string{"5: web-0 heal"}},
		"no return to spot with a stuck replica": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 o o o - min=1"}, []float64{0, 5, 60},
			func(w *world, minute float64) { w.pod("web-3").slots = 99 }, nil},
		"a vanished spot node: the pool is calm after 10 minutes, then gets one replica per period": {occupied, []float64{-1, 0, 5, 9.9, 10, 11, 19.9, 20, 21},
			func(w *world, minute float64) {
				switch minute {
				case -1:
					w.node("s").facts.Signal = decision.Advisory // no move to it
				case 0:
					w.pod("batch-0").node = w.node("s")
					w.nodes = slices.DeleteFunc(w.nodes, func(n *testNode) bool { return n.name == "r" })
					w.node("s").facts.Signal = decision.NoSignal
				case 11:
					w.pod("web-0").node, w.pod("web-0").name = w.node("s"), "web-9"
				}
			}, []string{"10: web-0 return-to-spot", "20: web-1 return-to-spot", "21: web-1 return-to-spot"}},
		"a vanished on-demand node is not an interruption": {[]string{"node a on-demand cpu=1", "node o on-demand cpu=9", "node s spot cpu=9", "deployment web 2 s s min=1"}, []float64{0, 1},
			func(w *world, minute float64) {
				if minute == 0 {
					w.pod("web-1").node = w.node("a")
				} else {
					w.pod("web-1").node = w.node("s")
					w.nodes = slices.DeleteFunc(w.nodes, func(n *testNode) bool { return n.name == "a" })
				}
			}, []string{"1: web-0 heal"}},
		"a node recreated with the same name has vanished": {occupied, []float64{-1, 0},
			func(w *world, minute float64) {
				w.node("s").facts.Signal = map[bool]decision.SignalClass{true: decision.Advisory}[minute == -1]
				w.node("r").created = start.Add(-2 * time.Hour).Add(time.Duration(minute) * time.Hour)
			}, nil},
		"workloads of a vanished spot node are paused": {[]string{"node o on-demand cpu=9", "node r spot cpu=9", "node s spot cpu=9", "deployment web 2 s r min=1"}, []float64{0, 1, 5.9, 6},
			func(w *world, minute float64) {
				switch minute {
				case 0:
					w.node("o").slots = 0
				case 1:
					w.node("o").slots = 9
					w.pod("web-1").node = w.node("s")
					w.nodes = slices.DeleteFunc(w.nodes, func(n *testNode) bool { return n.name == "r" })
				}
			}, []string{"6: web-0 heal"}},
		"no pause remains after a reboot": {[]string{"node o on-demand cpu=9", "node r spot cpu=9", "node s spot cpu=9", "deployment web 2 s r min=1"}, []float64{0, 1, 2, 3},
			func(w *world, minute float64) {
				r := w.node("r")
				kubelet := map[float64]v1.ConditionStatus{0: v1.ConditionTrue, 1: v1.ConditionUnknown, 2: v1.ConditionUnknown, 3: v1.ConditionTrue}[minute]
				r.disruption = ptr.To(map[v1.ConditionStatus]node.Disruption{v1.ConditionUnknown: node.Unreachable}[kubelet])
				r.mutate = func(n *v1.Node) {
					n.Spec.Unschedulable = minute < 3
					n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: kubelet}}
				}
				w.node("o").slots = map[bool]int64{true: 9}[minute >= 2]
			}, []string{"3: web-0 heal"}},
		"a pause remains after a silence without a cordon": {[]string{"node o on-demand cpu=9", "node r spot cpu=9", "node s spot cpu=9", "deployment web 2 s r min=1"}, []float64{0, 1, 3, 6},
			func(w *world, minute float64) {
				r := w.node("r")
				kubelet := map[bool]v1.ConditionStatus{true: v1.ConditionUnknown, false: v1.ConditionTrue}[minute == 1]
				r.disruption = ptr.To(map[v1.ConditionStatus]node.Disruption{v1.ConditionUnknown: node.Unreachable}[kubelet])
				r.mutate = func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: kubelet}} }
				w.node("o").slots = map[bool]int64{true: 9}[minute >= 1]
			}, []string{"6: web-0 heal"}},
		"workloads of a node that an autoscaler removes are not paused": {[]string{"node o on-demand cpu=9", "node r spot cpu=9", "node s spot cpu=9", "deployment web 2 s r min=1"}, []float64{0, 1},
			func(w *world, minute float64) {
				switch minute {
				case 0:
					w.node("o").slots = 0
					w.node("r").facts.Signal = decision.Drain
				case 1:
					w.node("o").slots = 9
					w.pod("web-1").node = w.node("s")
					w.nodes = slices.DeleteFunc(w.nodes, func(n *testNode) bool { return n.name == "r" })
				}
			}, []string{"1: web-0 heal"}},
		"workloads of a node with an advisory signal are not paused": {[]string{"node o on-demand cpu=9", "node r spot cpu=9", "node s spot cpu=9", "deployment web 2 s r min=1"}, []float64{0, 1},
			func(w *world, minute float64) {
				switch minute {
				case 0:
					w.node("o").slots = 0
					w.node("r").facts.Signal = decision.Advisory
				case 1:
					w.node("o").slots = 9
				}
			}, []string{"1: web-1 heal"}},
		"workloads of an on-demand node with a notice are paused": {[]string{"node d on-demand cpu=1", "node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 s s d min=2"}, []float64{0, 1, 4.9, 5},
			func(w *world, minute float64) {
				if w.node("d").facts.Signal = decision.NoSignal; minute == 0 {
					w.node("d").facts.Signal = decision.Reclaim
				}
			}, []string{"5: web-0 heal"}},
		"room was made, and the scheduler uses it a moment later": {[]string{"node o on-demand cpu=1", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 1 o min=0"}, []float64{0, 1, 1.2, 1.3},
			func(w *world, minute float64) {
				switch minute {
				case 1:
					w.pod("web-0").node, w.pod("web-0").name = w.node("s"), "web-9"
				case 1.2:
					w.pod("one-0").node = w.node("o")
				}
			}, []string{"0: web-0 make-room"}},
		"two pods make room when spot has room for both": {[]string{"node a on-demand cpu=2", "node s spot cpu=1", "deployment big 1 - min=1",
			"deployment v 1 a min=0", "deployment w 1 a min=0"}, []float64{0, 1},
			func(w *world, minute float64) {
				w.pod("big-0").slots, w.node("s").created = 2, start
				if minute == 1 {
					w.node("s").slots = 2
				}
			}, []string{"1: v-0 make-room", "1: w-0 make-room"}},
		"room was made, and the replacement used it": {[]string{"node o on-demand cpu=1", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 1 o min=0"}, []float64{0, 1, 1.9, 2},
			func(w *world, minute float64) {
				if minute == 1 {
					w.pod("web-0").name = "web-9"
				}
			}, []string{"0: web-0 make-room", "2: web-9 make-room"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(test.lines...)
			got := script(w, test.minutes, func(minute float64) {
				if test.act != nil {
					test.act(w, minute)
				}
			})
			clustertest.Equal(t, "moves", test.want, got)
		})
	}
}

// A new leader does not repeat at once what failed, and trusts no spot pool that has just lost a
// node.
func TestNextLeader(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		// before runs before a leader plans, in minutes 0, 1 and 2 the first leader.
		before  func(w *world, minute float64)
		minutes []float64 // of the next leader
		want    []string
	}{
		"an undone move": {[]string{"node o on-demand cpu=9", "node r spot cpu=0", "node s spot cpu=9", "deployment web 3 o o o min=1"},
			func(w *world, minute float64) {
				w.pod("web-0").released = map[bool]string{true: "return-to-spot"}[minute == 1]
			}, []float64{2.5, 2.9, 3}, []string{"3: web-0 return-to-spot"}},
		"a move that helped, without the last leader": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset db 2 s s min=2"},
			func(w *world, minute float64) {
				switch minute {
				case 1:
					w.pod("db-0").name, w.pod("db-0").node, w.pod("db-0").slots = "new-0", nil, 99
				case 3:
					w.pod("new-0").node, w.pod("new-0").slots = w.node("o"), 1
				}
			}, []float64{3}, []string{"3: db-1 heal"}},
		"a lost node": {[]string{"node o on-demand cpu=9", "node r spot cpu=0", "node s spot cpu=9", "deployment web 3 o o o min=1", "deployment batch 1 r min=0"},
			func(w *world, minute float64) {
				w.node("s").slots = map[bool]int64{true: 9}[minute >= 2]
				w.node("r").facts.Signal = map[bool]decision.SignalClass{true: decision.Reclaim}[minute == 1]
			}, []float64{3, 10.9, 11}, []string{"11: web-0 return-to-spot"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(test.lines...)
			remembering := settings
			remembering.Memory = &leader.Memory{}
			var got []string
			plan := func(p *rebalance.Planner, minute float64) []string {
				w.now = start.Add(time.Duration(minute * float64(time.Minute)))
				return w.plan(p)
			}
			first := rebalance.NewPlanner(remembering)
			for _, minute := range []float64{0, 1, 2} {
				test.before(w, minute)
				plan(first, minute)
			}
			next := rebalance.NewPlanner(remembering)
			for _, minute := range test.minutes {
				test.before(w, minute)
				for _, move := range plan(next, minute) {
					got = append(got, fmt.Sprintf("%g: %s", minute, move))
				}
			}
			clustertest.Equal(t, "moves of the next leader", test.want, got)
		})
	}
}

// For each way in which nodes are removed, the pool and the workloads are calm unless the node
// counts as lost.
func TestRemovals(t *testing.T) {
	reader := &node.Reader{Policy: &decision.Policy{CapacityLabels: providers.CapacityLabels()}, Signals: providers.Signals()}
	for name, removal := range nodetest.Removals(start) {
		first := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r", Labels: map[string]string{spot.CapacityLabel: "spot"}}}
		states := removal.States(first, &v1.Pod{})
		for how, looks := range removal.Observations(states) {
			t.Run(name+", "+how, func(t *testing.T) {
				w := newWorld("node o on-demand cpu=9", "node r spot cpu=0", "node s spot cpu=9", "deployment web 3 o o o min=1", "deployment batch 1 r min=0")
				p := rebalance.NewPlanner(settings)
				w.node("s").facts.Signal = decision.Advisory // no move to it, except in the last round
				r, pod := w.node("r"), w.pod("batch-0")
				var moves []string
				for i, state := range states {
					w.now = start.Add(time.Duration(i) * time.Second)
					if i > 0 {
						event, ok := reader.DeletionEvent(states[i-1].Node, w.now)
						if state.Node != nil {
							event, ok = reader.UpdateEvent(states[i-1].Node, state.Node, w.now)
						}
						if ok {
							w.events = append(w.events, event)
						}
					}
					if !slices.Contains(looks, i) {
						continue
					}
					switch {
					case len(state.Pods) == 0:
						pod.node, pod.terminating = w.node("s"), false // its replacement
					case state.Pods[0].DeletionTimestamp != nil:
						pod.terminating = true
					}
					if state.Node == nil {
						w.nodes = slices.DeleteFunc(w.nodes, func(n *testNode) bool { return n == r })
					} else {
						facts, _ := reader.Read(state.Node, w.now)
						r.facts.Signal, r.disruption = facts.Signal, ptr.To(reader.Disruption(state.Node, w.now))
						r.mutate = func(n *v1.Node) { *n = *state.Node }
					}
					if i == len(states)-1 {
						w.node("s").facts.Signal = decision.NoSignal
					}
					moves = w.plan(p)
				}
				want := []string{"web-0 return-to-spot"}
				if removal.WantLost || removal.Doubtful && how != "every state" {
					want = nil
				}
				clustertest.Equal(t, "moves", want, moves)
			})
		}
	}
}

// A move by eviction is in progress until the replacement is ready or the time is over: it counts
// against MaxMoves.
func TestMovesInProgress(t *testing.T) {
	for name, test := range map[string]struct {
		replace func(w *world, p *pod)
		want    []string
	}{
		"the replacement starts":     {func(w *world, p *pod) { p.node, p.unready = w.node("s"), true }, []string{"0: api-0", "3: web-0"}},
		"the replacement waits":      {func(w *world, p *pod) { p.node = nil }, []string{"0: api-0", "3: web-0"}},
		"the replacement never runs": {func(w *world, p *pod) { p.node, p.name = nil, "api-8" }, []string{"0: api-0", "6: web-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			limited := settings
			limited.Rebalance.MaxMoves = 1
			w := newWorld("node o on-demand cpu=9", "node s spot cpu=9", "deployment api 2 o o min=1", "deployment web 2 o o min=1")
			p := rebalance.NewPlanner(limited)
			var got []string
			for _, minute := range []int{0, 1, 2, 3, 4, 5, 6} {
				w.now = start.Add(time.Duration(minute) * time.Minute)
				switch minute {
				case 1:
					replacement := w.pod("api-0")
					replacement.name, replacement.created = "api-9", w.now
					test.replace(w, replacement)
				case 3:
					for _, replacement := range w.workload("api").pods {
						if replacement.name == "api-9" {
							replacement.node, replacement.unready = w.node("s"), false
						}
					}
				}
				s := w.snapshot()
				for _, m := range p.Plan(s, simulation.NewRoom(s)) {
					if move := fmt.Sprintf("%d: %s", minute, m.Pod.Name); len(got) == 0 || got[len(got)-1][3:] != m.Pod.Name {
						got = append(got, move)
					}
				}
			}
			clustertest.Equal(t, "moves", test.want, got)
		})
	}
}

// A spot pool appears and disappears every 20 s for 5 minutes, and the lost pods restart on
// on-demand. A workload moves at most once per calm period.
func TestUnstableSpot(t *testing.T) {
	w := newWorld("node o on-demand cpu=12", "node s spot cpu=12", "deployment one 1 - min=1", "deployment two 1 - min=1",
		"deployment web 6 o o o o o o min=1", "deployment api 6 o o o o o o min=1")
	w.node("s").created = start // the node is recreated, so its age is not relevant
	p := rebalance.NewPlanner(settings)
	moved := map[string][]time.Time{}
	for second := 0; second < 900; second++ {
		w.now = start.Add(time.Duration(second) * time.Second)
		if second < 300 && second%20 == 0 {
			if s := w.node("s"); s != nil {
				for _, work := range w.workloads {
					for _, pod := range work.pods {
						if pod.node == s {
							pod.node = nil
						}
					}
				}
				w.nodes = slices.DeleteFunc(w.nodes, func(n *testNode) bool { return n == s })
			} else {
				w.addNode("s", "spot", 12).created = w.now
			}
		}
		w.schedule()
		s := w.snapshot()
		for _, m := range p.Plan(s, simulation.NewRoom(s)) {
			moved[m.Pod.Workload.Name] = append(moved[m.Pod.Workload.Name], w.now)
			w.move(m.Pod.Name, true)
		}
	}
	if len(moved) == 0 {
		t.Fatal("no moves: the test proves nothing")
	}
	for name, times := range moved {
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < settings.Rebalance.CalmPeriod.Duration {
				t.Errorf("%s moved twice within %s", name, gap)
			}
		}
	}
}

// If a replica cannot be created, the replacement of an evicted pod may not be created either, so
// the move must be a surge. An unschedulable replica does not require this.
func TestHealBySurgeIfReplicaIsMissing(t *testing.T) {
	for line, want := range map[string]bool{"deployment web 3 s s min=2": true, "deployment web 3 s s - min=2": false} {
		w := newWorld("node o on-demand cpu=9", "node s spot cpu=9", line)
		if len(w.workload("web").pods) > 2 {
			w.pod("web-2").slots = 99
		}
		p := rebalance.NewPlanner(settings)
		w.plan(p)
		w.now = start.Add(5 * time.Minute)
		s := w.snapshot()
		moves := p.Plan(s, simulation.NewRoom(s))
		if len(moves) != 1 || moves[0].OnlySurge != want {
			t.Errorf("%s: moves %+v, want one with OnlySurge %t", line, moves, want)
		}
	}
}

// A node changes every minute, and each move fails, as with a filter of the user's scheduler that
// Room does not know. The back-off doubles nevertheless, and starts with an hour if the move evicts
// its pod first. The leaders change after each eviction. A new template ends the back-off.
func TestBackOffs(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		pod   string
		want  []string
	}{
		"heal by surge": {[]string{"node o on-demand cpu=9", "deployment web 1 s min=1"}, "web-0",
			[]string{"0 heal", "2 heal", "5 heal", "10 heal", "19 heal", "36 heal", "69 heal", "70 heal stopped", "130 heal", "131 heal stopped", "150 heal"}},
		"heal by eviction": {[]string{"node o on-demand cpu=9", "statefulset db 1 s min=1"}, "db-0",
			[]string{"0 heal", "1 heal stopped", "60 heal", "61 heal stopped", "150 heal"}},
		"return to spot by eviction": {[]string{"node o on-demand cpu=9", "statefulset db 2 o o min=1"}, "db-1",
			[]string{"0 return-to-spot", "1 return-to-spot stopped", "60 return-to-spot", "61 return-to-spot stopped", "150 return-to-spot"}},
		"make room by eviction": {[]string{"node o on-demand cpu=1", "statefulset db 1 o min=0", "deployment one 1 - min=1"}, "db-0",
			[]string{"0 make-room", "1 make-room stopped", "60 make-room", "61 make-room stopped", "150 make-room"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(append([]string{"node s spot cpu=9"}, test.lines...)...)
			remembering := settings
			remembering.Memory = &leader.Memory{}
			p, moved, place := rebalance.NewPlanner(remembering), w.pod(test.pod), w.pod(test.pod).node
			var log []string
			for minute := range 151 {
				w.now = start.Add(time.Duration(minute) * time.Minute)
				w.node("s").taints = []v1.Taint{{Key: "other", Value: fmt.Sprint(minute), Effect: v1.TaintEffectPreferNoSchedule}}
				if minute == 150 {
					w.workloads[0].template = "new"
					for _, p := range w.workloads[0].pods {
						p.revision = 1
					}
				}
				for _, move := range w.plan(p) {
					_, move, _ = strings.Cut(move, " ")
					log = append(log, fmt.Sprintf("%d %s", minute, move))
					if strings.HasSuffix(move, " stopped") {
						continue
					}
					if w.workloads[0].kind == "Deployment" {
						moved.released = move
						w.plan(p)
						moved.released = ""
						continue
					}
					moved.name, moved.node = fmt.Sprintf("%s-%d", test.pod, minute), nil
					w.plan(p)
					moved.node, p = place, rebalance.NewPlanner(remembering)
				}
			}
			clustertest.Equal(t, "moves", test.want, log)
		})
	}
}

// A pause ends moves, but they do not count as failed. They continue after the pause.
func TestPause(t *testing.T) {
	w := newWorld("node o on-demand cpu=9", "node r spot cpu=0", "node s spot cpu=9", "deployment web 3 o o o min=1")
	paused, settings := migration.Reason(""), settings
	settings.Paused = clustertest.Paused(func(c safety.Cause) bool { return c == safety.Cause(paused) })
	p := rebalance.NewPlanner(settings)
	for _, step := range []struct {
		minute   float64
		paused   migration.Reason
		released string
		want     string
	}{
		{0, "", "", "web-0 return-to-spot"},
		{0.5, "", "return-to-spot", ""},
		{0.6, migration.ReturnToSpot, "return-to-spot", ""},
		{0.7, migration.ReturnToSpot, "", ""},
		{0.8, "", "", "web-0 return-to-spot"},
		{30, migration.ReturnToSpot, "", ""},
		{30.1, migration.Heal, "", "web-0 return-to-spot"},
		{30.2, "", "", "web-0 return-to-spot"},
	} {
		w.now, paused = start.Add(time.Duration(step.minute*float64(time.Minute))), step.paused
		w.pod("web-0").released = step.released
		if got := strings.Join(w.plan(p), ", "); got != step.want {
			t.Errorf("minute %g: moves %q, want %q", step.minute, got, step.want)
		}
	}
}
