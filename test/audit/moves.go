package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// releasedAnnotation marks a pod that the controller has released from its ReplicaSet.
	releasedAnnotation = "spot-aware-scheduler.io/released"
	// releasedHash is the value of the label pod-template-hash on such a pod.
	releasedHash = "released"
	// forgetAfter limits the time for which a released pod may exist. Its replacement has two
	// minutes to become ready, and most clouds give two minutes' notice. One more minute allows
	// for an eviction that a PodDisruptionBudget delays.
	forgetAfter = 3 * time.Minute
	// forgetGatedAfter is the limit with gating: an autoscaler has three minutes to start a node
	// for the replacement.
	forgetGatedAfter = 4 * time.Minute
	// forgetDrainedAfter is the limit for a pod that was released because another actor drains
	// its node. The pod waits ten minutes for its eviction.
	forgetDrainedAfter = 11 * time.Minute
	// orphanLimit is the limit if the pod's former ReplicaSet is deleted or its workload has no
	// desired replicas. The controller may have been killed, and the next controller must wait
	// for the lease.
	orphanLimit = 30 * time.Second
)

// DoubleMove reports that a second pod of a workload was moved before the move of the first had
// ended, without an interruption. Every eviction from a node without an interruption signal is
// such a move.
type DoubleMove struct {
	At       time.Time
	Workload string
	// First and Second are the pods, each with the kind of its move.
	First, Second string
}

func (d DoubleMove) String() string {
	return fmt.Sprintf("two moves at once: %s: %s at %s, before the move of %s had ended", d.Workload, d.Second, clock(d.At), d.First)
}

// Forgotten is a pod that was released from its ReplicaSet and neither evicted nor restored.
type Forgotten struct {
	At     time.Time
	Pod    string
	Node   string
	Detail string
}

func (f Forgotten) String() string {
	return fmt.Sprintf("released and forgotten: pod %s on node %s at %s: %s", f.Pod, f.Node, clock(f.At), f.Detail)
}

// release is the annotation of a released pod.
type release struct {
	ReplicaSetUID types.UID `json:"replicaSetUID"`
	Reason        string    `json:"reason"`

	since    time.Time // first observation of the release
	orphaned time.Time // since when its workload is deleted or has no desired replicas; zero otherwise
}

// readRelease returns the release of a released pod, with the fields that can be parsed, and nil
// for other pods.
func readRelease(pod *corev1.Pod) *release {
	text, annotated := pod.Annotations[releasedAnnotation]
	if !annotated && pod.Labels["pod-template-hash"] != releasedHash {
		return nil
	}
	r := &release{}
	_ = json.Unmarshal([]byte(text), r) // a pod with an invalid annotation is still a released pod
	return r
}

// move is a pod that is being moved away from a node.
type move struct {
	pod      *pod
	node     string
	how      string // for people
	surge    bool   // it is evicted when its replacement is ready
	workload types.UID
	desired  int // of the workload, when the move began
	began    stamp
}

func (m *move) String() string { return fmt.Sprintf("%s (%s)", m.pod.name(), m.how) }

// moves is the auditor's state of moves.
type moves struct {
	underway map[types.UID][]*move // by workload
	released map[types.UID]*pod
	pairs    []pair                 // not judged yet, oldest first
	forged   func(*corev1.Pod) bool // see Options
}

// pair is a move that began while another move of the same workload was in progress.
type pair struct{ first, second *move }

// followMove updates the moves after a change of a pod. before is the pod's membership before the
// change.
func (c *core) followMove(p *pod, before membership, when stamp, how change) {
	was, wasEvicted := p.release, p.evicted
	p.release, p.evicted = nil, evicted(p.object)
	if c.moves.forged == nil || !c.moves.forged(p.object) {
		p.release = readRelease(p.object)
	}
	switch {
	case p.gone || p.release == nil:
		delete(c.moves.released, p.uid)
	case was != nil:
		p.release.since, p.release.orphaned = was.since, was.orphaned
	default:
		p.release.since = when.at
		c.moves.released[p.uid] = p
	}

	workload := c.workloadOf(p, before)
	m := &move{pod: p, node: p.node, workload: workload, desired: c.desiredOf(workload), began: when}
	switch {
	case workload == "" || how == listed:
		return
	case p.release != nil:
		if was != nil || !slices.Contains([]string{"heal", "assign", "make-room", "return-to-spot"}, p.release.Reason) {
			return
		}
		m.how, m.surge = "released to "+p.release.Reason, true
	case p.evicted && !wasEvicted:
		m.how = "evicted"
	default:
		return
	}
	for _, other := range c.moves.underway[workload] {
		c.moves.pairs = append(c.moves.pairs, pair{other, m})
	}
	c.moves.underway[workload] = append(c.moves.underway[workload], m)
}

