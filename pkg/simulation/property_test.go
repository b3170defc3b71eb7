package simulation_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// anyCluster draws a cluster in the notation of clustertest. The pods have these priorities.
func anyCluster(t *rapid.T, priorities ...int) string {
	var lines strings.Builder
	places := []string{"-", "nowhere"}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		name := fmt.Sprintf("n%d", i)
		fmt.Fprintf(&lines, "node %s %s %s/%s cpu=%d pods=%d %s\n", name,
			rapid.SampledFrom([]string{"spot", "on-demand"}).Draw(t, "capacity"), rapid.SampledFrom([]string{"m", "c"}).Draw(t, "type"),
			rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), rapid.IntRange(0, 6).Draw(t, "cpu"), rapid.IntRange(1, 6).Draw(t, "pods"),
			rapid.SampledFrom([]string{"", "", "", "cordoned", "taint=karpenter.sh/disrupted", "taint=x",
				"without=" + v1.LabelHostname}).Draw(t, "state"))
		places = append(places, name, name, "!"+name)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "workloads") {
		kind := rapid.SampledFrom([]string{"deployment", "deployment", "statefulset"}).Draw(t, "kind")
		fmt.Fprintf(&lines, "%s w%d %d", kind, i, rapid.IntRange(0, 6).Draw(t, "replicas"))
		for range rapid.IntRange(0, 6).Draw(t, "made") {
			place := rapid.SampledFrom(places).Draw(t, "place")
			if kind == "deployment" && strings.HasPrefix(place, "n") && rapid.IntRange(0, 6).Draw(t, "released") == 0 {
				place = "~" + place
			}
			lines.WriteString(" " + place)
		}
		fmt.Fprintf(&lines, " cpu=%d priority=%d min=%s profile=%s %s\n", rapid.IntRange(0, 3).Draw(t, "cpu"),
			rapid.SampledFrom(priorities).Draw(t, "priority"),
			rapid.SampledFrom([]string{"0", "1", "2", "50%", "100%"}).Draw(t, "min"),
			rapid.SampledFrom([]string{clustertest.Profile, clustertest.Profile, clustertest.Profile, "other"}).Draw(t, "profile"),
			anyConstraint(t))
	}
	return lines.String()
}

// anyConstraint draws scheduling constraints of pods.
func anyConstraint(t *rapid.T) string {
	words := []string{rapid.SampledFrom([]string{"", "", "tolerates=x", "zone=a", "port=80"}).Draw(t, "constraint")}
	if rapid.Bool().Draw(t, "terms") {
		key := rapid.SampledFrom([]string{v1.LabelHostname, v1.LabelTopologyZone})
		spread := key.Draw(t, "spread")
		words = append(words, rapid.SampledFrom([]string{
			"anti=" + key.Draw(t, "anti"), fmt.Sprintf("near=w%d/%s", rapid.IntRange(0, 5).Draw(t, "near"), key.Draw(t, "near to")),
			"spread=" + spread, "spread=" + spread, "spread=" + v1.LabelHostname + "," + v1.LabelTopologyZone,
		}).Draw(t, "term"))
		words = append(words, fmt.Sprintf("skew=%d domains=%d", rapid.IntRange(1, 2).Draw(t, "skew"), rapid.IntRange(0, 3).Draw(t, "domains")),
			rapid.SampledFrom([]string{"", "taints=Honor", "selector=Ignore", "perrevision"}).Draw(t, "policy"),
			rapid.SampledFrom([]string{"", "mixed"}).Draw(t, "labels"))
	}
	return strings.Join(words, " ")
}

