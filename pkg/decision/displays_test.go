package decision_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// displays are the directives with output. Some place pods first.
var displays = map[string]func(*cluster, args) (string, error){
	"place": func(c *cluster, a args) (string, error) {
		c.settle()
		return c.summary(), a.expect()
	},
	"step": func(c *cluster, a args) (string, error) {
		c.step()
		return c.summary(), a.expect()
	},
	"wait": func(c *cluster, a args) (string, error) {
		if err := a.expect("duration"); err != nil {
			return "", err
		}
		d, err := time.ParseDuration(a.words[0])
		if err != nil {
			return "", err
		}
		c.wait(d)
		return c.summary(), nil
	},
	"reclaim":   (*cluster).reclaim,
	"pods":      (*cluster).showPods,
	"pools":     (*cluster).showPools,
	"nodetypes": (*cluster).showTypes,
	"scores":    (*cluster).showScores,
	"preempt":   (*cluster).showVictims,
	"plan":      showPlan,
	"settings":  (*cluster).showSettings,
}

// summary prints the placement of every workload. Workloads that were created together share a
// line.
func (c *cluster) summary() string {
	var out strings.Builder
	for _, warning := range c.warnings {
		out.WriteString("! " + warning + "\n")
	}
	c.warnings = nil
	for start := 0; start < len(c.workloads); {
		end := start
		for end < len(c.workloads) && c.workloads[end].family == c.workloads[start].family {
			end++
		}
		family := c.workloads[start:end]
		start = end
		var pods []*pod
		deficit := 0
		for _, w := range family {
			pods = append(pods, w.pods()...)
			deficit += c.deficit(w)
		}
		title := family[0].family
		if len(family) > 1 {
			title = fmt.Sprintf("%d x %s", len(family), title)
		}
		if len(family) > 1 || len(family[0].revisions) == 1 || len(pods) == 0 {
			out.WriteString(c.line(title, pods))
		} else {
			for _, r := range family[0].revisions {
				if len(r.pods) > 0 {
					out.WriteString(c.line(r.name, r.pods))
				}
			}
		}
		if deficit > 0 {
			fmt.Fprintf(&out, "  floor deficit %d\n", deficit)
		}
	}
	return out.String()
}

// line prints the number of placed pods by capacity type and outcome, and the reasons of pending
// pods.
func (c *cluster) line(title string, pods []*pod) string {
	if len(pods) == 0 {
		return title + ": no pods\n"
	}
	var outcomes [2]map[string]int
	outcomes[0], outcomes[1] = map[string]int{}, map[string]int{}
	var numbers [2]int
	waiting := map[string]int{}
	for _, p := range pods {
		if p.node == nil {
			waiting[c.pendingReason(p)]++
			continue
		}
		numbers[p.node.capacity.Type]++
		outcomes[p.node.capacity.Type][string(p.outcome)]++
	}
	text := fmt.Sprintf("%s: %d on-demand%s, %d spot%s", title,
		numbers[decision.OnDemand], parenthesized(outcomes[decision.OnDemand]), numbers[decision.Spot], parenthesized(outcomes[decision.Spot]))
	for _, why := range slices.Sorted(maps.Keys(waiting)) {
		text += fmt.Sprintf("\n  %d waiting: %s", waiting[why], why)
	}
	return text + "\n"
}

func parenthesized(counts map[string]int) string {
	if len(counts) == 0 {
		return ""
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[key], key))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// deficit returns the floor deficit of w.
func (c *cluster) deficit(w *workload) int {
	pods := w.pods()
	if len(pods) == 0 {
		return 0
	}
	settings, _ := c.policy.Settings(c.decisionPod(pods[0]))
	var revisions [][]decision.Replica
	for _, r := range w.revisions {
		var replicas []decision.Replica
		for _, p := range r.pods {
			replica := decision.Replica{Ordinal: p.ordinal}
			if p.node != nil {
				replica.Bound, replica.Capacity = true, p.node.capacity.Type
			}
			replicas = append(replicas, replica)
		}
		revisions = append(revisions, replicas)
	}
	return decision.NewFloorStatus(w.desired(), settings.Floor(w.desired()), w.kind == "StatefulSet", revisions).FloorDeficit
}

// reclaim removes all spot nodes at once, and prints the remaining pods of every workload.
func (c *cluster) reclaim(a args) (string, error) {
	if err := a.expect(); err != nil {
		return "", err
	}
	before := map[*workload]int{}
	for _, w := range c.workloads {
		before[w] = len(w.pods())
	}
	for _, n := range slices.Clone(c.nodes) {
		if n.capacity.Type == decision.Spot {
			c.removeNode(n)
		}
	}
	var out strings.Builder
	left := func(w *workload) int { return len(w.pods()) }
	for start := 0; start < len(c.workloads); {
		w, end, live, initial, lowest := c.workloads[start], start, 0, 0, left(c.workloads[start])
		for ; end < len(c.workloads) && c.workloads[end].family == w.family; end++ {
			live, initial, lowest = live+left(c.workloads[end]), initial+before[c.workloads[end]], min(lowest, left(c.workloads[end]))
		}
		if end-start == 1 {
			fmt.Fprintf(&out, "%s: %d of %d left\n", w.family, live, initial)
		} else {
			fmt.Fprintf(&out, "%d x %s: %d of %d left, at least %d of each\n", end-start, w.family, live, initial, lowest)
		}
		start = end
	}
	return out.String(), nil
}

