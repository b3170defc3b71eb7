package audit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// change is the way in which an object was observed.
type change int

const (
	// listed: the object existed when the watch began. Its pods count, but their bindings are not
	// judged.
	listed change = iota
	// changed: the object was added or modified.
	changed
	// deleted: the object was deleted.
	deleted
)

// core is the state machine. It has no clock: callers pass the time of each observation. Time
// must not decrease.
type core struct {
	profile  string // spec.schedulerName of the judged pods
	gated    bool   // Options.Gated
	policies timeline[*Policy]
	nodes    map[string]*node
	owners   map[types.UID]*owner
	siblings map[types.UID]map[types.UID]*owner // ReplicaSets by Deployment or Rollout
	pods     map[types.UID]*pod
	// revisions contains the pods by revision: the UID of their controller, or their own.
	revisions map[types.UID]map[types.UID]*pod

	bindings []binding // not judged yet, oldest first
	wakeups  wakeups
	// newest returns a pod from the informer's store, which may be newer than the latest
	// observation. nil: no newer state can exist.
	newest func(namespace, name string) (pod *corev1.Pod, exists bool)
	// fetch reads a pod from the API server. It returns nil if the pod does not exist or cannot
	// be read. nil: no watch can be interrupted.
	fetch func(namespace, name string) *corev1.Pod

	moves       moves
	nodeChanges []nodeChange // not judged yet, oldest first
	// author is Options.Author.
	author func(node string, resourceVersion uint64) Author

	findings []fmt.Stringer // of every kind, in the order of detection
}

func findingsOf[T fmt.Stringer](c *core) []T {
	var out []T
	for _, finding := range c.findings {
		if one, ok := finding.(T); ok {
			out = append(out, one)
		}
	}
	return out
}

type node struct {
	object *corev1.Node // nil if deleted
	facts  timeline[nodeFacts]
	offers resources // allocatable
	used   resources // requests of the pods that use this node
	marked bool      // the controller has set its taint
}

type pod struct {
	uid      types.UID
	object   *corev1.Pod // latest observation
	versions timeline[*corev1.Pod]
	member   membership
	joined   time.Time // when member last changed; zero if it never did
	requests resources

	seen               stamp
	ungated            time.Time // when it lost the gate of the controller; zero if it had none
	unschedulableSince time.Time // when the scheduler first found it unschedulable; zero if never
	node               string    // "" while unbound
	bound              stamp
	ended              stamp     // when it became terminating, terminal or deleted; zero while live
	gone               bool      // terminal or deleted, so it uses no resources
	deleted            time.Time // zero while the object exists
	charged            string    // the node that its requests are charged to, "" for none
	release            *release  // nil unless released
	evicted            bool      // its eviction was observed

	wait waiting
}

func (p *pod) name() string      { return p.object.Namespace + "/" + p.object.Name }
func (p *pod) namespace() string { return p.object.Namespace }
func (p *pod) live() bool        { return p.ended.at.IsZero() }

func (p *pod) controllerKind() string {
	if ref := metav1.GetControllerOf(p.object); ref != nil {
		return ref.Kind
	}
	return ""
}

// newCore starts an audit of one profile.
func newCore(profile string, policy *Policy, at time.Time) *core {
	c := &core{
		profile:   profile,
		nodes:     map[string]*node{},
		owners:    map[types.UID]*owner{},
		siblings:  map[types.UID]map[types.UID]*owner{},
		pods:      map[types.UID]*pod{},
		revisions: map[types.UID]map[types.UID]*pod{},
	}
	c.wakeups.patience = patience
	c.wakeups.pending, c.wakeups.repel = map[types.UID]*pod{}, map[types.UID]*pod{}
	c.moves.underway, c.moves.released = map[types.UID][]*move{}, map[types.UID]*pod{}
	c.setPolicy(policy, at)
	return c
}

// setPolicy replaces the policy. The previous policy still applies to judgements within the
// window.
func (c *core) setPolicy(policy *Policy, at time.Time) {
	c.policies.add(policy, stamp{at: at})
	for _, n := range c.nodes {
		if n.object != nil {
			c.recordNodeFacts(n, policy.nodeFacts(n.object, at), stamp{at: at})
		}
	}
	c.schedulerStarted(at)
}

