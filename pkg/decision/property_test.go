package decision_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// TestRandomHistories drives a cluster through random histories of placements, scaling, deletions,
// rollouts and lost nodes. checkPlacement verifies every single placement.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster()
		c.policy.Defaults.MinOnDemand = quantities().Draw(t, "minOnDemand")
		c.policy.Defaults.FallbackAfter = rapid.SampledFrom([]time.Duration{decision.Never, 40 * time.Second, 5 * time.Minute}).Draw(t, "fallbackAfter")
		if rapid.Bool().Draw(t, "no overflow") {
			c.policy.Defaults.Overflow = decision.NeverOverflow
		}
		if rapid.Bool().Draw(t, "capped") {
			c.policy.Defaults.MaxPerPool = new(decision.Count(rapid.IntRange(1, 3).Draw(t, "maxPerPool")))
		}
		c.onBind = func(p *pod) { checkPlacement(t, c, p) }
		created := 0
		addNode := func(t *rapid.T) {
			created++
			n := node{name: fmt.Sprintf("n%d", created), labels: map[string]string{}, slots: rapid.IntRange(1, 4).Draw(t, "slots"), created: c.now}
			n.labels[spot.CapacityLabel] = rapid.SampledFrom([]string{"spot", "on-demand", ""}).Draw(t, "capacity")
			n.pool = decision.NewPool(rapid.SampledFrom([]string{"m5", "c5", ""}).Draw(t, "type"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"))
			c.nodes = append(c.nodes, &n)
			c.refresh()
		}
		addWorkload := func(t *rapid.T) {
			created++
			kind := rapid.SampledFrom([]string{"Deployment", "Deployment", "StatefulSet", "ReplicaSet", "Job", "Pod", "CloneSet"}).Draw(t, "kind")
			w := &workload{
				kind: kind, namespace: "default", name: fmt.Sprintf("w%d", created), replicas: rapid.IntRange(0, 6).Draw(t, "replicas"),
				completions: 5, backoffLimit: rapid.IntRange(0, 1).Draw(t, "backoffLimit"), annotations: map[string]string{},
				maxSurge: -1, maxUnavailable: -1, parallel: rapid.Bool().Draw(t, "parallel"),
				onlySpot: rapid.IntRange(0, 5).Draw(t, "onlySpot") == 0,
			}
			w.onlyOnDemand = !w.onlySpot && rapid.IntRange(0, 5).Draw(t, "onlyOnDemand") == 0
			w.addRevision()
			if kind == "Pod" {
				w.replicas = 1
				w.revisions[0].add(0, 0)
			}
			c.workloads = append(c.workloads, w)
		}
		for range 3 {
			addNode(t)
			addWorkload(t)
		}
		anyWorkload := func(t *rapid.T) *workload {
			return rapid.SampledFrom(c.workloads).Draw(t, "workload")
		}
		anyNode := func(t *rapid.T) *node {
			if len(c.nodes) == 0 {
				t.Skip("no node")
			}
			return rapid.SampledFrom(c.nodes).Draw(t, "node")
		}
		t.Repeat(map[string]func(*rapid.T){
			"node":     addNode,
			"workload": addWorkload,
			"place": func(t *rapid.T) {
				for _, w := range c.workloads {
					c.reconcile(w)
				}
				if pending := c.pending(); len(pending) > 0 {
					c.place(rapid.SampledFrom(pending).Draw(t, "pod"))
				}
			},
			"settle": func(t *rapid.T) {
				c.settle()
				checkPending(t, c)
			},
			"scale": func(t *rapid.T) {
				if w := anyWorkload(t); w.kind != "Pod" {
					w.replicas = rapid.IntRange(0, 8).Draw(t, "replicas")
				}
			},
			"rollout": func(t *rapid.T) {
				if w := anyWorkload(t); w.kind == "Deployment" {
					w.addRevision()
				}
			},
			"undo": func(t *rapid.T) { anyWorkload(t).undo() },
			"annotate": func(t *rapid.T) {
				w := anyWorkload(t)
				w.annotations[spot.MinOnDemandAnnotation] = quantities().Draw(t, "minOnDemand").String()
				if rapid.Bool().Draw(t, "anyway") {
					w.annotations[spot.WhenUnsatisfiableAnnotation] = rapid.SampledFrom([]string{"ScheduleAnyway", "DoNotSchedule"}).Draw(t, "value")
				}
			},
			"delete pod": func(t *rapid.T) {
				if pods := anyWorkload(t).pods(); len(pods) > 0 {
					rapid.SampledFrom(pods).Draw(t, "pod").remove()
				}
			},
			"lose node": func(t *rapid.T) {
				c.removeNode(anyNode(t))
				c.refresh()
			},
			"signal": func(t *rapid.T) {
				anyNode(t).signal = decision.SignalClass(rapid.IntRange(0, 3).Draw(t, "class"))
			},
			"wait": func(t *rapid.T) {
				c.now += time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second
				c.refresh()
			},
		})
	})
}

