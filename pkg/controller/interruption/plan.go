// Package interruption plans the reaction to interrupted nodes: the marks to write on nodes, and
// the pods to move by a deadline.
//
// The signals and their start times are read from the Node, with the same table that the scheduler
// uses (package node). Additional state is stored in one annotation on the Node, so that a new
// controller process continues where an earlier one stopped.
//
// Three files contain the way of a node through a plan. observe (node.go) reads the node once.
// reclaim, advisory or drain (plan.go) returns the desired marks and the moves. newMark (mark.go)
// compares the desired marks with the current marks.
package interruption

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Settings are the inputs of a plan besides the cluster. The zero Settings act on no signal, and
// remove the marks of an earlier controller.
type Settings struct {
	// Interruption and Drain are sections of the configuration. Selects replaces the selector of
	// namespaces.
	Interruption controller.Interruption
	Drain        controller.Drain
	// Signals is the signal table. The snapshot must have been read with the same table and the
	// same NotReadyAfter.
	Signals []providers.Signal
	// Owner returns the object that owns a node (providers.NodeOwner); nil if it is unknown.
	Owner func(*v1.Node) metav1.Object
	// Selects reports whether pods of a namespace are moved; nil selects all namespaces. Marks on
	// nodes are independent of it.
	Selects func(namespace string) bool
	// ForcedBreaker is what a user has set the breaker to: true is open, for every node with a
	// reclaim signal whose kubelet is not silent, and false is closed. nil: the nodes decide.
	ForcedBreaker *bool
	// Paused is as in migration.Settings. No node gets a taint because of a paused cause.
	Paused safety.Paused
	// Memory is what earlier rounds know; nil: the plan is the first of its process.
	Memory *Memory
}

// Draining reports whether another component drains a node whose signals have this class.
func (s *Settings) Draining(n *snapshot.Node, class decision.SignalClass) bool {
	return class == decision.Drain || s.Drain.Cordons && class < decision.Drain && n.Spec.Unschedulable
}

// Plan returns the marks to write on nodes, and the moves of pods. Marks are sorted by node name,
// as the snapshot is. Moves with a deadline are first, the earliest first; ties are ordered by
// namespace and name. A node whose marks are correct gets no mark.
//
//   - reclaim: The node gets the project's taint and the deadline. Every pod is moved by then,
//     except DaemonSet, static and terminating pods. For a node that is only unreachable, see
//     staysOnUnreachableNode, and for a deleted one moveOffDeletedNodes. While the breaker is open,
//     moves off unconfirmed nodes are limited (migration.Move.Unconfirmed).
//   - drain: A user or a tool drains the node. See Settings.Drain. The node gets the project's
//     taint only if other schedulers would not see the drain, and some pods keep their scheduler.
//     So does a node with a reclaim signal if Interruption is disabled.
//   - advisory: See Settings.Interruption. One pod of a workload is moved at a time. Pods that must
//     not be disturbed unnecessarily (MayDisrupt) are not moved. Nor are pods without a controller
//     and pods of Jobs, which are not recreated elsewhere without loss.
//
// An unreachable spot node counts as gone only while most nodes are ready (maxUnreachablePercent)
// and few other nodes are unreachable (unreachableLimit). Otherwise the cause is more likely in the
// control plane. An unreachable node without pods to move gets no mark, because new nodes are
// unreachable too.
func Plan(s *snapshot.Snapshot, settings Settings) (marks []Mark, moves []migration.Move, breaker Breaker) {
	p := &planner{
		Settings: settings,
		at:       s.Now,
		now:      s.Now.UTC().Truncate(time.Second),
		reader: node.Reader{
			Signals: settings.Signals, NotReadyAfter: settings.Interruption.NotReadyAfter.Duration,
			Overdue: s.Overdue, Unconfirmed: s.Unconfirmed,
		},
		renewed: s.Renewed,
	}
	if p.Memory == nil {
		p.Memory = NewMemory(nil)
	}
	_, p.otherSchedulers = s.SchedulersOfPods()
	if settings.Interruption.Advisory.Enabled {
		p.inTransition, p.advised = s.PodsInTransition(), map[workload.OwnerKey]migration.Move{}
	}
	var nodes []observedNode
	for _, n := range s.Nodes {
		if observed, ok := p.observe(n); ok {
			nodes = append(nodes, observed)
		}
	}
	p.limitUnreachable(nodes)
	for i := range nodes {
		nodes[i].notice = p.observeNotice(&nodes[i])
	}
	p.judge(nodes)
	breaker = p.observeBreaker(nodes)
	for i := range nodes {
		if mark, ok := p.planNode(&nodes[i]); ok {
			marks = append(marks, mark)
		}
	}
	p.moveOffDeletedNodes(s.Pods)
	p.moves = slices.AppendSeq(p.moves, maps.Values(p.advised))
	slices.SortStableFunc(p.moves, migration.ByDeadline)
	return marks, p.moves, breaker
}

