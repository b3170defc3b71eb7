package rebalance_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// noOverflow makes the replicas of a workload beyond its floor wait for spot.
func noOverflow(s *decision.WorkloadSettings) { s.Overflow = decision.NeverOverflow }

func TestFirstRound(t *testing.T) {
	nothing := func(*world) {}
	groups := []string{"node o on-demand cpu=9", "node s spot cpu=9", "statefulset g 3 o o o min=1", "statefulset g-0 2 o o min=0", "statefulset g-1 2 o o min=0"}
	joined := func(change func(*world)) func(*world) {
		return func(w *world) {
			w.workload("g-0").leaders, w.workload("g-1").leaders = "g", "g"
			change(w)
		}
	}
	cases := map[string]struct {
		lines  []string
		change func(*world)
		want   []string
	}{
		"no violation": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"}, nothing, nil},

		"heal: over budget, on-demand has room": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			nothing, []string{"web-0 heal"}},
		"heal: over budget, on-demand is full": {[]string{"node o on-demand cpu=1", "node s spot cpu=4", "deployment web 2 s s min=1", "deployment a 1 o min=1"},
			nothing, nil},
		"heal: the youngest pod": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.pod("web-1").created = start.Add(-time.Minute) }, []string{"web-1 heal"}},
		"heal: the cheapest pod, although it is older": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.pod("web-0").created, w.pod("web-0").annotations = start.Add(-time.Minute), map[string]string{v1.PodDeletionCost: "1000"}
				w.pod("web-1").annotations = map[string]string{v1.PodDeletionCost: "-100"}
			}, []string{"web-1 heal"}},
		"heal: the controller's own cost does not count": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.pod("web-0").annotations = map[string]string{v1.PodDeletionCost: "1000", spot.DeletionCostAnnotation: "1000"}
			}, []string{"web-0 heal"}},
		"heal: an unready pod, although it costs more": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.pod("web-1").annotations, w.pod("web-1").unready = map[string]string{v1.PodDeletionCost: "1000"}, true
			}, []string{"web-1 heal"}},
		"return: the cheapest pod": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) {
				w.pod("web-0").annotations = map[string]string{v1.PodDeletionCost: "7"}
				w.pod("web-2").annotations = map[string]string{v1.PodDeletionCost: "-7"}
			}, []string{"web-2 return-to-spot"}},
		"make room: the cheapest pod": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) {
				w.pod("web-0").annotations = map[string]string{v1.PodDeletionCost: "7"}
				w.node("s").created = start
			}, []string{"web-1 make-room"}},
		"make room: a cost spares no pod at the expense of another workload": {
			[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment one 1 - min=1", "deployment a 2 o o min=1", "deployment b 2 o o min=1"},
			func(w *world) {
				w.pod("a-0").annotations = map[string]string{v1.PodDeletionCost: "9"}
				w.pod("a-1").annotations = map[string]string{v1.PodDeletionCost: "9"}
				w.node("s").created = start
			}, []string{"a-0 make-room"}},
		"heal: an unready pod, although it is older": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.pod("web-0").created = start.Add(-time.Minute); w.pod("web-1").unready = true }, []string{"web-1 heal"}},
		"heal: one pod must not be disrupted": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.pod("web-0").annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			}, []string{"web-1 heal"}},
		"heal: pods must not be disrupted for some time": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.pod("web-0").annotations = map[string]string{"karpenter.sh/do-not-disrupt": "2h"}
				w.pod("web-1").annotations = map[string]string{"karpenter.sh/do-not-disrupt": "1h"}
			}, []string{"web-1 heal"}},
		"heal: pods admit only spot": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.pod("web-0").onlySpot, w.pod("web-1").onlySpot = true, true }, nil},
		"heal: pods admit only spot, with exemptions ignored": {
			[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.pod("web-0").onlySpot, w.pod("web-1").onlySpot = true, true
				w.workload("web").settings = func(s *decision.WorkloadSettings) { s.Exemptions = decision.IgnoreExemptions }
			}, nil},
		"heal: the largest deficit first": {[]string{"node o on-demand cpu=1", "node s spot cpu=9", "deployment a 2 s s min=1", "deployment b 3 s s s min=2"},
			nothing, []string{"b-0 heal"}},
		"heal: not during a rollout": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.workload("web").rollingOut = true }, nil},
		"heal: not while surplus pods are deleted": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "deployment web 4 o o s s s s s min=2"},
			nothing, nil},
		"heal: a paused rollout, the newest revision": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "deployment web 4 s s s s min=1"},
			func(w *world) {
				w.workload("web").rollingOut, w.workload("web").paused = true, true
				w.pod("web-2").revision, w.pod("web-3").revision = 1, 1
			}, []string{"web-2 heal"}},
		"heal: a step of a rollout that may last for days": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "deployment web 4 s s s s min=1"},
			func(w *world) {
				w.workload("web").rollingOut, w.workload("web").kind = true, "Rollout"
				w.pod("web-2").revision, w.pod("web-3").revision = 1, 1
			}, []string{"web-2 heal"}},
		"heal: a step of a rollout that is in progress": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "deployment web 4 s s s s min=1"},
			func(w *world) {
				w.workload("web").rollingOut, w.workload("web").kind = true, "Rollout"
				w.pod("web-2").revision, w.pod("web-3").revision, w.pod("web-3").node = 1, 1, nil
			}, nil},
		"heal: a paused rollout, only spot has room": {[]string{"node o on-demand cpu=0", "node s spot cpu=9", "deployment web 4 s s s s min=1"},
			func(w *world) {
				w.workload("web").rollingOut, w.workload("web").paused = true, true
				w.pod("web-2").revision, w.pod("web-3").revision = 1, 1
			}, nil},
		"heal: one pod admits only spot": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.pod("web-0").onlySpot = true }, []string{"web-1 heal"}},
		"heal: takes room that a waiting pod needs": {[]string{"node o on-demand cpu=2", "node s spot cpu=9", "deployment ill 2 s s min=1", "deployment big 1 - min=1",
			"deployment w 1 o min=0"},
			func(w *world) { w.pod("big-0").slots = 2; w.node("s").created = start }, []string{"ill-0 heal"}},
		"heal: an ordinal in the floor": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "statefulset db 3 o s s min=2"}, nothing, []string{"db-1 heal"}},
		"heal: an ordinal below the first, without a floor": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "statefulset db 1 s min=0"},
			func(w *world) { w.pod("db-0").ordinal = -1 }, nil},
		"heal: not an ordinal beyond the floor": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "statefulset db 3 o s s min=1"}, nothing, nil},
		"heal: not pods of other controllers": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "pod one-0 s min=1", "job sum 2 s s min=2", "pod c-0 s owner=CloneSet/c min=1"},
			nothing, nil},
		"heal: not an unmanaged workload": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.workload("web").unmanaged = true }, nil},
		"heal: a replica is leaving": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s s min=1"},
			func(w *world) { w.pod("web-2").released = "heal" }, nil},
		"heal: a replica is terminating": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s s min=1"},
			func(w *world) { w.pod("web-2").terminating = true }, nil},
		"heal: a replica is missing": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 s s min=2"}, nothing, nil},
		"heal: a replica is starting": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 s s o min=2"},
			func(w *world) { w.pod("web-2").created, w.pod("web-2").unready = start.Add(-time.Minute), true }, nil},
		"heal: not a pod on a node that is being drained": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.node("s").facts.Signal = decision.Drain }, nil},
		"heal: paused after an interruption": {[]string{"node o on-demand cpu=4", "node r spot cpu=4", "node s spot cpu=4", "deployment web 2 s r min=1"},
			func(w *world) { w.node("r").facts.Signal = decision.Reclaim }, nil},

		"return: spot has room": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"}, nothing, []string{"web-0 return-to-spot"}},
		"return: another replica has long been unready": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o s min=1"},
			func(w *world) { w.pod("web-2").unready = true }, nil},
		"return: the unready replica may move": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { w.pod("web-2").unready = true }, []string{"web-2 return-to-spot"}},
		"make room: not with an unready replica": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 4 o o o s min=1"},
			func(w *world) { w.pod("web-3").unready = true; w.node("s").created = start }, nil},
		"return: spot is full": {[]string{"node o on-demand cpu=4", "node s spot cpu=0", "deployment web 3 o o o min=1"}, nothing, nil},
		"return: not during a rollout, even if it is paused": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { w.workload("web").rollingOut, w.workload("web").paused = true, true }, nil},
		"return: the pool is young": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { w.node("s").created = start.Add(-9 * time.Minute) }, nil},
		"return: a node of the pool is being reclaimed": {[]string{"node o on-demand cpu=4", "node r spot cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { w.node("r").facts.Signal = decision.Reclaim }, nil},
		"return: not to a node with an advisory signal": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { w.node("s").facts.Signal = decision.Advisory }, nil},
		"return: the ordinals beyond the floor": {[]string{"node o on-demand cpu=4", "node s spot cpu=9", "statefulset db 3 o o o min=2"}, nothing, []string{"db-2 return-to-spot"}},
		"return: one group at a time":           {groups, joined(nothing), []string{"g-1 return-to-spot"}},
		"return: not while a leader is starting": {groups,
			joined(func(w *world) { w.pod("g-2").unready, w.pod("g-2").created = true, start }), nil},
		"return: not while a pod of another group waits": {groups, joined(func(w *world) { w.pod("g-1-1").node = nil }), nil},
		"return: StatefulSets that are no groups":        {groups, nothing, []string{"g-1 return-to-spot", "g-0-0 return-to-spot", "g-1-0 return-to-spot"}},
		"return: another ordinal if the first does not fit": {[]string{"node o on-demand cpu=6", "node s spot cpu=1", "statefulset db 3 o o o min=1"},
			func(w *world) { w.pod("db-1").slots = 3 }, []string{"db-2 return-to-spot"}},
		"return: at most MaxMoves": {[]string{"node o on-demand cpu=20", "node s spot cpu=20",
			"deployment a 2 o o min=1", "deployment b 2 o o min=1", "deployment c 2 o o min=1", "deployment d 2 o o min=1",
			"deployment e 2 o o min=1", "deployment f 2 o o s min=1"},
			func(w *world) { w.pod("f-2").released = "return-to-spot" },
			[]string{"a-0 return-to-spot", "b-0 return-to-spot", "c-0 return-to-spot", "d-0 return-to-spot"}},

		"make room: a singleton waits": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			nothing, []string{"web-0 make-room"}},
		"make room: even to a pool that is not calm": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) { w.node("s").created = start }, []string{"web-0 make-room"}},
		"make room: spot has no room": {[]string{"node o on-demand cpu=3", "deployment one 1 - min=1", "deployment web 3 o o o min=1"}, nothing, nil},
		"make room: room is being made": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o o min=1"},
			func(w *world) { w.pod("web-3").terminating = true; w.node("s").created = start }, nil},
		"make room: a terminating pod makes it": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1",
			"deployment w 1 o min=0"},
			func(w *world) { w.pod("web-2").terminating = true; w.node("s").created = start }, nil},
		"make room: not with an ordinal in the floor": {[]string{"node o on-demand cpu=2", "node s spot cpu=4", "deployment one 1 - min=1", "statefulset db 2 o o min=1"},
			func(w *world) { w.node("s").created = start }, []string{"db-1 make-room"}},
		"make room: only for the longest-waiting pod": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment one 1 - min=1", "deployment two 1 - min=1",
			"deployment web 3 o o o o min=1"},
			func(w *world) { w.pod("web-3").terminating = true; w.node("s").created = start }, nil},
		"make room: not for a pod that may run on spot": {[]string{"node o on-demand cpu=3", "node s spot cpu=0", "deployment one 1 - min=0", "deployment web 3 o o o min=1"},
			nothing, nil},
		"make room: not for a pod that admits only spot, with exemptions ignored": {
			[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) {
				w.pod("one-0").onlySpot = true
				w.workload("one").settings = func(s *decision.WorkloadSettings) { s.Exemptions = decision.IgnoreExemptions }
				w.node("s").created = start
			}, nil},
		"make room: not for a replica that overflow Never keeps off on-demand": {
			[]string{"node o on-demand cpu=4", "node s spot cpu=0", "deployment low 3 o o o min=1", "deployment web 2 o - min=1"},
			func(w *world) { w.workload("web").settings = noOverflow }, nil},
		"make room: for a floor, overflow Never": {
			[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) {
				w.workload("one").settings, w.workload("web").settings = noOverflow, noOverflow
				w.node("s").created = start
			}, []string{"web-0 make-room"}},
		"return: beyond the floor, overflow Never": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 o o s min=1"},
			func(w *world) { w.workload("web").settings = noOverflow }, []string{"web-0 return-to-spot"}},
		"heal: overflow Never": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.workload("web").settings = noOverflow }, []string{"web-0 heal"}},
		"make room: preemption makes it": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) { w.pod("one-0").nominated = "o"; w.node("s").created = start }, nil},
		"make room: the pods there are a floor": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=3"},
			nothing, nil},
		"make room: the node has an untolerated taint": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) {
				w.node("o").taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}}
				w.node("s").created = start
			}, nil},
		"make room: the node is not ready": {[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) { w.node("o").unready = true; w.node("s").created = start }, nil},
		"make room: the node on which one move is enough": {[]string{"node a on-demand cpu=2", "node b on-demand cpu=2", "node s spot cpu=9", "deployment big 1 - min=1",
			"deployment v 1 a min=0", "deployment w 1 a min=0", "deployment x 1 b min=0"},
			func(w *world) { w.pod("big-0").slots = 2; w.pod("x-0").slots = 2; w.node("s").created = start }, []string{"x-0 make-room"}},
		"make room: two pods together": {[]string{"node a on-demand cpu=2", "node s spot cpu=9", "deployment big 1 - min=1",
			"deployment v 1 a min=0", "deployment w 1 a min=0"},
			func(w *world) { w.pod("big-0").slots = 2; w.node("s").created = start }, []string{"v-0 make-room", "w-0 make-room"}},
		"make room: not enough": {[]string{"node a on-demand cpu=2", "node s spot cpu=9", "deployment big 1 - min=1",
			"deployment v 1 a min=0", "deployment w 1 a min=0"},
			func(w *world) { w.pod("big-0").slots = 3; w.node("s").created = start }, nil},
		"make room: one of two equal pods": {[]string{"node o on-demand cpu=2", "node s spot cpu=1", "deployment one 1 - min=1",
			"deployment v 1 o min=0", "deployment w 1 o min=0"},
			func(w *world) {
				w.pod("v-0").slots = 1
				w.pod("v-0").created = start.Add(-time.Minute)
				w.node("s").created = start
			}, []string{"v-0 make-room"}},
		"make room: with a pod of the same StatefulSet": {[]string{"node o on-demand cpu=1", "node s spot cpu=4", "statefulset db 3 - s o min=1"},
			func(w *world) { w.node("s").created = start }, []string{"db-2 make-room"}},
		"make room: two pods together, and spot has room for one": {[]string{"node a on-demand cpu=2", "node s spot cpu=1", "deployment big 1 - min=1",
			"deployment v 1 a min=0", "deployment w 1 a min=0"},
			func(w *world) { w.pod("big-0").slots = 2; w.node("s").created = start }, nil},
		"make room: a node whose other pods do not exclude the waiting pod": {[]string{"node a on-demand cpu=2", "node b on-demand cpu=2", "node s spot cpu=9", "deployment one 1 - min=1",
			"deployment guard 1 a min=1", "deployment v 1 a min=0", "deployment w 2 b b min=0"},
			func(w *world) { w.pod("one-0").apart("guard", v1.LabelHostname); w.node("s").created = start }, []string{"w-0 make-room"}},
		"make room: a node with room excludes the waiting pod": {[]string{"node a on-demand cpu=9", "node b on-demand cpu=1", "node s spot cpu=9", "deployment one 1 - min=1",
			"deployment guard 1 a min=1", "deployment w 1 b min=0"},
			func(w *world) { w.pod("one-0").apart("guard", v1.LabelHostname); w.node("s").created = start }, []string{"w-0 make-room"}},
		"make room: the excluding pod is terminating": {[]string{"node a on-demand cpu=9", "node b on-demand cpu=1", "node s spot cpu=9", "deployment one 1 - min=1",
			"deployment guard 1 a min=1", "deployment w 1 b min=0"},
			func(w *world) {
				w.pod("one-0").apart("guard", v1.LabelHostname)
				w.pod("guard-0").terminating = true
				w.node("s").created = start
			}, nil},
		"make room: the excluding pod would stay in the zone": {[]string{"node a on-demand cpu=9", "node s spot cpu=9", "deployment one 1 - min=1", "deployment web 1 a min=0"},
			func(w *world) { w.pod("one-0").apart("web", v1.LabelTopologyZone); w.node("s").created = start }, nil},
		"make room: the excluding pod leaves the zone": {[]string{"node a on-demand cpu=9", "node s spot cpu=9", "deployment one 1 - min=1", "deployment web 1 a min=0"},
			func(w *world) {
				w.pod("one-0").apart("web", v1.LabelTopologyZone)
				w.node("s").created, w.node("s").zone = start, "other"
			}, []string{"web-0 make-room"}},
		"make room: for the second of two pods that exclude each other": {[]string{"node a on-demand cpu=3", "node b on-demand cpu=1", "node s spot cpu=9", "deployment one 2 - - min=2",
			"deployment v 2 a a min=0", "deployment x 1 b min=0"},
			func(w *world) {
				w.pod("one-0").apart("one", v1.LabelHostname)
				w.pod("one-1").apart("one", v1.LabelHostname)
				w.node("s").created = start
			}, []string{"x-0 make-room"}},
		"make room: on a port": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment one 1 - min=1", "deployment v 1 o min=0", "deployment w 1 o min=0"},
			func(w *world) { w.pod("one-0").port, w.pod("w-0").port = 80, 80; w.node("s").created = start }, []string{"w-0 make-room"}},
		"make room: for the higher priority": {[]string{"node o on-demand cpu=1", "node s spot cpu=4", "deployment one 1 - min=1", "deployment two 1 - min=1",
			"deployment web 1 o min=0"},
			func(w *world) { w.pod("two-0").priority = 5; w.node("s").created = start }, []string{"web-0 make-room"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(test.lines...)
			test.change(w)
			clustertest.Equal(t, "moves", test.want, w.plan(rebalance.NewPlanner(settings)))
		})
	}
}