// checkPlacement verifies one placement against policy.md. It shares no arithmetic with the
// package: it counts pods and computes floors itself.
func checkPlacement(t *rapid.T, c *cluster, p *pod) {
	w, n := p.revision.workload, p.node
	if n.signal == decision.Drain || n.signal == decision.Reclaim {
		t.Fatalf("%s was placed on %s, which is drained or reclaimed", p.name, n.name)
	}
	if isOnDemand(c, n) {
		if overflowRefuses(c, p) {
			t.Fatalf("%s of %s %s was placed on on-demand beyond its floor", p.name, w.kind, w.name)
		}
		return
	}
	floor, desired := expectedFloor(c, w)
	onSpot, inPool := 0, 0
	for _, sibling := range p.revision.pods { // including p
		if sibling.node != nil && !isOnDemand(c, sibling.node) {
			onSpot++
			inPool += count(sibling.node.pool == n.pool)
		}
	}
	withinBudget := onSpot <= desired-floor
	if w.kind == "StatefulSet" {
		withinBudget = p.ordinal >= floor
	}
	maxPerPool := c.policy.Defaults.MaxPerPool
	withinCap := maxPerPool == nil || n.pool == decision.Pool{} || *maxPerPool == decision.Count(0) || inPool <= maxPerPool.Of(0)
	var waited time.Duration
	if p.unschedulable >= 0 {
		waited = c.now - p.unschedulable
	}
	olderOnDemand := false
	for _, other := range w.revisions {
		for _, sibling := range other.pods {
			if other.number < p.revision.number && sibling.node != nil && isOnDemand(c, sibling.node) {
				olderOnDemand = true
			}
		}
	}
	fallback := c.policy.Defaults.FallbackAfter
	allowed := map[decision.Outcome]bool{
		// A pod that admits only spot is exempt from the budget; without a floor it needs no
		// exemption.
		decision.InBudget:         withinCap && (withinBudget && !w.onlySpot || w.onlySpot && floor == 0),
		decision.ByExemption:      w.onlySpot && floor > 0,
		decision.ByScheduleAnyway: w.annotations[spot.WhenUnsatisfiableAnnotation] == "ScheduleAnyway",
		decision.ByFallback:       fallback != decision.Never && waited >= fallback,
		decision.ByRolloutRelief:  olderOnDemand && waited >= 30*time.Second,
	}
	if !allowed[p.outcome] {
		t.Fatalf("%s of %s %s was placed on spot as %q: %d of the revision on spot, %d in the pool, desired %d, floor %d, ordinal %d, waited %v",
			p.name, w.kind, w.name, p.outcome, onSpot, inPool, desired, floor, p.ordinal, waited)
	}
	if p.outcome != decision.InBudget && p.outcome != decision.ByExemption && withinBudget && withinCap {
		t.Fatalf("%s was placed on spot as %q though it was within its budget", p.name, p.outcome)
	}
}

// checkPending fails if a pod is pending although the policy admits it to a node with room.
func checkPending(t *rapid.T, c *cluster) {
	for _, p := range c.pending() {
		w := p.revision.workload
		floor, desired := expectedFloor(c, w)
		onSpot := 0
		for _, sibling := range p.revision.pods {
			onSpot += count(sibling.node != nil && !isOnDemand(c, sibling.node))
		}
		for _, n := range c.nodes {
			if n.used >= n.slots || n.signal == decision.Drain || n.signal == decision.Reclaim {
				continue
			}
			if isOnDemand(c, n) && !w.onlySpot && !overflowRefuses(c, p) {
				t.Fatalf("%s is pending though %s is on-demand and has room", p.name, n.name)
			}
			withinBudget := onSpot < desired-floor
			if w.kind == "StatefulSet" {
				withinBudget = p.ordinal >= floor
			}
			if c.policy.Defaults.MaxPerPool == nil && !isOnDemand(c, n) && !w.onlyOnDemand && (withinBudget || w.onlySpot) {
				t.Fatalf("%s is pending though %s has room: %d on spot, desired %d, floor %d", p.name, n.name, onSpot, desired, floor)
			}
		}
	}
}

