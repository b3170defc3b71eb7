package rebalance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// provisioning returns the settings of the autoscaler mode.
func provisioning() rebalance.Settings {
	with := settings
	with.Gating = controller.Gating{Enabled: true, SpotLabel: spot.CapacityLabel, ProvisionForReturn: true, HealRunning: true}
	return with
}

// assign makes pods require on-demand, as package gating does.
func assign(w *world, names ...string) {
	for _, name := range names {
		p := w.pod(name)
		p.onlyOnDemand, p.annotations = true, map[string]string{spot.AssignedAnnotation: "on-demand: floor"}
	}
}

// capPools limits a workload to one replica per spot pool.
func capPools(w *world, name string) {
	one := decision.Count(1)
	w.workload(name).settings = func(s *decision.WorkloadSettings) { s.MaxPerPool = &one }
}

// planProvisioning is plan, with the requirement of each move's replacement.
func (w *world) planProvisioning(p *rebalance.Planner) []string {
	s := w.snapshot()
	var moves []string
	for _, m := range p.Plan(s, simulation.NewRoom(s)) {
		move := m.Pod.Name + " " + string(m.Reason)
		if m.Requires != decision.Unassigned {
			move += " " + m.Requires.String()
		}
		moves = append(moves, move)
	}
	return moves
}