// Each reason can be disabled.
func TestReasonsDisabled(t *testing.T) {
	lines := []string{"node o on-demand cpu=4", "node s spot cpu=9", "deployment ill 2 s s min=1", "deployment one 1 - min=1", "deployment two 1 - min=1",
		"deployment web 3 o o o min=1", "deployment x 1 s min=0"}
	for name, test := range map[string]struct {
		off  func(*rebalance.Settings)
		want []string
	}{
		"none":           {func(*rebalance.Settings) {}, []string{"web-0 make-room"}},
		"make room":      {func(s *rebalance.Settings) { s.Rebalance.MakeRoom = false }, []string{"web-0 return-to-spot"}},
		"both":           {func(s *rebalance.Settings) { s.Rebalance.MakeRoom, s.Rebalance.ReturnToSpot = false, false }, nil},
		"return to spot": {func(s *rebalance.Settings) { s.Rebalance.ReturnToSpot = false }, []string{"web-0 make-room"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings
			test.off(&s)
			clustertest.Equal(t, "moves", test.want, newWorld(lines...).plan(rebalance.NewPlanner(s)))
		})
	}
	s := settings
	s.Rebalance.Heal = false
	if got := newWorld("node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1").plan(rebalance.NewPlanner(s)); got != nil {
		t.Errorf("without heal: %v", got)
	}
}

