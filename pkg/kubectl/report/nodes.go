package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Node describes a node to the policy.
type Node struct {
	Name string `json:"name"`
	// Capacity is "spot" or "on-demand". CapacitySource is its source: a label, or the
	// fact that no label defines it.
	Capacity       string `json:"capacity"`
	CapacitySource string `json:"source"`
	// Pool is TYPE/ZONE; "" if the labels do not define it.
	Pool string `json:"pool,omitempty"`
	// Status is Ready or NotReady, with SchedulingDisabled if the node is cordoned, as in kubectl.
	Status  string    `json:"status"`
	Created time.Time `json:"age"`
	// FreeCPU and FreeMemory are what no pod requests.
	FreeCPU    string `json:"freeCpu"`
	FreeMemory string `json:"freeMemory"`
	// Interruption is the class of the strongest signal: "none", "advisory", "drain" or "reclaim".
	// Signals lists all signals.
	Interruption string   `json:"interruption"`
	Signals      []string `json:"signals,omitempty"`
	// Unconfirmed: the breaker for reclaim signals is open, and nothing else confirms that the node
	// is being reclaimed.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Deadline is the time at which the node is reclaimed; zero if unknown.
	Deadline time.Time `json:"deadline,omitzero"`
	outlived bool      // whether the node is Ready although its deadline has passed
	// Replicas is the number of workload pods that would be lost with the node.
	// WorkloadsBelowFloor lists the workloads that would then have fewer replicas than their floor,
	// or none, and BelowFloor counts them.
	Replicas            int   `json:"replicas"`
	BelowFloor          int   `json:"belowFloor"`
	WorkloadsBelowFloor []Ref `json:"workloadsBelowFloor,omitempty"`
}

// Nodes returns the nodes that selector selects: the strongest signal first, then by name.
func (v *View) Nodes(selector labels.Selector) []Node {
	breaker := v.Breaker()
	reader := node.Reader{Policy: v.Policy, Signals: v.Signals}
	nodes := slices.Clone(v.Snapshot.Nodes)
	slices.SortStableFunc(nodes, func(a, b *snapshot.Node) int { return cmp.Compare(b.Facts.Signal, a.Facts.Signal) })
	all := []Node{} // not null in JSON
	for _, n := range nodes {
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		facts, free := n.Facts, n.Free(func(*snapshot.Pod) bool { return true })
		node := Node{
			Name: n.Name, Capacity: facts.Capacity.Type.String(), CapacitySource: capacitySource(v.Policy, n),
			Interruption: facts.Signal.String(), Pool: definedPool(n), Status: statusOf(n.Node), Created: n.CreationTimestamp.Time,
			Unconfirmed: slices.Contains(breaker.Unconfirmed, n),
			FreeCPU:     resource.NewMilliQuantity(free.MilliCPU, resource.DecimalSI).String(), FreeMemory: fmt.Sprintf("%dMi", free.Memory>>20),
		}
		announced := reader.Announcements(n.Node, facts.Capacity.Type, v.Snapshot.Now)
		for _, a := range announced {
			node.Signals = append(node.Signals, a.Name)
		}
		if facts.Signal == decision.Reclaim {
			node.Deadline = deadlineOf(n, announced)
			node.outlived = strings.HasPrefix(node.Status, "Ready") && !node.Deadline.IsZero() && !node.Deadline.After(v.Snapshot.Now)
		}
		losses, pods := v.affectedBy(n)
		node.Replicas = pods
		for _, l := range losses {
			if l.Effect.AtLeast(LossBelowFloor) {
				node.WorkloadsBelowFloor = append(node.WorkloadsBelowFloor, l.Ref)
				node.BelowFloor++
			}
		}
		all = append(all, node)
	}
	return all
}

