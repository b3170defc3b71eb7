package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	ownTaint = "spot-aware-scheduler.io/interruption"
	// recorded is how long after a change of a node it is known who made it.
	recorded = time.Second
)

// Trespass is a change by the controller of what somebody else put on a node.
type Trespass struct {
	At     time.Time
	Node   string
	Detail string
}

func (t Trespass) String() string {
	return fmt.Sprintf("trespass: node %s at %s: %s", t.Node, clock(t.At), t.Detail)
}

// nodeChange is one version of a node and the one before it.
type nodeChange struct {
	at            time.Time
	before, after *corev1.Node
}

// noteChange keeps a change of a node until it is known who made it.
func (c *core) noteChange(at time.Time, before, after *corev1.Node) {
	if c.wrote != nil && before != nil && (len(interferes(before, after)) > 0 || hasOwnTaint(before) != hasOwnTaint(after)) {
		c.nodeChanges = append(c.nodeChanges, nodeChange{at, before, after})
	}
}

// judgeNodes judges the changes of nodes whose authors are known by now.
func (c *core) judgeNodes(now time.Time) {
	for len(c.nodeChanges) > 0 && !now.Before(c.nodeChanges[0].at.Add(recorded)) {
		change := c.nodeChanges[0]
		c.nodeChanges = c.nodeChanges[1:]
		name := change.after.Name
		byController := c.wrote(name, revisionOf(change.after))
		details := interferes(change.before, change.after)
		if n := c.nodeNamed(name); hasOwnTaint(change.after) {
			n.marked = byController || hasOwnTaint(change.before) && n.marked
		} else if hasOwnTaint(change.before) && !n.marked {
			details = append(details, "the taint "+ownTaint+", which somebody else had set, was removed")
		}
		if byController && len(details) > 0 {
			c.findings = append(c.findings, Trespass{At: change.at, Node: name, Detail: strings.Join(details, "; ")})
		}
	}
}

// interferes says what a change of a node did to what is not the controller's: taints with keys of others, and the cordon.
func interferes(before, after *corev1.Node) []string {
	var details []string
	if before.Spec.Unschedulable != after.Spec.Unschedulable {
		details = append(details, fmt.Sprintf("unschedulable was set from %t to %t", before.Spec.Unschedulable, after.Spec.Unschedulable))
	}
	had, has := foreignTaints(before), foreignTaints(after)
	for _, taint := range had {
		if !slices.Contains(has, taint) {
			details = append(details, "the taint "+taint+" was removed or changed")
		}
	}
	for _, taint := range has {
		if !slices.Contains(had, taint) {
			details = append(details, "the taint "+taint+" was set")
		}
	}
	return details
}

// foreignTaints are the taints with keys of others; when they were added belongs to them.
func foreignTaints(node *corev1.Node) []string {
	var taints []string
	for _, t := range node.Spec.Taints {
		if t.Key != ownTaint {
			added := ""
			if t.TimeAdded != nil {
				added = " since " + t.TimeAdded.UTC().Format(time.RFC3339)
			}
			taints = append(taints, t.ToString()+added)
		}
	}
	return taints
}

func hasOwnTaint(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == ownTaint })
}
