package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Node is what a node is to the policy.
type Node struct {
	Name string `json:"name"`
	// Capacity is "spot" or "on-demand", Because what said so: a label, or that none did.
	Capacity string `json:"capacity"`
	Because  string `json:"because"`
	// Pool is TYPE/ZONE; "" where the labels do not say.
	Pool string `json:"pool,omitempty"`
	// Interruption is the class of the strongest signal: "none", "advisory", "drain" or "reclaim". Signals are all there are.
	Interruption string   `json:"interruption"`
	Signals      []string `json:"signals,omitempty"`
	// Deadline is when it goes, if that is known.
	Deadline *time.Time `json:"deadline,omitempty"`
	// Replicas is how many pods of workloads go with it; FallBelow are the workloads that would have fewer left than their floor, or none.
	Replicas  int   `json:"replicas"`
	FallBelow []Ref `json:"fallBelow,omitempty"`

	class decision.SignalClass
}

// Nodes returns the nodes whose labels are selected: those with the strongest signal first, then by name.
func (v *View) Nodes(selector labels.Selector) []Node {
	reader := kube.NodeReader{Policy: v.Policy, Signals: v.Signals}
	all := []Node{} // not null in JSON
	for _, n := range v.Snapshot.Nodes {
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		facts := n.Facts
		node := Node{
			Name: n.Name, Capacity: facts.Capacity.Type.String(), Because: because(v.Policy, n), class: facts.Signal,
			Interruption: facts.Signal.String(),
		}
		if facts.Pool != (decision.Pool{}) {
			node.Pool = poolName(n)
		}
		announced := reader.Announced(n.Node, facts.Capacity.Type, v.Snapshot.Now)
		for _, a := range announced {
			node.Signals = append(node.Signals, a.Name)
		}
		if facts.Signal == decision.Reclaim {
			node.Deadline = deadlineOf(n, announced)
		}
		losses, pods := v.lose(func(other *cluster.Node) bool { return other == n }, n.Pods)
		node.Replicas = pods
		for _, l := range losses {
			if l.Falls != Keeps {
				node.FallBelow = append(node.FallBelow, l.Ref)
			}
		}
		all = append(all, node)
	}
	slices.SortStableFunc(all, func(a, b Node) int { return cmp.Compare(b.class, a.class) })
	return all
}

// because says what a node's capacity type was read from.
func because(policy *decision.Policy, n *cluster.Node) string {
	label := func(key string) string { return key + "=" + n.Labels[key] }
	switch n.Facts.Capacity.Source {
	case decision.FromLabel:
		return label(decision.CapacityLabelKey)
	case decision.FromDefault:
		return "no label says: unlabeledNodes"
	case decision.Settling:
		return "no label yet: counts as spot within labelGrace"
	}
	var says, unknown []string
	for _, key := range policy.UnknownLabels(n.Labels) {
		unknown = append(unknown, label(key))
	}
	for i := range policy.CapacityLabels {
		key := policy.CapacityLabels[i].Key
		if value, ok := n.Labels[key]; ok && !slices.Contains(says, label(key)) {
			if _, decides := policy.LabelSays(key, value); decides {
				says = append(says, label(key))
			}
		}
	}
	if n.Facts.Capacity.Source == decision.FromContradiction {
		return "contradiction: " + strings.Join(append(says, unknown...), ", ")
	}
	if len(unknown) > 0 {
		return strings.Join(says, ", ") + "; ignored: " + strings.Join(unknown, ", ")
	}
	return strings.Join(says, ", ")
}

// deadlineOf returns when a node goes that is being reclaimed: what its annotation says, or the first of its signals that say how much time
// they leave; nil if none does.
func deadlineOf(n *cluster.Node, announced []kube.Announcement) *time.Time {
	var first *time.Time
	if at, err := time.Parse(time.RFC3339, n.Annotations[kube.DeadlineAnnotation]); err == nil {
		first = &at
	}
	for _, a := range announced {
		if a.Class != decision.Reclaim || !a.Timed || a.Since.IsZero() {
			continue
		}
		if at := a.Since.Add(a.Notice); first == nil || at.Before(*first) {
			first = &at
		}
	}
	return first
}