// overflowRefuses reports whether overflow Never keeps a pod, which may already be placed, off
// on-demand.
func overflowRefuses(c *cluster, p *pod) bool {
	w := p.revision.workload
	if c.policy.Defaults.Overflow != decision.NeverOverflow || w.onlyOnDemand {
		return false
	}
	floor, _ := expectedFloor(c, w)
	if w.kind == "StatefulSet" {
		return p.ordinal >= floor
	}
	others := 0
	for _, sibling := range p.revision.pods {
		others += count(sibling != p && sibling.node != nil && isOnDemand(c, sibling.node))
	}
	return others >= floor
}

// expectedFloor computes the floor of w and its desired replicas from the text of policy.md.
func expectedFloor(c *cluster, w *workload) (floor, desired int) {
	desired = w.replicas
	minOnDemand := c.policy.Defaults.MinOnDemand
	switch w.kind {
	case "Job":
		desired = min(w.replicas, max(0, 5-w.succeeded))
		minOnDemand = decision.Count(0)
		if w.backoffLimit == 0 {
			minOnDemand = decision.Percent(100)
		}
	case "CloneSet":
		desired = len(w.pods())
	}
	text := minOnDemand.String()
	if annotation, ok := w.annotations[spot.MinOnDemandAnnotation]; ok {
		text = annotation
	}
	var n int
	if _, err := fmt.Sscanf(text, "%d%%", &n); err == nil {
		for floor*100 < n*desired {
			floor++
		}
		return floor, desired
	}
	fmt.Sscan(text, &n)
	return min(n, desired), desired
}

// isOnDemand considers only the project's own label, which is the only one in these clusters. A
// node without it counts as on-demand when it is 30 s old, or if no node has the label.
func isOnDemand(c *cluster, n *node) bool {
	switch n.labels[spot.CapacityLabel] {
	case "spot":
		return false
	case "on-demand":
		return true
	}
	return c.now-n.created >= 30*time.Second
}

// TestNodeOrder: the order of the nodes does not affect placement.
func TestNodeOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		place := func(seed uint64) map[string]string {
			c := newCluster()
			for i, slots := range []int{1, 2, 3, 1, 2, 3, 2, 2} {
				c.nodes = append(c.nodes, &node{
					name: fmt.Sprintf("n%d", i), slots: slots, pool: decision.NewPool([]string{"m5", "c5"}[i%2], []string{"a", "b", "c"}[i%3]),
					labels: map[string]string{spot.CapacityLabel: []string{"spot", "on-demand", "spot"}[i%3]},
				})
			}
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(c.nodes), func(i, j int) { c.nodes[i], c.nodes[j] = c.nodes[j], c.nodes[i] })
			where := map[string]string{}
			for _, kind := range []string{"Deployment", "StatefulSet", "Job"} {
				w := &workload{kind: kind, namespace: "default", name: kind, replicas: 4, completions: 9, backoffLimit: 1, maxSurge: -1, maxUnavailable: -1}
				w.addRevision()
				c.workloads = append(c.workloads, w)
			}
			c.onBind = func(p *pod) { where[p.name] = p.node.name }
			c.settle()
			return where
		}
		seed := rapid.Uint64().Draw(t, "seed")
		if got, want := place(seed), place(0); !maps.Equal(got, want) {
			t.Fatalf("placement with shuffled nodes: %v, want %v", got, want)
		}
	})
}

// quantities generates counts and percentages.
func quantities() *rapid.Generator[decision.Quantity] {
	return rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 12), decision.Count),
		rapid.Map(rapid.IntRange(0, 100), decision.Percent),
	)
}

// planOf returns the plan for the next pod of a Deployment with desired replicas.
func planOf(minOnDemand decision.Quantity, desired int, placed decision.PlacedPods) decision.Plan {
	pod := &decision.Pod{Workload: decision.Workload{Kind: "Deployment", Desired: desired}}
	return decision.NewPlan(pod, decision.WorkloadSettings{MinOnDemand: minOnDemand, FallbackAfter: decision.Never}, placed, decision.WaitTime{})
}