// TestAnyRoom requests replacements of random pods of random clusters in random order. It compares
// every result with a search of all nodes without any shortcut.
func TestAnyRoom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lines := anyCluster(rt, 0, 0, 0, -10, -5, 7, 9)
		w := clustertest.NewWorld(t)
		w.Build(lines)
		s := w.Snapshot()
		for _, n := range s.Nodes {
			if pods := slices.DeleteFunc(slices.Clone(n.Pods), func(p *snapshot.Pod) bool { return len(p.Spec.Containers[0].Ports) == 0 }); len(pods) > 1 {
				rt.Skip("two pods use one port")
			}
		}
		room, slow := simulation.NewRoom(s), newSlowRoom(s)
		var queries []query
		var results []string
		for _, p := range rapid.Permutation(s.Pods).Draw(rt, "order") {
			requires := decision.Unassigned
			if p.Spec.NodeName != "" { // a pending pod already has a result
				requires = rapid.SampledFrom([]decision.AssignedCapacity{
					decision.Unassigned, decision.Unassigned, decision.AssignedOnDemand, decision.AssignedSpot,
				}).Draw(rt, "requires")
			}
			to, _ := room.Replace(p, requires)
			want := slow.replace(p, requires)
			if to != want {
				rt.Fatalf("replacement of %s on %s, want %s, in\n%s", p.Name, nameOf(to), nameOf(want), lines)
			}
			queries, results = append(queries, query{p.Name, requires}), append(results, nameOf(to))
		}
		// The caches list objects in map order, which differs every time.
		again := clustertest.NewWorld(t)
		again.Build(lines)
		s = again.Snapshot()
		room = simulation.NewRoom(s)
		var same []string
		for _, q := range queries {
			to, _ := room.Replace(clustertest.Find(t, s, q.pod), q.requires)
			same = append(same, nameOf(to))
		}
		if diff := cmp.Diff(results, same); diff != "" {
			rt.Fatalf("different results for the same cluster:\n%s\n%s", diff, lines)
		}
	})
}

// query is the input of Replace: the name of a pod, and the capacity type that its replacement
// requires.
type query struct {
	pod      string
	requires decision.AssignedCapacity
}

func nameOf(n *snapshot.Node) string {
	if n == nil {
		return "nowhere"
	}
	return n.Name
}

// slowRoom records the node of every pod, and computes everything else for each query. It shares
// only package decision with Room.
type slowRoom struct {
	s *snapshot.Snapshot
	// replicas contains the pods that count as replicas, by their own node or that of their
	// replacement. occupants contains the pods that occupy resources.
	replicas, occupants []placedPod
	// termPods contains the pods that the terms of other pods count.
	termPods []placedPod
	results  map[*snapshot.Pod]*snapshot.Node
	// preempted contains the pods that were preempted.
	preempted map[*snapshot.Pod]bool
}

type placedPod struct {
	pod  *snapshot.Pod
	node *snapshot.Node
}

func newSlowRoom(s *snapshot.Snapshot) *slowRoom {
	r := &slowRoom{s: s, results: map[*snapshot.Pod]*snapshot.Node{}, preempted: map[*snapshot.Pod]bool{}}
	for _, p := range s.Pods {
		if p.Node != nil {
			r.occupants, r.termPods = append(r.occupants, placedPod{p, p.Node}), append(r.termPods, placedPod{p, p.Node})
			if p.Live() {
				r.replicas = append(r.replicas, placedPod{p, p.Node})
			}
		}
	}
	pods := slices.Clone(s.Pods)
	slices.SortStableFunc(pods, func(a, b *snapshot.Pod) int { return int(*b.Spec.Priority - *a.Spec.Priority) })
	for _, p := range pods {
		if p.Spec.NodeName == "" && p.Live() {
			r.replace(p, decision.Unassigned)
		}
	}
	return r
}

func revisionOf(p *snapshot.Pod) *snapshot.Revision {
	if p.ReleasedFrom != nil {
		return p.ReleasedFrom
	}
	return p.Revision
}