// Moves of the first round in the autoscaler mode, and in the same cluster without this mode or
// without its admission policy.
func TestProvisioning(t *testing.T) {
	ungated := provisioning()
	ungated.GatesReplacement = func(time.Time) bool { return false }
	nothing := func(*world) {}
	for name, test := range map[string]struct {
		lines     []string
		change    func(*world)
		want, off []string
	}{
		"heal: on-demand has room": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1"}, nothing,
			[]string{"web-0 heal on-demand"}, []string{"web-0 heal"}},
		"heal: on-demand is full": {[]string{"node o on-demand cpu=0", "node s spot cpu=4", "deployment web 2 s s min=1"}, nothing,
			[]string{"web-0 heal on-demand"}, nil},
		"heal: no on-demand node": {[]string{"node s spot cpu=4", "deployment web 2 s s min=1"}, nothing, []string{"web-0 heal on-demand"}, nil},
		"heal: moves to existing nodes first": {[]string{"node o on-demand cpu=1", "node s spot cpu=20", "deployment a 4 s s s s min=4", "deployment big 2 s s min=1",
			"deployment b 2 s s min=1", "deployment c 2 s s min=1", "deployment d 2 s s min=1", "deployment e 2 s s min=1"},
			func(w *world) {
				w.pod("a-0").slots, w.pod("a-1").slots, w.pod("a-2").slots, w.pod("a-3").slots = 2, 2, 2, 2
			},
			[]string{"big-0 heal on-demand", "a-0 heal on-demand", "b-0 heal on-demand", "c-0 heal on-demand", "d-0 heal on-demand"}, []string{"big-0 heal"}},
		"heal: no surge, on-demand is full": {[]string{"node o on-demand cpu=0", "node s spot cpu=4", "statefulset db 2 s s min=1", "deployment web 2 s s min=1"},
			func(w *world) { w.pod("web-0").port, w.pod("web-1").port = 80, 80 }, nil, nil},
		"heal: no surge, on-demand has room": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "statefulset db 2 s s min=1"}, nothing,
			[]string{"db-0 heal on-demand"}, []string{"db-0 heal"}},
		"heal: the floor is a preference": {[]string{"node o on-demand cpu=0", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.workload("web").settings = func(s *decision.WorkloadSettings) { s.WhenUnsatisfiable = decision.ScheduleAnyway }
			}, nil, nil},
		"heal: its own affinity admits only spot": {[]string{"node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) { w.pod("web-0").onlySpot, w.pod("web-1").onlySpot = true, true }, nil, nil},
		"heal: paused after an interruption": {[]string{"node r spot cpu=4", "node s spot cpu=4", "deployment web 2 s r min=1"},
			func(w *world) { w.node("r").facts.Signal = decision.Reclaim }, nil, nil},

		"return: spot has room": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { assign(w, "web-0") }, []string{"web-1 return-to-spot spot"}, []string{"web-1 return-to-spot"}},
		"return: spot is full": {[]string{"node o on-demand cpu=4", "node s spot cpu=0", "deployment web 3 o o o min=1"},
			func(w *world) { assign(w, "web-0") }, []string{"web-1 return-to-spot spot"}, nil},
		"return: spot is full, and on-demand has more room": {[]string{"node o on-demand cpu=4", "node p on-demand cpu=4", "node s spot cpu=0", "deployment web 3 o o o min=1"},
			func(w *world) { assign(w, "web-0") }, []string{"web-1 return-to-spot spot"}, nil},
		"return: the pool is at its cap": {[]string{"node o on-demand cpu=4", "node s spot cpu=1", "deployment web 3 o o s min=1"},
			func(w *world) {
				assign(w, "web-0")
				capPools(w, "web")
			}, nil, nil},
		"return: no pool is at its cap": {[]string{"node o on-demand cpu=4", "node s spot cpu=0", "deployment web 3 o o o min=1"},
			func(w *world) {
				assign(w, "web-0")
				capPools(w, "web")
			}, []string{"web-1 return-to-spot spot"}, nil},
		"return: no surge, spot is full": {[]string{"node o on-demand cpu=4", "node s spot cpu=0", "statefulset db 3 o o o min=1"},
			func(w *world) { assign(w, "db-0") }, nil, nil},
		"return: no surge, spot has room": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "statefulset db 3 o o o min=1"},
			func(w *world) { assign(w, "db-0") }, []string{"db-1 return-to-spot"}, []string{"db-1 return-to-spot"}},
		"return: moves to existing nodes first": {[]string{"node o on-demand cpu=20", "node s spot cpu=1", "deployment a 2 o min=0", "deployment b 1 o min=0"},
			func(w *world) { w.workload("a").desired, w.pod("a-0").slots = 1, 2 },
			[]string{"b-0 return-to-spot spot", "a-0 return-to-spot spot"}, []string{"b-0 return-to-spot"}},
		"return: a young pool has room": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { assign(w, "web-0"); w.node("s").created = start.Add(-9 * time.Minute) }, nil, nil},
		"return: the only pool is young and full": {[]string{"node o on-demand cpu=4", "node s spot cpu=0", "deployment web 3 o o o min=1"},
			func(w *world) { assign(w, "web-0"); w.node("s").created = start.Add(-9 * time.Minute) }, nil, nil},
		"return: another pool is not calm": {[]string{"node o on-demand cpu=4", "node r spot cpu=0", "node s spot cpu=0", "deployment web 3 o o o min=1"},
			func(w *world) {
				assign(w, "web-0")
				w.node("r").facts.Pool, w.node("r").facts.Signal = decision.NewPool("other", "zone"), decision.Reclaim
			}, []string{"web-1 return-to-spot spot"}, nil},
		"return: no spot since an unknown time": {[]string{"node o on-demand cpu=4", "deployment web 3 o o o min=1"},
			func(w *world) { assign(w, "web-0") }, nil, nil},
		"return: spot does not tolerate the replica": {[]string{"node o on-demand cpu=4", "node s spot cpu=0", "deployment web 3 o o o min=1"},
			func(w *world) {
				assign(w, "web-0")
				w.node("s").taints = []v1.Taint{{Key: "spot", Effect: v1.TaintEffectNoSchedule}}
			}, nil, nil},
		"heal: on-demand does not tolerate the replica": {[]string{"node o on-demand cpu=0", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.node("o").taints = []v1.Taint{{Key: "system", Effect: v1.TaintEffectNoSchedule}}
			}, nil, nil},
		"heal: on-demand is not ready": {[]string{"node o on-demand cpu=0", "node s spot cpu=4", "deployment web 2 s s min=1"},
			func(w *world) {
				w.node("o").taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
			}, []string{"web-0 heal on-demand"}, nil},
		"return: not a replica that requires on-demand by its own affinity": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 o o min=0"},
			func(w *world) { w.pod("web-0").onlyOnDemand, w.pod("web-1").onlyOnDemand = true, true }, nil, nil},
		"return: more pods than the floor are assigned on-demand": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 o o min=1"},
			func(w *world) { assign(w, "web-0", "web-1") }, []string{"web-0 return-to-spot spot"}, nil},

		"running: the floor does not require on-demand": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"}, nothing,
			[]string{"web-0 assign on-demand"}, nil},
		"running: before a return whose replacement would require on-demand": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=1"}, nothing,
			[]string{"web-0 assign on-demand"}, []string{"web-0 return-to-spot"}},
		"running: on-demand is full": {[]string{"node o on-demand cpu=1", "node s spot cpu=4", "deployment web 3 o s s min=1"}, nothing,
			[]string{"web-0 assign on-demand"}, nil},
		"running: no surge, on-demand is full": {[]string{"node o on-demand cpu=1", "node s spot cpu=4", "statefulset db 3 o s s min=1"}, nothing, nil, nil},
		"running: an ordinal in the floor": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "statefulset db 3 o o s min=2"},
			func(w *world) { assign(w, "db-0") }, nil, nil},
		"running: a singleton that cannot surge": {[]string{"node o on-demand cpu=4", "deployment web 1 o min=1"},
			func(w *world) { w.pod("web-0").port = 80 }, nil, nil},
		"running: the cluster autoscaler removes no such node": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) {
				w.node("o").mutate = func(n *v1.Node) {
					n.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
				}
			}, nil, nil},
		"running: Karpenter does not disrupt the node": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) {
				w.node("o").mutate = func(n *v1.Node) { n.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"} }
			}, nil, nil},
		"running: the floor requires on-demand": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) { assign(w, "web-0") }, nil, nil},
		"running: a restored pod that only prefers on-demand": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) { assign(w, "web-0"); w.pod("web-0").onlyOnDemand = false }, nil, nil},
		"running: no assignment would change its affinity": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) { w.pod("web-0").spread = true }, nil, nil},
		"return to spot: a pod of the floor was assigned without affinity": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o s min=1"},
			func(w *world) {
				assign(w, "web-0")
				w.pod("web-0").onlyOnDemand = false
				w.pod("web-0").spread, w.pod("web-1").spread, w.pod("web-2").spread = true, true, true
			}, []string{"web-1 return-to-spot spot"}, []string{"web-0 return-to-spot"}},
		"running: after heal": {[]string{"node o on-demand cpu=1", "node s spot cpu=9", "deployment a 2 o s min=1", "deployment b 2 s s min=1"}, nothing,
			[]string{"b-0 heal on-demand", "a-0 assign on-demand"}, nil},
		"running: not a workload that needs heal": {[]string{"node s spot cpu=9", "node o on-demand cpu=9", "deployment web 3 o s s min=2"}, nothing,
			[]string{"web-1 heal on-demand"}, []string{"web-1 heal"}},
		"running: not while a heal is due, even if its pods must not be disrupted": {
			[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=2"},
			func(w *world) {
				w.pod("web-1").annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
				w.pod("web-2").annotations = w.pod("web-1").annotations
			}, nil, nil},
		"running: not a pod that would lose local data": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) { w.pod("web-0").scratch = true }, nil, nil},
		"running: not a pod that must not be disrupted": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) { w.pod("web-0").annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"} }, nil, nil},
		"running: not while another replica is unready": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) { w.pod("web-2").unready = true }, nil, nil},
		"running: not during a rollout, even if it is paused": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) { w.workload("web").rollingOut, w.workload("web").paused = true, true }, nil, nil},
		"running: no label excludes a spot node": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) {
				w.pod("web-0").annotations = map[string]string{spot.AssignedAnnotation: "none: no label excludes the spot node s, floor"}
			}, nil, nil},
		"running: the floor is a preference": {[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"},
			func(w *world) {
				w.workload("web").settings = func(s *decision.WorkloadSettings) { s.WhenUnsatisfiable = decision.ScheduleAnyway }
			}, nil, nil},
		"make room: needs room on spot": {[]string{"node o on-demand cpu=3", "node s spot cpu=0", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) { assign(w, "web-0", "one-0"); w.node("s").created = start }, nil, nil},
		"make room: not with a replica whose replacement would be assigned on-demand": {
			[]string{"node o on-demand cpu=3", "node s spot cpu=4", "deployment one 1 - min=1", "deployment web 3 o o o min=1"},
			func(w *world) { w.node("s").created = start }, []string{"web-0 assign on-demand"}, []string{"web-0 make-room"}},
		"make room: not with a replica that requires on-demand by its own affinity": {
			[]string{"node o on-demand cpu=2", "node s spot cpu=4", "deployment one 1 - min=1", "statefulset x 1 o min=0", "deployment web 1 o min=0"},
			func(w *world) { w.pod("web-0").onlyOnDemand, w.node("s").created = true, start }, []string{"x-0 make-room"}, []string{"x-0 make-room"}},
	} {
		t.Run(name, func(t *testing.T) {
			for mode, of := range map[string]struct {
				settings rebalance.Settings
				want     []string
			}{"on": {provisioning(), test.want}, "off": {settings, test.off}, "on, without gates": {ungated, test.off}} {
				w := newWorld(test.lines...)
				test.change(w)
				clustertest.Equal(t, fmt.Sprintf("mode %s: moves", mode), of.want, w.planProvisioning(rebalance.NewPlanner(of.settings)))
			}
		})
	}
}