// TestFloorGrowsWithReplicas: more replicas never lower a floor or a budget.
func TestFloorGrowsWithReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, desired := quantities().Draw(t, "minOnDemand"), rapid.IntRange(0, 2_000_000).Draw(t, "desired")
		before, after := planOf(q, desired, decision.PlacedPods{}), planOf(q, desired+1, decision.PlacedPods{})
		if after.Floor < before.Floor || after.Budget < before.Budget {
			t.Fatalf("%s of %d: floor %d, budget %d; of one more: floor %d, budget %d", q, desired, before.Floor, before.Budget, after.Floor, after.Budget)
		}
		if before.Floor < 0 || before.Budget < 0 || before.Floor+before.Budget != desired {
			t.Fatalf("%s of %d: floor %d and budget %d", q, desired, before.Floor, before.Budget)
		}
	})
}

// TestPercentIsCountRoundedUp: a percentage equals the smallest count that reaches it.
func TestPercentIsCountRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent, desired := rapid.IntRange(0, 100).Draw(t, "percent"), rapid.IntRange(0, 2_000_000_000).Draw(t, "desired")
		n := decision.Percent(percent).Of(desired)
		if n*100 < percent*desired || (n-1)*100 >= percent*desired && n > 0 {
			t.Fatalf("%d%% of %d is %d", percent, desired, n)
		}
		placed := decision.PlacedPods{Spot: rapid.IntRange(0, 5).Draw(t, "spot"), OnDemand: rapid.IntRange(0, 5).Draw(t, "onDemand")}
		if got, want := planOf(decision.Percent(percent), desired, placed), planOf(decision.Count(n), desired, placed); !reflect.DeepEqual(got, want) {
			t.Fatalf("%d%% of %d gives %+v, the count %d gives %+v", percent, desired, got, n, want)
		}
	})
}

// TestAdmitIsMonotone: an admitted pod stays admitted with fewer siblings on spot, fewer siblings
// in the pool, or a larger budget.
func TestAdmitIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired, minOnDemand := rapid.IntRange(1, 10).Draw(t, "desired"), rapid.IntRange(0, 10).Draw(t, "minOnDemand")
		placed := decision.PlacedPods{Spot: rapid.IntRange(0, 10).Draw(t, "spot"), OnDemand: rapid.IntRange(0, 10).Draw(t, "onDemand")}
		settings := decision.WorkloadSettings{MinOnDemand: decision.Count(minOnDemand), MaxPerPool: new(decision.Count(rapid.IntRange(1, 4).Draw(t, "cap")))}
		settings.FallbackAfter = decision.Never
		w := decision.Workload{Desired: desired, Ordered: rapid.Bool().Draw(t, "ordered"), Ordinal: rapid.IntRange(0, 9).Draw(t, "ordinal")}
		plan := decision.NewPlan(&decision.Pod{Workload: w}, settings, placed, decision.WaitTime{})
		node := decision.Node{Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.NewPool("m5", "a")}
		morePlaced, inPool := rapid.IntRange(-5, 5).Draw(t, "morePlaced"), rapid.IntRange(0, 6).Draw(t, "inPool")
		if plan.Admit(node, morePlaced, inPool) != decision.Admitted {
			return
		}
		settings.MinOnDemand = decision.Count(max(0, minOnDemand-1))
		larger := decision.NewPlan(&decision.Pod{Workload: w}, settings, placed, decision.WaitTime{})
		onDemand := decision.Node{Pool: node.Pool}
		for name, verdict := range map[string]decision.Verdict{
			"with fewer on spot":     plan.Admit(node, morePlaced-1, inPool),
			"with fewer in the pool": plan.Admit(node, morePlaced, inPool-1),
			"with a larger budget":   larger.Admit(node, morePlaced, inPool),
			"on on-demand":           plan.Admit(onDemand, morePlaced, inPool),
		} {
			if verdict != decision.Admitted {
				t.Fatalf("%s the pod is refused: %s", name, plan.Reason(verdict))
			}
		}
	})
}