// No workload of an unselected namespace is moved, for any reason. All workloads of the worlds are
// in namespace shop.
func TestSelectedNamespaces(t *testing.T) {
	for reason, lines := range map[string][]string{
		"heal":           {"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"},
		"return-to-spot": {"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 o o min=1"},
		"make-room":      {"node o on-demand cpu=2", "node s spot cpu=4", "deployment web 2 o o min=1", "deployment db 1 - min=1"},
	} {
		for namespace, want := range map[string][]string{"shop": {"web-0 " + reason}, "mail": nil} {
			t.Run(reason+" in "+namespace, func(t *testing.T) {
				with := settings
				with.Selects = func(name string) bool { return name == namespace }
				clustertest.Equal(t, "moves", want, newWorld(lines...).plan(rebalance.NewPlanner(with)))
			})
		}
	}
}

// A pod with local data is moved for its workload's floor and to make room, but not to save cost.
func TestLocalStorage(t *testing.T) {
	for name, test := range map[string]struct {
		lines      []string
		keep, move []string
	}{
		"heal":           {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"}, []string{"web-0 heal"}, []string{"web-0 heal"}},
		"return to spot": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 o o min=1"}, nil, []string{"web-0 return-to-spot"}},
		"make room": {[]string{"node o on-demand cpu=2", "node s spot cpu=4", "deployment db 1 - min=1", "deployment web 2 o o min=1"},
			[]string{"web-0 make-room"}, []string{"web-0 make-room"}},
	} {
		t.Run(name, func(t *testing.T) {
			for permitted, want := range map[bool][]string{false: test.keep, true: test.move} {
				w := newWorld(test.lines...)
				for _, p := range w.workload("web").pods {
					p.scratch = true
				}
				with := settings
				if permitted {
					with.Rebalance.LocalStorage = controller.MoveLocalStorage
				}
				clustertest.Equal(t, fmt.Sprintf("MoveLocalStorage %t: moves", permitted), want, w.plan(rebalance.NewPlanner(with)))
			}
		})
	}
	w := newWorld("node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 o o min=1")
	w.pod("web-0").scratch = true
	clustertest.Equal(t, "one of two has data on its node: moves", []string{"web-1 return-to-spot"}, w.plan(rebalance.NewPlanner(settings)))
}