// Effect returns what happens because a pause replaces another; nil is no pause. A line for each
// cause that is no longer paused has what the controller starts, if that can be counted. The last
// line has the pods that end with their nodes during the pause. It requires View.Rebalancer.
func (v *View) Effect(before, after *safety.Pause) (lines []string) {
	nodes, lost, moved := v.Nodes(labels.Everything()), map[string]bool{}, map[safety.Cause]int{}
	starts := func(cause safety.Cause, text string) {
		if before.Stops(cause) && !after.Stops(cause) {
			lines = append(lines, string(cause)+": "+cmp.Or(v.Rebalancer.Inactive, text, "nothing"))
		}
	}
	reclaims := func(n *Node) bool {
		return v.Interruption.Enabled && n.Interruption == decision.Reclaim.String() && !slices.Contains(n.Signals, node.UnreachableKubelet)
	}
	starts(safety.Reclaim, replicasOn(nodes, "moves %s within their budgets", reclaims)+
		replicasOn(nodes, "; the deadline of %s has passed, but the node is Ready: none is deleted; if the signals are false, pause and "+
			"remove them before resume", func(n *Node) bool { return reclaims(n) && n.outlived }))
	starts(safety.Deadline, replicasOn(nodes, "deletes the rest of %s at the deadline", func(n *Node) bool {
		return v.Interruption.DeleteAtDeadline && reclaims(n) && !n.outlived && !n.Unconfirmed
	}))
	starts(safety.Advisory, replicasOn(nodes, "moves %s, one of a workload at a time", func(n *Node) bool {
		return v.Interruption.Advisory.Enabled && n.Interruption == decision.Advisory.String()
	}))
	for s, o := range v.obstacles() {
		if o.Cause == rebalance.Planned {
			moved[safety.Cause(s.Reason)]++
		}
	}
	for _, cause := range []safety.Cause{safety.Heal, safety.ReturnToSpot} {
		starts(cause, "moves a replica of "+Count(moved[cause], "workload", "workloads")+" now")
	}
	if text := replicasOn(nodes, "Lost with their nodes during the pause: %s", func(n *Node) bool {
		lost[n.Name] = after.Stops(safety.Reclaim) && reclaims(n) && !n.outlived && (after.Until == nil || n.Deadline.Before(after.Until.Time))
		return lost[n.Name]
	}); text != "" {
		all, _ := v.affectedBy(slices.DeleteFunc(slices.Clone(v.Snapshot.Nodes), func(n *snapshot.Node) bool { return !lost[n.Name] })...)
		last := slices.DeleteFunc(all, func(w AffectedWorkload) bool { return w.After > 0 })
		lines = append(lines, text+"; "+Count(len(last), "workload has", "workloads have")+" no other replica")
	}
	return lines
}

// replicasOn returns format with the replicas on the selected nodes; "" if there are none.
func replicasOn(nodes []Node, format string, selected func(*Node) bool) string {
	pods, count, first := 0, 0, time.Time{}
	for i := range nodes {
		if n := &nodes[i]; n.Replicas > 0 && selected(n) {
			pods, count, first = pods+n.Replicas, count+1, node.Earlier(first, n.Deadline)
		}
	}
	if pods == 0 {
		return ""
	}
	text := Count(pods, "pod", "pods") + " on " + Count(count, "node", "nodes")
	if !first.IsZero() {
		text += " (first deadline " + first.UTC().Format(time.RFC3339) + ")"
	}
	return fmt.Sprintf(format, text)
}

// Breaker returns the state of the breaker for reclaim signals, as the controller reads it from the
// nodes.
func (v *View) Breaker() interruption.Breaker {
	_, _, breaker := interruption.Plan(v.Snapshot, interruption.Settings{
		Interruption: v.Interruption, Signals: v.Signals, ForcedBreaker: v.ForcedBreaker,
	})
	return breaker
}

// statusOf returns the status of a node as kubectl get nodes prints it.
func statusOf(n *v1.Node) string {
	status := "Ready"
	if !node.Ready(n) {
		status = "NotReady"
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func capacitySource(policy *decision.Policy, n *snapshot.Node) string {
	label := func(key string) string { return key + "=" + n.Labels[key] }
	switch n.Facts.Capacity.Source {
	case decision.FromLabel:
		return label(spot.CapacityLabel)
	case decision.FromDefault:
		return "no capacity label: unlabeledNodes"
	case decision.FromSignal:
		return "no capacity label: a signal that only spot nodes get"
	case decision.Settling:
		return "no label yet: counts as spot during labelGrace"
	}
	var deciding, unknown []string
	for _, key := range policy.UnknownLabels(n.Labels) {
		unknown = append(unknown, label(key))
	}
	for i := range policy.CapacityLabels {
		key := policy.CapacityLabels[i].Key
		if value, ok := n.Labels[key]; ok && !slices.Contains(deciding, label(key)) {
			if _, decides := policy.LabelMeaning(key, value); decides {
				deciding = append(deciding, label(key))
			}
		}
	}
	if n.Facts.Capacity.Source == decision.FromContradiction {
		return "contradiction: " + strings.Join(append(deciding, unknown...), ", ")
	}
	if len(unknown) > 0 {
		return strings.Join(deciding, ", ") + "; ignored: " + strings.Join(unknown, ", ")
	}
	return strings.Join(deciding, ", ")
}

// deadlineOf returns when a node is reclaimed: the deadline in its annotation or the earliest
// deadline of its signals, whichever is first. It returns zero if none is known.
func deadlineOf(n *snapshot.Node, announced []node.Announcement) time.Time {
	first, _ := time.Parse(time.RFC3339, n.Annotations[spot.InterruptionDeadlineAnnotation]) // zero if invalid
	for _, a := range announced {
		if a.Class == decision.Reclaim && a.Timed && !a.Since.IsZero() {
			first = node.Earlier(first, a.Since.Add(a.Notice))
		}
	}
	return first
}