// TestMayAdmitMoreMissesNothing: MayAdmitMore is true for every replica count that makes a node
// feasible for the pod, even if more replicas were bound to spot in between.
func TestMayAdmitMoreMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		assigned := decision.AssignedCapacity(rapid.IntRange(0, 3).Draw(t, "assigned"))
		pod := decision.Pod{OnlySpot: rapid.Bool().Draw(t, "onlySpot"), Assigned: assigned, Workload: decision.Workload{
			Desired: rapid.IntRange(0, 12).Draw(t, "desired"), Ordered: rapid.Bool().Draw(t, "ordered"), Ordinal: rapid.IntRange(-1, 12).Draw(t, "ordinal"),
		}}
		settings := decision.WorkloadSettings{
			MinOnDemand: quantities().Draw(t, "minOnDemand"), FallbackAfter: decision.Never,
			Overflow: decision.OverflowPolicy(rapid.IntRange(0, 1).Draw(t, "overflow")),
		}
		if rapid.Bool().Draw(t, "capped") {
			settings.MaxPerPool = new(quantities().Draw(t, "maxPerPool"))
		}
		settings.DisruptionLimit, settings.Disruptions = rapid.IntRange(0, 1).Draw(t, "disruption limit"), rapid.IntRange(0, 1).Draw(t, "disruptions")
		settings.OnDisruptionLimit = decision.DisruptionAction(rapid.IntRange(0, 1).Draw(t, "on disruption limit"))
		placed := decision.PlacedPods{Spot: rapid.IntRange(0, 12).Draw(t, "spot"), OnDemand: rapid.IntRange(0, 12).Draw(t, "on-demand")}
		inPool := rapid.IntRange(0, placed.Spot).Draw(t, "in the pool")
		more := rapid.IntRange(0, 3).Draw(t, "more in the pool")
		before := decision.NewPlan(&pod, settings, placed, decision.WaitTime{})
		pod.Workload.Desired = rapid.IntRange(0, 12).Draw(t, "desired then")
		next := decision.NewPlan(&pod, settings, placed, decision.WaitTime{})
		node := decision.Node{Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.NewPool("m", "a")}
		opens := before.Admit(node, 0, inPool) != decision.Admitted && next.Admit(node, more, inPool+more) == decision.Admitted
		if opens && !before.MayAdmitMore(&next) {
			t.Fatalf("%+v opens a spot node that %+v refuses", next, before)
		}
		node.Capacity.Type = decision.OnDemand
		opens = before.Admit(node, 0, 0) != decision.Admitted && next.Admit(node, 0, 0) == decision.Admitted || before.Overflows() && !next.Overflows()
		if opens && !before.MayAdmitMore(&next) {
			t.Fatalf("%+v opens an on-demand node that %+v refuses, or lets the pod preempt there", next, before)
		}
	})
}

// TestStricterOnlyOnlyTightens: with StricterOnly no annotation makes a workload less safe than
// rules and defaults do.
func TestStricterOnlyOnlyTightens(t *testing.T) {
	var keys []string
	for _, setting := range decision.Settings {
		if setting.Annotation != "" {
			keys = append(keys, setting.Annotation)
		}
	}
	annotations := rapid.MapOfN(
		rapid.SampledFrom(keys),
		rapid.SampledFrom([]string{"Allow", "Never", "0", "1", "3", "20%", "60%", "100%", "DoNotSchedule", "ScheduleAnyway", "0s", "30s", "10m", "never", "PreferOnDemand", "RequireOnDemand", "junk"}), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		pod := &decision.Pod{Annotations: annotations.Draw(t, "on the pod")}
		pod.Workload = decision.Workload{Kind: "Deployment", Desired: rapid.IntRange(0, 12).Draw(t, "desired"), Annotations: annotations.Draw(t, "on the owner")}
		policy := decision.Policy{Annotations: decision.IgnoreAnnotations, Defaults: decision.WorkloadSettings{
			MinOnDemand:       quantities().Draw(t, "minOnDemand"),
			WhenUnsatisfiable: decision.WhenUnsatisfiable(rapid.IntRange(0, 1).Draw(t, "whenUnsatisfiable")),
			FallbackAfter:     rapid.SampledFrom([]time.Duration{decision.Never, 0, time.Minute}).Draw(t, "fallbackAfter"),
			RolloutRelief:     rapid.SampledFrom([]time.Duration{decision.Never, 0, time.Minute}).Draw(t, "rolloutRelief"),
			Overflow:          decision.OverflowPolicy(rapid.IntRange(0, 1).Draw(t, "overflow")),
			DisruptionLimit:   rapid.IntRange(0, 4).Draw(t, "disruptionLimit"),
			OnDisruptionLimit: decision.DisruptionAction(rapid.IntRange(0, 1).Draw(t, "onDisruptionLimit")),
		}}
		if rapid.Bool().Draw(t, "capped") {
			policy.Defaults.MaxPerPool = new(rapid.SampledFrom([]decision.Quantity{decision.Count(2), decision.Percent(25)}).Draw(t, "maxPerPool"))
		}
		without, _ := policy.Settings(pod)
		policy.Annotations = decision.StricterOnly
		with, _ := policy.Settings(pod)
		before := decision.NewPlan(pod, without, decision.PlacedPods{}, decision.WaitTime{})
		after := decision.NewPlan(pod, with, decision.PlacedPods{}, decision.WaitTime{})
		never := func(d time.Duration) bool { return d == decision.Never }
		switch {
		case after.Floor < before.Floor:
			t.Fatalf("floor lowered from %d to %d", before.Floor, after.Floor)
		case before.PoolCap > 0 && (after.PoolCap == 0 || after.PoolCap > before.PoolCap):
			t.Fatalf("cap widened from %d to %d", before.PoolCap, after.PoolCap)
		case without.WhenUnsatisfiable == decision.DoNotSchedule && with.WhenUnsatisfiable != decision.DoNotSchedule:
			t.Fatalf("ScheduleAnyway granted")
		case !never(with.FallbackAfter) && (never(without.FallbackAfter) || with.FallbackAfter < without.FallbackAfter):
			t.Fatalf("fallback brought forward from %v to %v", without.FallbackAfter, with.FallbackAfter)
		case !never(with.RolloutRelief) && (never(without.RolloutRelief) || with.RolloutRelief < without.RolloutRelief):
			t.Fatalf("relief brought forward from %v to %v", without.RolloutRelief, with.RolloutRelief)
		case without.Overflow == decision.NeverOverflow && with.Overflow != decision.NeverOverflow:
			t.Fatalf("overflow allowed")
		case without.DisruptionLimit > 0 && (with.DisruptionLimit == 0 || with.DisruptionLimit > without.DisruptionLimit):
			t.Fatalf("disruption limit raised from %d to %d", without.DisruptionLimit, with.DisruptionLimit)
		case without.OnDisruptionLimit == decision.RequireOnDemand && with.OnDisruptionLimit != decision.RequireOnDemand:
			t.Fatalf("on-demand only preferred at the disruption limit")
		}
	})
}

