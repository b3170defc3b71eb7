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
	// authorDelay is the time after a change of a node at which its author is known. On a loaded
	// machine the API server logs a request more than a second after the watch reports its result.
	authorDelay = 3 * time.Second
)

// Author is who wrote a version of a node.
type Author int

const (
	// OtherActor means any actor except spot-controller.
	OtherActor Author = iota
	// Controller means spot-controller.
	Controller
	// PerhapsController means that spot-controller sent a write and was killed before the answer.
	PerhapsController
)

// Interference is a change that the controller made to another actor's taint or cordon on a node.
type Interference struct {
	At     time.Time
	Node   string
	Detail string
}

func (t Interference) String() string {
	return fmt.Sprintf("interference: node %s at %s: %s", t.Node, clock(t.At), t.Detail)
}

// nodeChange is one version of a node and its previous version.
type nodeChange struct {
	at            time.Time
	before, after *corev1.Node
}

// recordNodeChange stores a change of a node until its author is known.
func (c *core) recordNodeChange(at time.Time, before, after *corev1.Node) {
	if c.author != nil && before != nil && (len(describeInterference(before, after)) > 0 || hasOwnTaint(before) != hasOwnTaint(after)) {
		c.nodeChanges = append(c.nodeChanges, nodeChange{at, before, after})
	}
}

// checkNodeChanges checks the changes of nodes whose authors are known now.
func (c *core) checkNodeChanges(now time.Time) {
	for len(c.nodeChanges) > 0 && !now.Before(c.nodeChanges[0].at.Add(authorDelay)) {
		change := c.nodeChanges[0]
		c.nodeChanges = c.nodeChanges[1:]
		name := change.after.Name
		author := c.author(name, revisionOf(change.after))
		details := describeInterference(change.before, change.after)
		if n := c.nodeNamed(name); hasOwnTaint(change.after) {
			n.marked = author != OtherActor || hasOwnTaint(change.before) && n.marked
		} else if hasOwnTaint(change.before) && !n.marked {
			details = append(details, "the taint "+ownTaint+", which another actor had set, was removed")
		}
		if author == Controller && len(details) > 0 {
			c.findings = append(c.findings, Interference{At: change.at, Node: name, Detail: strings.Join(details, "; ")})
		}
	}
}

// describeInterference describes the effect of a node change on objects of other actors: foreign
// taints and the cordon.
func describeInterference(before, after *corev1.Node) []string {
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

// foreignTaints returns the taints with keys of other actors, including the times at which they
// were added.
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