// observe processes one change of a pod, a node, an owner or the scheduler's lease.
func (c *core) observe(at time.Time, how change, object metav1.Object) {
	when := stamp{at, revisionOf(object)}
	relevant := true
	switch o := object.(type) {
	case *corev1.Pod:
		relevant = c.observePod(when, how, o)
	case *corev1.Node:
		relevant = c.observeNode(when, how, o)
	case *coordinationv1.Lease:
		c.observeLease(at, how, o)
		relevant = false
	default:
		relevant = c.observeOwner(when, how, o)
	}
	if relevant {
		c.recheck(at)
	}
}

// revisionOf returns an object's etcd revision, or 0 if it is unknown.
func revisionOf(object metav1.Object) uint64 {
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// observed reports whether this state of a pod, or a later state, has been observed.
func (c *core) observed(object *corev1.Pod) bool {
	p := c.pods[object.UID]
	return p != nil && (!p.deleted.IsZero() || revisionOf(p.object) >= revisionOf(object))
}

// advance processes the passing of time. It checks settled bindings, moves and node changes, and
// finds lost wake-ups and forgotten pods.
func (c *core) advance(now time.Time) {
	for _, n := range c.nodes {
		if n.object != nil && unready(n.object) {
			c.recordNodeFacts(n, c.policies.last().nodeFacts(n.object, now), stamp{at: now})
		}
	}
	c.settle(now)
	c.findLostWakeups(now)
	c.checkMoves(now)
	c.checkNodeChanges(now)
	c.findForgotten(now)
	for uid, p := range c.pods {
		if !p.deleted.IsZero() && p.deleted.Before(now.Add(-memory)) {
			delete(c.pods, uid)
			delete(c.revisions[p.member.revision], uid)
			if len(c.revisions[p.member.revision]) == 0 {
				delete(c.revisions, p.member.revision)
			}
		}
	}
}

func (c *core) observeNode(when stamp, how change, object *corev1.Node) bool {
	n := c.nodeNamed(object.Name)
	if how == deleted {
		n.object = nil
		return c.recordNodeFacts(n, nodeFacts{}, when)
	}
	before := n.object
	n.object, n.offers = object, inUnits(object.Status.Allocatable)
	c.recordNodeChange(when.at, before, object)
	facts := c.policies.last().nodeFacts(object, when.at)
	return c.recordNodeFacts(n, facts, when) || before == nil ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, object.Status.Allocatable) ||
		!equality.Semantic.DeepEqual(before.Spec, object.Spec) || !maps.Equal(before.Labels, object.Labels)
}

func (c *core) nodeNamed(name string) *node {
	if c.nodes[name] == nil {
		c.nodes[name] = &node{used: resources{}}
	}
	return c.nodes[name]
}

// recordNodeFacts records facts that differ from the current facts.
func (c *core) recordNodeFacts(n *node, facts nodeFacts, when stamp) bool {
	if facts == n.facts.last() {
		return false
	}
	n.facts.add(facts, when)
	return true
}

func (c *core) observeOwner(when stamp, how change, object metav1.Object) bool {
	facts, ok := readOwner(object)
	if !ok {
		return false
	}
	uid := object.GetUID()
	o := c.owners[uid]
	if o == nil {
		o = &owner{}
		c.owners[uid] = o
	}
	if parent := facts.parent(); parent != "" {
		if c.siblings[parent] == nil {
			c.siblings[parent] = map[types.UID]*owner{}
		}
		c.siblings[parent][uid] = o
	}
	if how == deleted {
		facts = ownerFacts{}
	}
	if facts == o.facts.last() {
		return false
	}
	o.facts.add(facts, when)
	return true
}

func (c *core) observePod(when stamp, how change, object *corev1.Pod) bool {
	p := c.pods[object.UID]
	if p == nil {
		if how == deleted {
			return false
		}
		p = &pod{uid: object.UID, object: object, seen: when, member: memberOf(object), requests: resources{}}
		c.pods[p.uid] = p
		c.join(p)
	}
	relevant, before := p.bound.at.IsZero(), p.member
	c.endMoves(c.workloadOf(p, before)) // with the facts before this change
	if member := memberOf(object); p.member.kind != noOpinion && member != p.member && how != deleted {
		delete(c.revisions[p.member.revision], p.uid)
		if member.kind == "" {
			member.kind = released // it had a controller at the first observation
		}
		p.member, p.joined = member, when.at
		c.join(p)
		relevant = true
	}
	if last := p.versions.last(); last == nil || !sameForPolicy(last, object) {
		p.versions.add(object, when)
		relevant = true
	}
	if hasGate(p.object) && !hasGate(object) {
		p.ungated = when.at
	}
	p.object = object
	c.recordUnschedulable(p, when)
	c.recordBinding(p, when, how)
	if c.recordEnd(p, when, how) {
		relevant = true
	}
	c.updateRequests(p)
	c.updatePending(p, when.at)
	c.followMove(p, before, when, how)
	return relevant
}