// evicted reports whether the pod is terminating because of an eviction.
func evicted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	})
}

// workloadOf returns the UID of the object with the pod's replica count, or "" if no long-lived
// object has it.
func (c *core) workloadOf(p *pod, member membership) types.UID {
	revision := member.revision
	switch {
	case p.release != nil && p.release.ReplicaSetUID != "":
		revision = p.release.ReplicaSetUID
	case !slices.Contains([]string{"ReplicaSet", "StatefulSet", "ReplicationController"}, member.kind):
		return ""
	}
	if o := c.owners[revision]; o != nil {
		if deployment := o.facts.last().deployment; deployment != "" {
			return deployment
		}
	}
	return revision
}

// desiredOf returns the replica count of a workload, or 0 if the workload does not exist or is
// unknown.
func (c *core) desiredOf(workload types.UID) int {
	if o := c.owners[workload]; o != nil {
		return o.facts.last().desired
	}
	return 0
}

// endMoves removes the workload's ended moves. A move has ended when the pod was deleted or
// restored and the desired number of pods is ready.
func (c *core) endMoves(workload types.UID) {
	list := c.moves.underway[workload]
	if len(list) == 0 {
		return
	}
	ready := c.readyOf(workload)
	list = slices.DeleteFunc(list, func(m *move) bool {
		if m.surge {
			return m.pod.gone || m.pod.release == nil
		}
		return m.pod.gone && ready >= min(m.desired, c.desiredOf(workload))
	})
	if len(list) == 0 {
		delete(c.moves.underway, workload)
	} else {
		c.moves.underway[workload] = list
	}
}

// readyOf counts the live, ready pods of all revisions of a workload.
func (c *core) readyOf(workload types.UID) int {
	revisions := []types.UID{workload}
	for uid := range c.siblings[workload] {
		revisions = append(revisions, uid)
	}
	ready := 0
	for _, revision := range revisions {
		for _, p := range c.revisions[revision] {
			if p.live() && p.release == nil && isReady(p.object) {
				ready++
			}
		}
	}
	return ready
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// checkMoves checks the pairs whose settling time has passed: by then the auditor knows which
// nodes were about to be reclaimed.
func (c *core) checkMoves(now time.Time) {
	for len(c.moves.pairs) > 0 && !now.Before(c.moves.pairs[0].second.began.at.Add(settle)) {
		p := c.moves.pairs[0]
		c.moves.pairs = c.moves.pairs[1:]
		if c.interrupted(p.first, now) || c.interrupted(p.second, now) {
			continue
		}
		name := "?"
		if o := c.owners[p.second.workload]; o != nil {
			name = o.facts.last().name
		}
		c.findings = append(c.findings, DoubleMove{At: p.second.began.at, Workload: name, First: p.first.String(), Second: p.second.String()})
	}
}

// interrupted reports whether the pod's node was deleted or had an interruption signal at any
// time around the move.
func (c *core) interrupted(m *move, now time.Time) bool {
	facts := c.factsDuring(m.node, m.began.at.Add(-window), stamp{at: now})
	return len(facts) == 0 || slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool { return e.value.signal != "" })
}

// findForgotten reports released pods that still exist, each once.
func (c *core) findForgotten(now time.Time) {
	for uid, p := range c.moves.released {
		r := p.release
		if workload := c.workloadOf(p, p.member); workload == "" || c.desiredOf(workload) > 0 {
			r.orphaned = time.Time{}
		} else if r.orphaned.IsZero() {
			r.orphaned = now
		}
		finding := Forgotten{At: now, Pod: p.name(), Node: p.node}
		limit := forgetAfter
		switch {
		case r.Reason == "drain":
			limit = forgetDrainedAfter
		case c.gated:
			limit = forgetGatedAfter
		}
		switch {
		case now.Sub(r.since) > limit:
			finding.Detail = "it was released at " + clock(r.since)
		case !r.orphaned.IsZero() && now.Sub(r.orphaned) > orphanLimit:
			finding.Detail = "its workload has been deleted or scaled to zero since " + clock(r.orphaned)
		default:
			continue
		}
		delete(c.moves.released, uid)
		c.findings = append(c.findings, finding)
	}
}

// releasedPods returns the names of the existing released pods, in alphabetical order.
func (c *core) releasedPods() []string {
	var names []string
	for _, p := range c.pods {
		if p.release != nil && !p.gone {
			names = append(names, p.name())
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names
}