// TestNextChange: a pod that is retried only after NextChange misses no grant that depends on time
// alone.
func TestNextChange(t *testing.T) {
	seconds := rapid.Map(rapid.IntRange(0, 100), func(n int) time.Duration { return time.Duration(n) * time.Second })
	rapid.Check(t, func(t *rapid.T) {
		settings := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}
		if rapid.Bool().Draw(t, "falls back") {
			settings.FallbackAfter = seconds.Draw(t, "fallbackAfter")
		}
		settings.RolloutRelief = rapid.OneOf(seconds, rapid.Just(decision.Never)).Draw(t, "rolloutRelief")
		older := rapid.Bool().Draw(t, "older revision on on-demand")
		grant := func(waited time.Duration) decision.Grant {
			pod := &decision.Pod{Workload: decision.Workload{Desired: 1}}
			return decision.NewPlan(pod, settings, decision.PlacedPods{}, decision.WaitTime{For: waited, OlderRevisionOnDemand: older}).Grant
		}
		waited := seconds.Draw(t, "waited")
		if grant(waited) != decision.NotGranted {
			return
		}
		next, ok := settings.NextChange(waited, older)
		later := waited + time.Second + seconds.Draw(t, "later")
		switch {
		case next < 0:
			t.Fatalf("the next change is %v from now", next)
		case ok && grant(waited+max(next, 1)) == decision.NotGranted:
			t.Fatalf("no grant at NextChange, after %v", next)
		case grant(later) != decision.NotGranted && (!ok || waited+next > later):
			t.Fatalf("%v is granted after %v, and NextChange returns %v (%v)", grant(later), later, waited+next, ok)
		}
	})
}

// TestScoreBandsKeepOrder: scores have the order of the ranks, for every order of the input, and
// are within 0 to MaxScore.
func TestScoreBandsKeepOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.SliceOfN(rapid.Map(places(), place.rank), 1, 40).Draw(t, "ranks")
		scores := slices.Clone(ranks)
		decision.ScoreBands(scores)
		for i := range ranks {
			for j := range ranks {
				if ranks[i] <= ranks[j] && scores[i] > scores[j] || ranks[i] == ranks[j] && scores[i] != scores[j] {
					t.Fatalf("ranks %d and %d have the scores %d and %d", ranks[i], ranks[j], scores[i], scores[j])
				}
			}
			if scores[i] < 0 || scores[i] > decision.MaxScore {
				t.Fatalf("score %d", scores[i])
			}
		}
		reversed := slices.Clone(ranks)
		slices.Reverse(reversed)
		decision.ScoreBands(reversed)
		slices.Reverse(reversed)
		if !slices.Equal(reversed, scores) {
			t.Fatalf("scores of reversed ranks: %v, want %v", reversed, scores)
		}
	})
}