func (r *slowRoom) replace(p *snapshot.Pod, requires decision.AssignedCapacity) *snapshot.Node {
	if to, ok := r.results[p]; ok {
		return to
	}
	revision := revisionOf(p)
	var others []placedPod
	for _, s := range r.replicas {
		if s.pod != p {
			others = append(others, s)
		}
	}
	var placed decision.PlacedPods
	for _, s := range others {
		if revisionOf(s.pod) != revision {
			continue
		}
		if s.node.Facts.Capacity.Type == decision.Spot {
			placed.Spot++
		} else {
			placed.OnDemand++
		}
	}
	// A released pod remains until its replacement is ready.
	termPods := slices.DeleteFunc(slices.Clone(r.termPods), func(s placedPod) bool { return s.pod == p && p.Release == nil })
	var best *snapshot.Node
	var bestRank decision.Rank
	var bestVictims []*snapshot.Pod
	for _, node := range r.s.Nodes {
		if capacity := node.Facts.Capacity.Type; requires == decision.AssignedOnDemand && capacity != decision.OnDemand ||
			requires == decision.AssignedSpot && capacity != decision.Spot {
			continue
		}
		victims, enough := r.victims(p, node, termPods)
		if !enough {
			continue
		}
		rank := decision.Rank(0)
		if revision != nil && revision.Workload.InScope {
			subject := decision.Pod{Workload: decision.Workload{Desired: revision.Workload.Desired}}
			if p.Subject != nil {
				subject = p.Subject.Pod
			}
			subject.OnlyOnDemand = subject.OnlyOnDemand || requires == decision.AssignedOnDemand
			plan := decision.NewPlan(&subject, revision.Workload.Settings, placed, decision.WaitTime{})
			var around decision.Siblings
			for _, s := range others {
				if revisionOf(s.pod) != revision {
					continue
				}
				if s.node == node {
					around.OnNode++
				}
				if s.node.Labels[v1.LabelTopologyZone] == node.Labels[v1.LabelTopologyZone] {
					around.InZone++
				}
				if s.node.Facts.Pool == node.Facts.Pool && s.node.Facts.Capacity.Type == decision.Spot && node.Facts.Capacity.Type == decision.Spot {
					around.InPool++
				}
			}
			if plan.Admit(node.Facts, 0, around.InPool) != decision.Admitted ||
				victims != nil && plan.Overflows() && node.Facts.Capacity.Type == decision.OnDemand {
				continue
			}
			rank = plan.Rank(node.Facts, around, 0)
		}
		if victims != nil {
			rank = decision.Rank(math.MinInt64)
		}
		if best == nil || rank > bestRank || rank == bestRank && fewer(victims, bestVictims) {
			best, bestRank, bestVictims = node, rank, victims
		}
	}
	r.results[p] = best
	if best != nil {
		for _, list := range []*[]placedPod{&others, &r.replicas, &r.occupants, &termPods} {
			*list = without(*list, bestVictims)
		}
		for _, v := range bestVictims {
			r.preempted[v] = true
		}
		r.replicas = append(others, placedPod{p, best})
		r.occupants, r.termPods = append(r.occupants, placedPod{p, best}), append(termPods, placedPod{p, best})
	}
	return best
}

// victims returns the pods to preempt on the node for p; enough is false if p does not fit anyway.
// They are nil if none is needed. Terminating pods are always among them.
func (r *slowRoom) victims(p *snapshot.Pod, node *snapshot.Node, termPods []placedPod) (victims []*snapshot.Pod, enough bool) {
	fits := func(gone []*snapshot.Pod) bool {
		rest := &slowRoom{occupants: without(r.occupants, gone)}
		return rest.fits(p, node) && termsAllow(r.s.Nodes, without(termPods, gone), p, node)
	}
	if fits(nil) {
		return nil, true
	}
	for _, other := range node.Pods {
		if *other.Spec.Priority < *p.Spec.Priority && r.results[other] == nil && !r.preempted[other] {
			victims = append(victims, other)
		}
	}
	if len(victims) == 0 || !fits(victims) {
		return nil, false
	}
	slices.SortStableFunc(victims, func(a, b *snapshot.Pod) int { return int(*b.Spec.Priority - *a.Spec.Priority) })
	for _, v := range slices.Clone(victims) {
		if rest := slices.DeleteFunc(slices.Clone(victims), func(q *snapshot.Pod) bool { return q == v }); v.DeletionTimestamp == nil && fits(rest) {
			victims = rest
		}
	}
	return victims, true
}