type planner struct {
	Settings
	// at is when the snapshot was taken. now is the same in whole seconds, as all times on API
	// objects.
	at, now time.Time
	reader  node.Reader
	renewed func(node string, since time.Time) bool // as in snapshot.Snapshot
	// otherSchedulers reports whether other schedulers place pods that the policy applies to.
	otherSchedulers bool
	// kubelets counts the unreachable nodes that observe has read, and spotNodes the spot nodes.
	kubelets  kubelets
	spotNodes int
	// inTransition contains the pods in transition of each workload. advised contains the one move
	// of each workload because of advisory signals: of the pod with the lowest deletion cost, then
	// of the first by node and name. Both are nil without Advisory.
	inTransition map[workload.OwnerKey]snapshot.PodsInTransition
	advised      map[workload.OwnerKey]migration.Move
	moves        []migration.Move
}

// desired contains the desired marks of a node. The zero value removes all marks.
type desired struct {
	// state is the desired content of the state annotation. newMark sets OwnDeadline.
	state
	// notice is zero if the node is not interrupted.
	notice notice
	paused bool
}

// planNode plans for one node. ok is false if its marks are correct.
func (p *planner) planNode(n *observedNode) (mark Mark, ok bool) {
	defer recovery.Recover(recovery.Node, klog.KObj(n))
	var want desired
	var moves []migration.Move
	class := n.keepStrongestSignals()
	switch {
	case class == decision.Reclaim && p.Interruption.Enabled:
		want, moves = p.reclaim(n)
	case p.Interruption.Advisory.Enabled:
		want = p.advisory(n, class == decision.Advisory)
	}
	if class >= decision.Drain && want.Taint == "" && p.otherSchedulers && !n.blocksNewPods() {
		want.Class, want.Taint = decision.Drain.String(), taintValue(n.signals[0])
	}
	if p.Drain.Assist && p.Draining(n.Node, class) {
		released, drained := p.drain(n)
		want.Released, moves = released, append(moves, drained...)
	}
	cause := n.cause(class)
	if want.paused = p.Paused.Stops(cause); want.paused && !n.tainted {
		want.Taint = ""
	}
	if mark, ok = newMark(n, class, want); want.Taint != "" && !n.tainted {
		mark.Cause = cause
	}
	p.moves = append(p.moves, moves...)
	return mark, ok
}

func (p *planner) reclaim(n *observedNode) (want desired, moves []migration.Move) {
	want.Class, want.Burst, want.Common = decision.Reclaim.String(), n.inBurst, n.common
	want.notice, want.Starts, want.FutureStarts = n.notice, n.notice.starts, n.notice.futureStarts
	if !n.blockedByOthers() {
		want.Taint = taintValue(n.signals[0])
	}
	move := migration.Move{
		Reason: migration.Interruption, Deadline: n.notice.deadline, Noticed: n.notice.first, Free: p.freeSince(n, n.notice.first),
		Unreachable: slices.ContainsFunc(n.signals, isUnreachable), Unconfirmed: n.unconfirmed,
	}
	switch ended := !p.now.Before(move.Deadline); {
	case n.unconfirmed && p.ForcedBreaker == nil && !(ended && n.alive):
		move.FairEnd = fairEnd(n.notice)
	case !n.unconfirmed && p.outlived(n, move.Free):
		move.Deadline = time.Time{}
	}
	onlyUnreachable := n.onlyUnreachable()
	quiet, silent := p.reader.KubeletUnreachable(n.Node.Node) // a later silence has another cause than the reclaim
	silent = silent && !p.now.Before(n.notice.deadline) && quiet.Before(n.notice.deadline.Add(outlivedAfter))
	for _, pod := range n.Pods {
		if p.mayMove(pod) && !(onlyUnreachable && staysOnUnreachableNode(pod)) {
			move := move
			if move.Pod = pod; silent && mayRunTwice(pod) && !staysOnUnreachableNode(pod) {
				move.Unreachable, move.Unconfirmed = true, false
			}
			moves = append(moves, move)
		}
	}
	if onlyUnreachable && len(moves) == 0 && n.state.Class != want.Class {
		return desired{}, nil
	}
	return want, moves
}