// showPods prints the node of each pod of a workload.
func (c *cluster) showPods(a args) (string, error) {
	if err := a.expect("workload"); err != nil {
		return "", err
	}
	w, err := c.workload(a.words[0])
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range w.pods() {
		where := "waiting"
		if p.node != nil {
			where = fmt.Sprintf("%s (%s, %s)", p.node.name, p.node.capacity.Type, p.outcome)
		}
		fmt.Fprintf(&out, "%s: %s\n", p.name, where)
	}
	return out.String(), nil
}

// showPools prints the number of pods of a workload in each spot pool.
func (c *cluster) showPools(a args) (string, error) {
	if err := a.expect("workload"); err != nil {
		return "", err
	}
	w, err := c.workload(a.words[0])
	if err != nil {
		return "", err
	}
	pools := map[string]int{}
	for _, n := range c.nodes {
		if n.capacity.Type == decision.Spot {
			pools[poolName(n)] += 0
		}
	}
	for _, p := range w.pods() {
		if p.node != nil && p.node.capacity.Type == decision.Spot {
			pools[poolName(p.node)]++
		}
	}
	var out strings.Builder
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		fmt.Fprintf(&out, "%s: %d\n", pool, pools[pool])
	}
	return out.String(), nil
}

func poolName(n *node) string {
	if n.pool == (decision.Pool{}) {
		return "no pool"
	}
	return n.pool.InstanceType + "/" + n.pool.Zone
}

// showTypes prints every node's capacity type and its source.
func (c *cluster) showTypes(a args) (string, error) {
	var lines []string
	for _, n := range c.nodes {
		lines = append(lines, fmt.Sprintf("%s: %s (%s)\n", n.name, n.capacity.Type, n.capacity.Source))
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), a.expect()
}

// showScores prints the scores of the nodes for the next pod of a workload, best node first.
func (c *cluster) showScores(a args) (string, error) {
	p, err := c.next(a)
	if err != nil {
		return "", err
	}
	_, options := c.evaluate(p)
	options = slices.DeleteFunc(options, func(o option) bool { return o.refusal != "" })
	ranks := make([]decision.Rank, len(options))
	for i, o := range options {
		ranks[i] = o.rank
	}
	decision.ScoreBands(ranks)
	var out strings.Builder
	for i, o := range options {
		fmt.Fprintf(&out, "%s: %d\n", o.node.name, ranks[i])
	}
	return out.String(), nil
}

// showVictims prints the nodes on which the next pod of a workload may preempt.
func (c *cluster) showVictims(a args) (string, error) {
	p, err := c.next(a)
	if err != nil {
		return "", err
	}
	nodes := c.victims(p)
	if len(nodes) == 0 {
		nodes = []string{"no node"}
	}
	return fmt.Sprintf("%s may preempt on %s\n", p.name, strings.Join(nodes, ", ")), nil
}

// next returns the first pending pod of a workload.
func (c *cluster) next(a args) (*pod, error) {
	if err := a.expect("workload"); err != nil {
		return nil, err
	}
	w, err := c.workload(a.words[0])
	if err != nil {
		return nil, err
	}
	c.reconcile(w)
	for _, p := range w.pods() {
		if p.node == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no pod of %s waits", w.name)
}

// showSettings prints the settings of the pods of a workload by source, and the annotations without
// effect. It omits the settings that have the value of the default policy and no other source.
func (c *cluster) showSettings(a args) (string, error) {
	if err := a.expect("workload"); err != nil {
		return "", err
	}
	w, err := c.workload(a.words[0])
	if err != nil {
		return "", err
	}
	subject := c.decisionPod(&pod{revision: w.revisions[0]})
	settings, origins, invalid := c.policy.Explain(subject)
	if other, more := c.policy.Settings(subject); other.String() != settings.String() || !slices.Equal(more, invalid) {
		return "", fmt.Errorf("Settings returns %s, but Explain %s", other, settings)
	}
	out := ""
	defaults := newCluster().policy.Defaults
	bySource := map[string][]string{}
	for i := range decision.Settings {
		setting := &decision.Settings[i]
		source, value := origins.Sources[setting.Name], setting.Text(settings)
		if usual := source == "the profile" || source == "the default"; !usual || value != setting.Text(defaults) {
			bySource[source] = append(bySource[source], setting.Name+"="+value)
		}
	}
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		out += fmt.Sprintf("%s: %s\n", source, strings.Join(bySource[source], ", "))
	}
	if out == "" {
		out = "the defaults\n"
	}
	if settings.Disruptions > 0 {
		out += fmt.Sprintf("disruptions: %d\n", settings.Disruptions)
	}
	for _, text := range origins.Overruled {
		out += "no effect: " + text + "\n"
	}
	for _, i := range invalid {
		out += "! " + i.String() + "\n"
	}
	return out, nil
}