// sameForPolicy compares the fields of a pod that the policy reads and that may change during the
// pod's life.
func sameForPolicy(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		maps.Equal(a.Spec.NodeSelector, b.Spec.NodeSelector) && equality.Semantic.DeepEqual(a.Spec.Affinity, b.Spec.Affinity)
}

func (c *core) join(p *pod) {
	if c.revisions[p.member.revision] == nil {
		c.revisions[p.member.revision] = map[types.UID]*pod{}
	}
	c.revisions[p.member.revision][p.uid] = p
}

// recordUnschedulable records when the scheduler first found the pod unschedulable. It does not use
// lastTransitionTime, because the condition of a gated pod has been False since its creation.
func (c *core) recordUnschedulable(p *pod, when stamp) {
	scheduled := podScheduled(p.object)
	if scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason != corev1.PodReasonUnschedulable ||
		!p.unschedulableSince.IsZero() {
		return
	}
	var written time.Time
	for _, entry := range p.object.ManagedFields {
		if entry.Subresource == "status" && entry.Time != nil && entry.Time.After(written) {
			written = entry.Time.Time
		}
	}
	p.unschedulableSince = earliest(when.at, written)
	c.wakeups.progress = when.at
}

func podScheduled(p *corev1.Pod) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// earliest returns the earliest possible time of a change that was observed at a time. The API
// server writes whole seconds, so a written time counts only if it proves that the watch was
// late.
func earliest(seen, written time.Time) time.Time {
	if written.IsZero() || seen.Sub(written) < time.Second {
		return seen
	}
	return written
}

// recordBinding records the pod's node, and queues the binding for the check if the scheduler made
// it.
func (c *core) recordBinding(p *pod, when stamp, how change) {
	target := p.object.Spec.NodeName
	if target == "" || target == p.node {
		return
	}
	b := binding{pod: p, node: target, seen: when, before: p.node, at: when.at}
	p.node, p.bound = target, when
	scheduled := podScheduled(p.object)
	if scheduled != nil && scheduled.Status == corev1.ConditionTrue {
		b.at = earliest(when.at, scheduled.LastTransitionTime.Time)
	}
	// A pod that is bound at its first observation was created on its node, unless the scheduler
	// has set its condition.
	created := when == p.seen && scheduled == nil
	if how == listed || p.object.Spec.SchedulerName != c.profile || created {
		return
	}
	c.wakeups.progress = when.at
	if c.gated {
		if p.ungated.IsZero() || strings.HasPrefix(p.object.Annotations[prefix+"assigned"], "none:") {
			return
		}
		b.at = p.ungated
	}
	c.bindings = append(c.bindings, b)
}

// hasGate reports whether the pod waits for a decision of the controller.
func hasGate(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == prefix+"capacity" })
}

// recordEnd records the time from which the pod does not count.
func (c *core) recordEnd(p *pod, when stamp, how change) bool {
	if how == deleted {
		p.deleted = when.at
	}
	terminal := p.object.Status.Phase == corev1.PodSucceeded || p.object.Status.Phase == corev1.PodFailed
	gone := p.gone || terminal || how == deleted
	ended := gone || p.object.DeletionTimestamp != nil
	if gone == p.gone && ended == !p.live() {
		return false
	}
	p.gone = gone
	if ended && p.live() {
		p.ended = when
	}
	return true
}

// updateRequests updates the requests that are charged to nodes, and the pods with required
// anti-affinity.
func (c *core) updateRequests(p *pod) {
	if p.charged != "" {
		c.nodeNamed(p.charged).used.add(p.requests, -1)
	}
	p.requests, p.charged = requestsOf(p.object), ""
	if p.node != "" && !p.gone {
		p.charged = p.node
		c.nodeNamed(p.charged).used.add(p.requests, 1)
	}
	delete(c.wakeups.repel, p.uid)
	if !p.gone && len(requiredAntiAffinity(p.object)) > 0 {
		c.wakeups.repel[p.uid] = p
	}
}