// outlived reports whether the deadline of a node means nothing any more: the node was ready after
// it although the controller, which may act since free, did not remove its pods before, or was
// ready outlivedAfter later.
func (p *planner) outlived(n *observedNode, free time.Time) bool {
	m, deadline := &n.memory.reclaim, n.notice.deadline
	m.outlived = !n.silent && !n.ends && (m.outlived || n.alive && (!free.Before(deadline) || !p.now.Before(deadline.Add(outlivedAfter))))
	return m.outlived
}

// observeNotice reads when a node with reclaim signals is expected to vanish. It returns the zero
// notice for other nodes.
func (p *planner) observeNotice(n *observedNode) (o notice) {
	oldest := p.now
	for _, a := range n.signals {
		if a.Class != decision.Reclaim {
			continue
		}
		if o.starts == nil {
			o.starts, o.futureStarts, o.first = map[string]time.Time{}, map[string]time.Time{}, p.now
		}
		start, futureStart := p.start(n, a)
		o.starts[a.Name] = start
		if !futureStart.IsZero() {
			o.futureStarts[a.Name] = futureStart
		}
		o.first = node.Earlier(o.first, start)
		oldest = node.Earlier(oldest, node.Earlier(start, startOnNode(a)))
		if start.After(o.newest) && !isUnreachable(a) {
			o.newest = start
		}
	}
	if o.starts == nil {
		n.memory.reclaim = reclaimMemory{calm: true}
		return o
	}
	o.deadline, o.stale = p.deadline(n, o.starts, oldest)
	return o
}

// start returns when a signal began; its notice counts from then. It is the time on the Node, so
// that time that has passed is not granted again, but not before the process saw the node without
// the signal (since). It is not before the recorded start, unless the signal was cleared and
// repeated since.
//
// The clock that wrote the time may be wrong, and then the controller would delete every pod of
// every such node at once. Therefore a start in the future counts as now, and futureStart is the
// time on the Node. A start also counts as now if its notice is over although the node's kubelet is
// alive: such a time does not show how much time remains.
func (p *planner) start(n *observedNode, a node.Announcement) (start, futureStart time.Time) {
	onNode, recorded, futureStart := startOnNode(a), n.state.Starts[a.Name], n.state.FutureStarts[a.Name]
	if !recorded.IsZero() && (!onNode.After(recorded) || onNode.Equal(futureStart)) {
		return recorded, futureStart
	}
	if !isUnreachable(a) && !onNode.IsZero() {
		onNode = n.since(a.Name, onNode)
	}
	switch {
	case onNode.After(p.now):
		return p.now, onNode
	case onNode.IsZero(), n.alive && !onNode.Add(p.notice(a)).After(p.now):
		return p.now, time.Time{}
	}
	return onNode, time.Time{}
}

// startOnNode returns when a signal began according to the Node, in whole seconds; zero if the Node
// does not contain a time.
func startOnNode(a node.Announcement) time.Time {
	return a.Since.UTC().Truncate(time.Second)
}

// notice returns how long a node lasts after the start of a signal.
func (p *planner) notice(a node.Announcement) time.Duration {
	if a.Timed {
		return a.Notice
	}
	return p.Interruption.DefaultNotice.Duration
}

// deadline returns when a node is expected to vanish. It is the time in the deadline annotation,
// unless a signal with a known notice ends earlier. Without a valid annotation, signals without a
// known notice count with the default notice. The annotation is invalid if it cannot be parsed. It
// is stale if it is before oldest, the start of the first signal: then it belongs to an earlier
// interruption. A time at which the node lived on means nothing when its kubelet shuts down later.
// starts contains the start of each signal.
func (p *planner) deadline(n *observedNode, starts map[string]time.Time, oldest time.Time) (deadline time.Time, stale bool) {
	shutdown := starts[kubeletShutdown] // zero without it
	stale = n.deadline.valid && (n.deadline.time.Before(oldest) || !n.deadline.time.After(shutdown))
	annotated := n.deadline.valid && !stale
	if annotated {
		deadline = n.deadline.time
	}
	for _, a := range n.signals {
		end := starts[a.Name].Add(p.notice(a)).Truncate(time.Second)
		if a.Class == decision.Reclaim && (a.Timed || !annotated) && end.After(shutdown) {
			deadline = node.Earlier(deadline, end)
		}
	}
	return deadline, stale
}