// Each setting of the autoscaler mode can be disabled.
func TestProvisioningDisabled(t *testing.T) {
	for name, test := range map[string]struct {
		off   func(*rebalance.Settings)
		lines []string
		want  []string
	}{
		"return, spot is full": {func(s *rebalance.Settings) { s.Gating.ProvisionForReturn = false },
			[]string{"node o on-demand cpu=4", "node s spot cpu=0", "deployment web 3 o o o min=0"}, nil},
		"return, spot has room": {func(s *rebalance.Settings) { s.Gating.ProvisionForReturn = false },
			[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o o o min=0"}, []string{"web-0 return-to-spot"}},
		"running": {func(s *rebalance.Settings) { s.Gating.HealRunning = false },
			[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"}, nil},
		"running, replacements would not be gated": {func(s *rebalance.Settings) { s.GatesReplacement = time.Time.IsZero },
			[]string{"node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			with := provisioning()
			test.off(&with)
			clustertest.Equal(t, "moves", test.want, newWorld(test.lines...).planProvisioning(rebalance.NewPlanner(with)))
		})
	}
}

// A workload whose pods keep their scheduler is moved only if new pods get gates, because that
// scheduler enforces no floor. Its pods may be younger than the policy, because they opted in
// later.
func TestKeptScheduler(t *testing.T) {
	for name, test := range map[string]struct {
		gates func(created time.Time) bool
		want  []string
	}{
		"gated":                   {func(time.Time) bool { return true }, []string{"web-0 heal on-demand"}},
		"no policy":               {func(time.Time) bool { return false }, nil},
		"younger than the policy": {func(created time.Time) bool { return created.Before(start.Add(-time.Hour)) }, []string{"web-0 heal on-demand"}},
	} {
		t.Run(name, func(t *testing.T) {
			with := provisioning()
			with.GatesReplacement = test.gates
			w := newWorld("node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 s s min=1")
			w.workload("web").keepsScheduler = true
			clustertest.Equal(t, "moves", test.want, w.planProvisioning(rebalance.NewPlanner(with)))
		})
	}
}

// The webhook gates no pod while no controller is ready. So the next leader replaces such pods of
// the floor, although they are younger than the configuration of the webhook.
func TestWebhookOutage(t *testing.T) {
	for name, test := range map[string]struct {
		webhook string
		want    []string
	}{"webhook": {":9443", []string{"web-0 assign on-demand"}}, "policy": {"", nil}} {
		t.Run(name, func(t *testing.T) {
			with := provisioning()
			with.Gating.Webhook.BindAddress = test.webhook
			with.GatesReplacement = func(created time.Time) bool { return created.Before(start.Add(-24 * time.Hour)) }
			w, p := newWorld("node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1"), rebalance.NewPlanner(with)
			for _, pod := range []string{"web-0", "web-1", "web-2"} {
				w.pod(pod).created = w.now.Add(-time.Minute)
			}
			clustertest.Equal(t, "moves", test.want, w.planProvisioning(p))
		})
	}
}

// Another scheduler may place a replica of the floor on a node without a label. The controller
// waits for the label, and heals the floor if the node is spot.
func TestKeptSchedulerWithoutLabel(t *testing.T) {
	for name, test := range map[string]struct {
		source decision.CapacitySource
		kept   bool
		want   []string
	}{
		"no label yet":                {decision.Settling, true, nil},
		"no label yet, our scheduler": {decision.Settling, false, []string{"web-0 heal"}},
		"labelled as spot":            {decision.FromLabel, true, []string{"web-0 heal on-demand"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("node o on-demand cpu=4", "node n spot cpu=4", "node s spot cpu=4", "deployment web 3 s s n min=1")
			w.workload("web").keepsScheduler = test.kept
			w.pod("web-2").onlyOnDemand = true // by the affinity that its assignment added
			w.node("n").facts.Capacity.Source = test.source
			clustertest.Equal(t, "moves", test.want, w.planProvisioning(rebalance.NewPlanner(provisioning())))
		})
	}
}

// A move whose replacement runs on spot failed, although no pod on on-demand lacks the requirement
// any more. Without the back-off, heal would begin at once, and then the same move again.
func TestAssignedPodOnSpot(t *testing.T) {
	w, p := newWorld("node o on-demand cpu=4", "node s spot cpu=4", "deployment web 2 o s min=1"), rebalance.NewPlanner(provisioning())
	clustertest.Equal(t, "moves", []string{"web-0 assign on-demand"}, w.planProvisioning(p))
	replaced := w.pod("web-0")
	replaced.name, replaced.node = "web-9", w.node("s")
	for _, wait := range []time.Duration{time.Second, 30 * time.Second} {
		w.now = start.Add(wait)
		clustertest.Equal(t, "moves", []string(nil), w.planProvisioning(p))
	}
	w.now = start.Add(2 * time.Minute)
	clustertest.Equal(t, "moves", []string{"web-1 heal on-demand"}, w.planProvisioning(p))
}

// A surge for which the autoscaler provisioned no node is undone and retried with an increasing
// back-off.
func TestProvisioningBackOff(t *testing.T) {
	for reason, lines := range map[string][]string{
		"heal":           {"node s spot cpu=9", "deployment web 2 s s min=1"},
		"assign":         {"node o on-demand cpu=1", "node s spot cpu=9", "deployment web 2 o s min=1"},
		"return-to-spot": {"node o on-demand cpu=9", "node s spot cpu=0", "deployment web 2 o o min=0"},
	} {
		t.Run(reason, func(t *testing.T) {
			w, p := newWorld(lines...), rebalance.NewPlanner(provisioning())
			var pod *pod
			var begun []time.Duration
			for minute := range 240 {
				w.now = start.Add(time.Duration(minute) * time.Minute)
				if pod != nil && w.now.Sub(pod.releasedAt) >= 3*time.Minute {
					pod.released, pod = "", nil
				}
				for _, move := range w.plan(p) {
					pod = w.pod(move[:len("web-0")])
					pod.released, pod.releasedAt = reason, w.now
					begun = append(begun, w.now.Sub(start))
				}
			}
			var gaps []string
			for i := 1; i < len(begun); i++ {
				gaps = append(gaps, fmt.Sprint(begun[i]-begun[i-1]))
			}
			if want := []string{"4m0s", "5m0s", "7m0s", "11m0s", "19m0s", "35m0s", "1h3m0s", "1h3m0s"}; !slices.Equal(gaps, want) {
				t.Errorf("times between surges %v, want %v", gaps, want)
			}
		})
	}
}

// After an autoscaler refused a node for a heal, no other pod of the revision is moved for an hour.
// A node that exists is still used.
func TestRefusedByAutoscaler(t *testing.T) {
	with := provisioning()
	with.Provisioning = &simulation.Provisioning{}
	w, p := newWorld("node s spot cpu=9", "deployment web 2 s s min=1"), rebalance.NewPlanner(with)
	w.now = start.Add(time.Minute)
	with.Provisioning.Refuse(w.snapshot().Workloads[0].Revisions[0].Key, decision.AssignedOnDemand, w.now)
	for _, step := range []struct {
		after time.Duration
		node  string
		want  []string
	}{{59 * time.Minute, "", nil}, {61 * time.Minute, "", []string{"web-0 heal on-demand"}}, {2 * time.Minute, "node o on-demand cpu=4", []string{"web-0 heal on-demand"}}} {
		w.now = start.Add(time.Minute + step.after)
		if step.node != "" {
			w, p = newWorld(step.node, "node s spot cpu=9", "deployment web 2 s s min=1"), rebalance.NewPlanner(with)
		}
		clustertest.Equal(t, fmt.Sprintf("after %s: moves", step.after), step.want, w.planProvisioning(p))
	}
}

// Karpenter removes only the nodes of NodePools.
func TestAssignWithKarpenter(t *testing.T) {
	for label, want := range map[string][]string{"": nil, "karpenter.sh/nodepool": {"web-0 assign on-demand"}} {
		with := provisioning()
		with.Provisioning = &simulation.Provisioning{}
		with.Provisioning.SetPools([]providers.NodePool{{}})
		w := newWorld("node o on-demand cpu=4", "node s spot cpu=4", "deployment web 3 o s s min=1")
		w.node("o").mutate = func(n *v1.Node) { n.Labels[label] = "default" }
		clustertest.Equal(t, "moves", want, w.planProvisioning(rebalance.NewPlanner(with)))
	}
}

// A replacement that requires on-demand is followed by the next one without a back-off.
func TestConsecutiveAssigns(t *testing.T) {
	w, p := newWorld("node o on-demand cpu=9", "node s spot cpu=9", "deployment web 4 o o s s min=2"), rebalance.NewPlanner(provisioning())
	var got []string
	for minute := range 3 {
		w.now = start.Add(time.Duration(minute) * time.Minute)
		for _, move := range w.planProvisioning(p) {
			got = append(got, fmt.Sprintf("%d: %s", minute, move))
		}
		if next := fmt.Sprintf("web-%d", minute); minute < 2 {
			assign(w, next)
			w.pod(next).name = next + "-replaced"
		}
	}
	clustertest.Equal(t, "moves", []string{"0: web-0 assign on-demand", "1: web-1 assign on-demand"}, got)
}

// No node is provisioned for a pod for which there was no time to look for room.
func TestProvisionNothingUnexamined(t *testing.T) {
	s := newWorld("node o on-demand cpu=9", "node s spot cpu=9", "deployment ill 2 s s min=1", "deployment run 2 o s min=1", "deployment web 2 o o min=0").snapshot()
	if moves := rebalance.NewPlanner(provisioning()).Plan(s, simulation.NewRoomUntil(s, func() bool { return true })); len(moves) > 0 {
		t.Errorf("%d moves; the first moves %s", len(moves), moves[0].Pod.Name)
	}
}

// Without any spot node, spot is provisioned after the planner has observed this for a calm period:
// the last node may have been lost just before.
func TestProvisionSpotAfterCalmPeriod(t *testing.T) {
	w, p := newWorld("node o on-demand cpu=9", "node s spot cpu=0", "deployment web 3 o o o min=0"), rebalance.NewPlanner(provisioning())
	w.node("s").facts.Signal = decision.Reclaim
	var got []string
	for _, minute := range []int{-1, 0, 9, 10} {
		w.now = start.Add(time.Duration(minute) * time.Minute)
		if minute == 0 {
			w.nodes = slices.DeleteFunc(w.nodes, func(n *testNode) bool { return n.name == "s" })
		}
		for _, move := range w.planProvisioning(p) {
			got = append(got, fmt.Sprintf("%d: %s", minute, move))
		}
	}
	clustertest.Equal(t, "moves", []string{"10: web-0 return-to-spot spot"}, got)
}
