package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const autoscalersPage = "https://github.com/spot-aware-scheduler/spot-aware-scheduler/blob/main/docs/autoscalers.md"

func (v *View) remedies(e *Explanation, p *snapshot.Pod, plan *decision.Plan, waiting decision.WaitTime) (all []string) {
	if len(p.Spec.SchedulingGates) > 0 {
		return v.gateRemedies(p)
	}
	accepting, refused := 0, map[decision.Verdict]int{} // number of nodes that only the policy refuses
	requiresOnDemand := plan.RequiresOnDemand()
	if e.Scheduler != "" { // it knows only the affinity that the controller wrote
		requiresOnDemand = p.Subject.Pod.Assigned == decision.AssignedOnDemand
	}
	onDemandNeeded := requiresOnDemand && !slices.ContainsFunc(e.Nodes, func(g NodeGroup) bool {
		return g.Capacity == decision.OnDemand.String() && len(g.obstacles) == 0
	})
	byObstacle := map[string]int{} // number of nodes that the policy admits, by their only obstacle
	var cordoned []string          // nodes whose only obstacle is that they are cordoned
	for i := range e.Nodes {
		switch g := &e.Nodes[i]; {
		case g.Accepts:
			accepting += g.Count
		case g.verdict != decision.Admitted && len(g.obstacles) == 0:
			refused[g.verdict] += g.Count
		case g.verdict == decision.Admitted && len(g.obstacles) == 1 && g.obstacles[0] == "taint "+v1.TaintNodeUnschedulable:
			cordoned = append(cordoned, g.Names...)
		case g.verdict == decision.Admitted && len(g.obstacles) == 1:
			byObstacle[g.Capacity+" nodes: "+g.obstacles[0]] += g.Count
		}
	}
	if accepting > 0 {
		return []string{fmt.Sprintf("%s would accept it: the scheduler has not retried it yet, or a constraint prevents it that this "+
			"command does not check "+
			"(volume limits, resource claims, gangs, the anti-affinity of other pods)", Count(accepting, "node", "nodes"))}
	}
	mostNodes := func(a, b string) int { return cmp.Or(cmp.Compare(byObstacle[b], byObstacle[a]), strings.Compare(a, b)) }
	for _, obstacle := range slices.SortedFunc(maps.Keys(byObstacle), mostNodes) {
		all = append(all, fmt.Sprintf("%d %s is the only obstacle", byObstacle[obstacle], obstacle))
	}
	if len(cordoned) > 0 {
		all = append(all, fmt.Sprintf("%s: kubectl uncordon %s",
			Count(len(cordoned), "node is only cordoned", "nodes are only cordoned"), cordoned[0]))
	}
	if onDemandNeeded {
		all = append(all, "an on-demand node with room for it: add one, or let an autoscaler add it ("+autoscalersPage+")")
	}
	for verdict := range decision.Verdict(decision.Verdicts) {
		if n := refused[verdict]; n > 0 {
			all = append(all, fmt.Sprintf("%s refused only by the policy: %s", Count(n, "node is", "nodes are"), plan.Reason(verdict)))
		}
	}
	all = append(all, settingRemedies(e, p, refused)...)
	if plan.Grant == decision.NotGranted && e.Scheduler == "" && !plan.AdmitsSpot() && !p.Subject.Pod.OnlyOnDemand {
		settings, _ := v.Policy.Settings(&p.Subject.Pod)
		if in, ok := settings.NextChange(waiting.For, waiting.OlderRevisionOnDemand); ok {
			all = append(all, fmt.Sprintf("time: in %s it may use any spot node (it has waited for %s)",
				in.Round(time.Second), waiting.For.Round(time.Second)))
		}
	}
	if len(all) == 0 {
		all = append(all, "another node: each existing node has more than one obstacle")
	}
	return all
}

// settingRemedies lists the settings that would let nodes accept the pod that only the policy
// refuses.
func settingRemedies(e *Explanation, p *snapshot.Pod, refused map[decision.Verdict]int) (all []string) {
	on := "the " + e.Workload.Kind
	if workload.HasUnsupportedController(p.Pod) {
		on = "its pod template"
	}
	if refused[decision.OverBudget] > 0 || refused[decision.OnFloorOrdinal] > 0 {
		all = append(all, fmt.Sprintf("a lower floor: annotation %s on %s", spot.MinOnDemandAnnotation, on))
	}
	if refused[decision.AfterDisruptions] > 0 {
		all = append(all, fmt.Sprintf("a higher disruption limit: annotation %s on %s", spot.DisruptionLimitAnnotation, on))
	}
	if refused[decision.OverflowRefused] > 0 {
		all = append(all, fmt.Sprintf("overflow Allow: annotation %s on %s", spot.OverflowAnnotation, on))
	}
	return all
}

// gateRemedies lists for each scheduling gate of a pod which program removes it, if known.
func (v *View) gateRemedies(p *snapshot.Pod) (all []string) {
	for _, gate := range p.Spec.SchedulingGates {
		if gate.Name != spot.CapacityGate {
			all = append(all, "its scheduling gates: "+gate.Name)
			continue
		}
		left := max(0, v.Policy.GateTimeout-v.Snapshot.Now.Sub(p.CreationTimestamp.Time))
		all = append(all, fmt.Sprintf("the controller, with gating.enabled, removes the scheduling gate %s; otherwise a failsafe removes "+
			"it in %s (gateTimeout)",
			gate.Name, left.Round(time.Second)))
	}
	return all
}

// onlyType explains that the pod's own constraints admit only one capacity type, by a node of the
// other type, and what to do.
func (e *Explanation) onlyType(only decision.CapacityType) string {
	why := fmt.Sprintf("its own constraints admit only %s", only)
	if i := slices.IndexFunc(e.Nodes, func(g NodeGroup) bool { return g.Capacity != only.String() && len(g.obstacles) > 0 }); i >= 0 {
		g := e.Nodes[i]
		why += fmt.Sprintf(" (node %s: %s). To use %s, change them, or add a node that they admit", g.Names[0], g.obstacles[0], g.Capacity)
	}
	return why
}