// advisory plans for a node with an advisory signal (active), or for one that had such a signal
// before. It adds its moves to p.advised.
func (p *planner) advisory(n *observedNode, active bool) (want desired) {
	since := p.now
	if n.state.AdvisorySince != nil {
		since = *n.state.AdvisorySince
		switch end := since.Add(p.Interruption.Advisory.TimeLimit.Duration); {
		case p.now.Before(end):
		case p.now.Before(end.Add(p.Interruption.Advisory.Pause.Duration)):
			want.AdvisorySince = &since
			return want
		default:
			since = p.now
		}
	}
	if !active {
		return desired{}
	}
	for _, pod := range n.Pods {
		if w := pod.Workload; w != nil && p.mayMove(pod) && pod.Live() &&
			p.inTransition[w.Key] == (snapshot.PodsInTransition{}) &&
			w.Kind != "Pod" && w.Kind != "Job" && workload.MayDisrupt(pod.Pod, p.now) {
			if other, ok := p.advised[w.Key]; !ok || pod.DeletionCost() < other.Pod.DeletionCost() {
				p.advised[w.Key] = migration.Move{Pod: pod, Reason: migration.Advisory, Noticed: since}
			}
		}
	}
	want.Class, want.Taint, want.AdvisorySince = decision.Advisory.String(), taintValue(n.signals[0]), &since
	return want
}

// drain plans for a node that a user or a tool drains. released are the pods that are or were
// released for this drain. A pod that the controller has restored is not released a second time for
// the same drain. Pods that the draining client spares are moved before it terminates the node; if
// that time is unknown, they are not moved.
func (p *planner) drain(n *observedNode) (released []types.UID, moves []migration.Move) {
	termination := p.termination(n)
	for _, pod := range n.Pods {
		if !p.mayMove(pod) {
			continue
		}
		isReleased := pod.Release != nil && pod.Release.Reason == string(migration.Drain)
		wasReleased := slices.Contains(n.state.Released, pod.UID)
		if isReleased || wasReleased && !p.Paused.Stops(safety.Drain) { // restored by a pause: released again after it
			released = append(released, pod.UID)
		}
		move := migration.Move{Pod: pod, Reason: migration.Drain, OnlySurge: true}
		spared := p.spared(n, pod)
		if spared && !termination.IsZero() {
			move.Deadline, move.OnlySurge, spared = termination, false, false
		}
		if isReleased || !wasReleased && !spared {
			moves = append(moves, move)
		}
	}
	slices.Sort(released)
	return released, moves
}

// spared reports whether no client that drains the node evicts the pod. A client that drains a
// cordoned node evicts every pod. For a node that is only being deleted the client is unknown, and
// may be one that spares protected pods.
func (p *planner) spared(n *observedNode, pod *snapshot.Pod) bool {
	protected := workload.DoNotDisrupt(pod.Pod, p.at)
	spared := protected
	for _, a := range n.signals {
		if s := a.Signal; s != nil {
			if spared = s.SparesPods && (protected || s.Kind == providers.TaintSignal && tolerates(pod.Pod, s.Key)); !spared {
				return false
			}
		}
	}
	return spared && !(p.Drain.Cordons && n.Spec.Unschedulable)
}

// termination returns when a client that drains the node terminates it; zero if that is unknown.
func (p *planner) termination(n *observedNode) (at time.Time) {
	for _, a := range n.signals {
		if a.Signal == nil || a.Signal.Termination == "" {
			continue
		}
		text, ok := n.Annotations[a.Signal.Termination]
		if owner := p.owner(n); !ok && owner != nil {
			text = owner.GetAnnotations()[a.Signal.Termination]
		}
		at, _ = time.Parse(time.RFC3339, text) // zero if it cannot be parsed
	}
	return at
}

// owner returns the object that owns the node; nil if it is unknown.
func (p *planner) owner(n *observedNode) metav1.Object {
	if p.Owner == nil {
		return nil
	}
	return p.Owner(n.Node.Node)
}

func (p *planner) mayMove(pod *snapshot.Pod) bool {
	return pod.DeletionTimestamp == nil && workload.PolicyApplies(pod.Pod) && (p.Selects == nil || p.Selects(pod.Namespace))
}

func tolerates(pod *v1.Pod, key string) bool {
	return corev1.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations,
		&v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule}, false)
}

// taintValue returns the value of the taint for a signal: the last part of the signal's key.
func taintValue(a node.Announcement) string {
	switch a.Name {
	case node.UnreachableKubelet:
		return node.UnreachableReason
	case kubeletShutdown:
		return "node-shutdown"
	}
	key := a.Name[strings.Index(a.Name, " ")+1:]
	key, _, _ = strings.Cut(key, "=")
	return key[strings.LastIndex(key, "/")+1:]
}
