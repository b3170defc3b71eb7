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
	// releasedAnnotation is on a pod that the controller took out of its ReplicaSet.
	releasedAnnotation = "spot-aware-scheduler.io/released"
	// releasedHash is then the value of its label pod-template-hash.
	releasedHash = "released"
	// forgetAfter is how long a released pod may stay: the two minutes that its replacement has to become ready, or that most clouds give
	// notice, and one for an eviction that a budget holds up.
	forgetAfter = 3 * time.Minute
	// forgetDrainedAfter is the same for a pod that was released because somebody else drains its node: it waits ten minutes for its eviction.
	forgetDrainedAfter = 11 * time.Minute
	// outlive is how long it may stay when what it was released from is gone or wants no pods: the controller may have been killed, and the
	// next one has to wait for its lease.
	outlive = 30 * time.Second
)

// DoubleMove is a workload of which a second pod was moved, to stand better, before the move of the first had ended. Whoever evicts a pod
// from a node that is not about to go moves it in this sense.
type DoubleMove struct {
	At       time.Time
	Workload string
	// First and Second are the pods, each with what was done to it.
	First, Second string
}

func (d DoubleMove) String() string {
	return fmt.Sprintf("two moves at once: %s: %s at %s, while the move of %s had not ended", d.Workload, d.Second, clock(d.At), d.First)
}

// Forgotten is a pod that was released from its ReplicaSet and neither left nor was given back.
type Forgotten struct {
	At     time.Time
	Pod    string
	Node   string
	Detail string
}

func (f Forgotten) String() string {
	return fmt.Sprintf("released and forgotten: pod %s on node %s at %s: %s", f.Pod, f.Node, clock(f.At), f.Detail)
}

// release is what stands on a pod that was released.
type release struct {
	ReplicaSetUID types.UID `json:"replicaSetUID"`
	Reason        string    `json:"reason"`

	since    time.Time // when it was first seen
	orphaned time.Time // since when what it was released from is gone or wants nothing; zero if it does
}

// readRelease returns what stands on a released pod, as far as it can be read, and nil for any other.
func readRelease(pod *corev1.Pod) *release {
	text, annotated := pod.Annotations[releasedAnnotation]
	if !annotated && pod.Labels["pod-template-hash"] != releasedHash {
		return nil
	}
	r := &release{}
	_ = json.Unmarshal([]byte(text), r) // one that does not parse is a released pod all the same
	return r
}

// move is a pod that is being moved away from a node.
type move struct {
	pod      *pod
	node     string
	how      string // for people
	surge    bool   // its replacement came first, and it goes when that is ready
	workload types.UID
	desired  int // of the workload, when the move began
	began    stamp
}

func (m *move) String() string { return fmt.Sprintf("%s (%s)", m.pod.name(), m.how) }

// moves is what the auditor remembers of moves.
type moves struct {
	underway map[types.UID][]*move // by workload
	released map[types.UID]*pod
	pairs    []pair                 // not judged yet, oldest first
	forged   func(*corev1.Pod) bool // see Options
}

// pair is a move that began while another of the same workload was under way.
type pair struct{ first, second *move }

// followMove takes in how a change of a pod moves it. before is the pod's membership before the change.
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

// evicted reports whether the pod goes because somebody asked for its eviction.
func evicted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	})
}

// workloadOf returns the UID of what carries the pod's replica count, "" if there is none that lasts.
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

// desiredOf returns the replica count of a workload, 0 if it does not exist or is not known.
func (c *core) desiredOf(workload types.UID) int {
	if o := c.owners[workload]; o != nil {
		return o.facts.last().desired
	}
	return 0
}

// endMoves forgets the workload's moves that have ended: the pod is gone or was given back, and as many are ready as are wanted.
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

// readyOf counts the pods of all revisions of a workload that live and are ready.
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

// judgeMoves judges the pairs whose settling time is over, when it is known which nodes were about to go.
func (c *core) judgeMoves(now time.Time) {
	for len(c.moves.pairs) > 0 && !now.Before(c.moves.pairs[0].second.began.at.Add(settle)) {
		p := c.moves.pairs[0]
		c.moves.pairs = c.moves.pairs[1:]
		if c.goes(p.first, now) || c.goes(p.second, now) {
			continue
		}
		name := "?"
		if o := c.owners[p.second.workload]; o != nil {
			name = o.facts.last().name
		}
		c.findings = append(c.findings, DoubleMove{At: p.second.began.at, Workload: name, First: p.first.String(), Second: p.second.String()})
	}
}

// goes reports whether the node from which a pod is moved was gone or said that it would go, at any time around the move.
func (c *core) goes(m *move, now time.Time) bool {
	facts := c.factsDuring(m.node, m.began.at.Add(-window), stamp{at: now})
	return len(facts) == 0 || slices.ContainsFunc(facts, func(e entry[nodeFacts]) bool { return e.value.signal != "" })
}

// lookForForgotten reports released pods that are still there, each once.
func (c *core) lookForForgotten(now time.Time) {
	for uid, p := range c.moves.released {
		r := p.release
		if workload := c.workloadOf(p, p.member); workload == "" || c.desiredOf(workload) > 0 {
			r.orphaned = time.Time{}
		} else if r.orphaned.IsZero() {
			r.orphaned = now
		}
		finding := Forgotten{At: now, Pod: p.name(), Node: p.node}
		limit := forgetAfter
		if r.Reason == "drain" {
			limit = forgetDrainedAfter
		}
		switch {
		case now.Sub(r.since) > limit:
			finding.Detail = "it was released at " + clock(r.since)
		case !r.orphaned.IsZero() && now.Sub(r.orphaned) > outlive:
			finding.Detail = "what it was released from has been gone or has wanted no pods since " + clock(r.orphaned)
		default:
			continue
		}
		delete(c.moves.released, uid)
		c.findings = append(c.findings, finding)
	}
}

// releasedPods returns the names of the released pods that exist, in alphabetical order.
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