// fewer reports whether the scheduler prefers the preemption of a to that of b. Terminating pods do
// not count.
func fewer(a, b []*snapshot.Pod) bool {
	key := func(pods []*snapshot.Pod) []int {
		highest, total := math.MinInt, 0
		for _, p := range pods {
			if p.DeletionTimestamp == nil {
				highest, total = max(highest, int(*p.Spec.Priority)), total+int(*p.Spec.Priority)+1<<31
			}
		}
		return []int{highest, total}
	}
	return len(a) > 0 && slices.Compare(key(a), key(b)) < 0
}

// without returns the pods that are not gone. A replacement of a pod is not the pod itself.
func without(pods []placedPod, gone []*snapshot.Pod) []placedPod {
	return slices.DeleteFunc(slices.Clone(pods), func(s placedPod) bool { return slices.Contains(gone, s.pod) && s.pod.Node == s.node })
}

func (r *slowRoom) fits(p *snapshot.Pod, node *snapshot.Node) bool {
	if node.Spec.Unschedulable || node.Facts.Signal >= decision.Drain {
		return false
	}
	if len(node.Spec.Taints) > 0 && len(p.Spec.Tolerations) == 0 {
		return false
	}
	if zone, ok := p.Spec.NodeSelector[v1.LabelTopologyZone]; ok && zone != node.Labels[v1.LabelTopologyZone] {
		return false
	}
	cpu, pods := node.Status.Allocatable.Cpu().Value(), node.Status.Allocatable.Pods().Value()
	for _, h := range r.occupants {
		if h.node != node {
			continue
		}
		cpu, pods = cpu-h.pod.Requests.Cpu().Value(), pods-1
		if len(p.Spec.Containers[0].Ports) > 0 && len(h.pod.Spec.Containers[0].Ports) > 0 {
			return false
		}
	}
	need := p.Requests.Cpu().Value()
	return pods >= 1 && (need == 0 || cpu >= need)
}

// TestNeverTooMuch compares the results with the capacity of nodes and the budgets of workloads,
// counted afterwards.
func TestNeverTooMuch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lines := anyCluster(rt, 0) // no preemption
		w := clustertest.NewWorld(t)
		w.Build(lines)
		s := w.Snapshot()
		room := simulation.NewRoom(s)
		cpu, given := map[*snapshot.Node]int64{}, map[*snapshot.Node]bool{}
		onSpot, toSpot := map[*snapshot.Revision]int{}, map[*snapshot.Revision]bool{}
		for _, p := range s.Pods {
			to, _ := room.Replace(p, decision.Unassigned)
			node := p.Node
			if to != nil {
				cpu[to] += p.Requests.Cpu().Value()
				given[to] = given[to] || p.Requests.Cpu().Value() > 0
				node = to
			}
			if p.Node != nil {
				cpu[p.Node] += p.Requests.Cpu().Value()
			}
			// A pod that is not live counts only if it has a replacement.
			if r := revisionOf(p); r != nil && node != nil && node.Facts.Capacity.Type == decision.Spot && (to != nil || p.Live()) {
				onSpot[r]++
				toSpot[r] = toSpot[r] || to != nil
			}
		}
		for node := range given {
			if has := node.Status.Allocatable.Cpu().Value(); given[node] && cpu[node] > has {
				rt.Fatalf("%s has %d CPUs, and the requests of its pods are %d, in\n%s", node.Name, has, cpu[node], lines)
			}
		}
		for r, n := range onSpot {
			if w := r.Workload; w.InScope && w.StatefulSet == nil && toSpot[r] && n > max(w.Desired-w.Floor, r.Placed.Spot) {
				rt.Fatalf("%s has %d replicas on spot, budget %d, %d before, in\n%s", w.Name, n, w.Desired-w.Floor, r.Placed.Spot, lines)
			}
		}
	})
}
