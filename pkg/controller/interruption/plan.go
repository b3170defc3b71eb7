// Package interruption plans the reaction to interrupted nodes: the marks to write on nodes, and
// the pods to move by a deadline.
//
// The signals and their start times are read from the Node, with the same table that the scheduler
// uses (package node). Additional state is stored in one annotation on the Node, so that a new
// controller process continues where an earlier one stopped.
package interruption

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
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
	// Signals is the signal table, and NotReadyAfter is as in node.Reader. The snapshot must
	// have been read with the same values.
	Signals       []providers.Signal
	NotReadyAfter time.Duration
	// Reclaim enables marks on, and moves from, nodes with a reclaim signal.
	Reclaim bool
	// DefaultNotice is the assumed notice if neither the signal nor an annotation contains one.
	DefaultNotice time.Duration
	// Advice enables marks on, and slow moves from, nodes with only an advisory signal, for
	// AdviceLimit. Then the mark is removed, and the node's advisory signals are ignored for
	// AdvicePause.
	Advice                   bool
	AdviceLimit, AdvicePause time.Duration
	// Assist enables the release of pods on draining nodes if needed (migration.Drain). Cordons: a
	// cordoned node counts as draining.
	Assist, Cordons bool
	// Selects reports whether pods of a namespace are moved; nil selects all namespaces. Marks on
	// nodes are independent of it.
	Selects func(namespace string) bool
}

// Draining reports whether another component drains a node whose signals have this class.
func (s *Settings) Draining(n *snapshot.Node, class decision.SignalClass) bool {
	return class == decision.Drain || s.Cordons && class < decision.Drain && n.Spec.Unschedulable
}

// Plan returns the marks to write on nodes, and the moves of pods. Marks are sorted by node name,
// as the snapshot is. Moves with a deadline are first, the earliest first; ties are ordered by
// namespace and name. A node whose marks are correct gets no mark.
//
//   - reclaim: The node gets the project's taint and the deadline. Every pod is moved by then,
//     except DaemonSet, static and terminating pods, and pods that were created after the signal
//     and tolerate the taint: their replacements would return. For a node that is only silent, see
//     staysOnSilentNode.
//   - drain: The node gets no mark, because a user or a tool drains it. See Settings.Assist.
//   - advisory: See Settings.Advice. One pod of a workload is moved at a time. Pods that must not
//     be disturbed unnecessarily (MayDisrupt) are not moved. Nor are pods without a controller and
//     pods of Jobs, which are not recreated elsewhere without loss.
//
// A silent spot node counts as gone only while most nodes are ready (maxSilentPercent) and few
// other nodes are silent (silentLimit). Otherwise the cause is more likely in the control plane. A
// silent node without pods to move gets no mark, because new nodes are silent too.
func Plan(s *snapshot.Snapshot, settings Settings) (marks []Mark, moves []migration.Move) {
	p := &planner{
		Settings: settings,
		at:       s.Now,
		now:      s.Now.UTC().Truncate(time.Second),
		reader:   node.Reader{Signals: settings.Signals, NotReadyAfter: settings.NotReadyAfter, Overdue: s.Overdue},
	}
	p.silentLimit = silentLimit(s.Nodes, &p.reader)
	p.ignoreSilence(s.Nodes)
	if settings.Advice {
		p.motions, p.advised = s.PodsInTransition(), map[workload.OwnerKey]bool{}
	}
	for _, n := range s.Nodes {
		if mark, ok := p.node(n); ok {
			marks = append(marks, mark)
		}
	}
	slices.SortStableFunc(p.moves, func(a, b migration.Move) int {
		return cmp.Or(migration.CompareDeadlines(a.Deadline, b.Deadline), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return marks, p.moves
}

// planner is the state of one run of Plan.
type planner struct {
	Settings
	// at is when the snapshot was taken. now is the same in whole seconds, as all times on API
	// objects.
	at, now time.Time
	reader  node.Reader
	// silentLimit is how many silent nodes may count as gone. ignored are the others.
	silentLimit int
	ignored     map[*snapshot.Node]bool
	motions     map[workload.OwnerKey]snapshot.PodsInTransition
	// advised are the workloads with a pod that is already moved because of an advisory signal.
	advised map[workload.OwnerKey]bool
	moves   []migration.Move
}

// node plans for one node. ok is false if its marks are correct.
func (p *planner) node(n *snapshot.Node) (mark Mark, ok bool) {
	defer recovery.Recover(recovery.Node, klog.KObj(n))
	current := readState(n.Node)
	announced := p.reader.Announcements(withoutOwn(n.Node, current), n.Facts.Capacity.Type, p.at)
	if p.ignored[n] {
		announced = slices.DeleteFunc(announced, isSilence)
	}
	class := decision.NoSignal
	for _, a := range announced {
		class = max(class, a.Class)
	}
	announced = slices.DeleteFunc(announced, func(a node.Announcement) bool { return a.Class != class })
	var want state
	switch {
	case class == decision.Reclaim && p.Reclaim:
		want = p.reclaim(n, current, announced)
	case p.Advice:
		want = p.advice(n, current, announced, class == decision.Advisory)
	}
	if p.Draining(n, class) {
		want.Released = p.assist(n, current)
	}
	return newMark(n, current, want, class, announced)
}

// reclaim plans for a node with a reclaim signal.
func (p *planner) reclaim(n *snapshot.Node, current state, announced []node.Announcement) state {
	want := state{ControllerMark: node.ControllerMark{Class: decision.Reclaim.String()}, Seen: map[string]time.Time{}}
	alive := ready(n.Node) && !slices.ContainsFunc(announced, isSilence)
	first, oldest := p.now, p.now
	for _, a := range announced {
		since := p.start(a, current, alive, &want)
		want.Seen[a.Name] = since
		first = node.Earlier(first, since)
		oldest = node.Earlier(oldest, node.Earlier(since, claimedStart(a)))
	}
	deadline := p.deadline(n.Node, announced, &want, oldest)
	if !takenByOthers(n.Node, current) {
		want.Taint = reasonOf(announced[0])
	}
	want.deadline = deadline
	pods := p.affected(n, first)
	merelySilent := !slices.ContainsFunc(announced, func(a node.Announcement) bool { return !isSilence(a) })
	if merelySilent {
		pods = slices.DeleteFunc(pods, staysOnSilentNode)
	}
	if len(pods) == 0 && current.Class != want.Class && merelySilent {
		return state{}
	}
	for _, pod := range pods {
		p.moves = append(p.moves, migration.Move{Pod: pod, Reason: migration.Interruption, Deadline: deadline, Noticed: first})
	}
	return want
}

// advice plans for a node with an advisory signal (active), or for one that had such a signal
// before.
func (p *planner) advice(n *snapshot.Node, current state, announced []node.Announcement, active bool) state {
	since := p.now
	if current.Advised != nil {
		since = *current.Advised
		switch end := since.Add(p.AdviceLimit); {
		case p.now.Before(end):
		case p.now.Before(end.Add(p.AdvicePause)):
			return state{Advised: &since}
		default:
			since = p.now
		}
	}
	if !active {
		return state{}
	}
	for _, pod := range p.affected(n, since) {
		if w := pod.Workload; w != nil && pod.Live() && !p.advised[w.Key] && p.motions[w.Key] == (snapshot.PodsInTransition{}) &&
			w.Kind != "Pod" && w.Kind != "Job" && workload.MayDisrupt(pod.Pod, p.now) {
			p.advised[w.Key] = true
			p.moves = append(p.moves, migration.Move{Pod: pod, Reason: migration.Advice})
		}
	}
	return state{ControllerMark: node.ControllerMark{Class: decision.Advisory.String(), Taint: reasonOf(announced[0])}, Advised: &since}
}

// affected returns the pods to move from a node whose interruption was noticed at since, in the
// selected namespaces.
func (p *planner) affected(n *snapshot.Node, since time.Time) (pods []*snapshot.Pod) {
	for _, pod := range n.Pods {
		if pod.DeletionTimestamp == nil && workload.PolicyApplies(pod.Pod) && (p.Selects == nil || p.Selects(pod.Namespace)) &&
			!(pod.CreationTimestamp.After(since) && tolerates(pod.Pod)) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func tolerates(pod *v1.Pod) bool {
	return corev1.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations,
		&v1.Taint{Key: spot.InterruptionTaint, Effect: v1.TaintEffectNoSchedule}, false)
}

// maxSilentPercent is the percentage of silent nodes above which the control plane is suspected.
// The node lifecycle controller uses the same value for a zone, and then hardly evicts from it
// (--unhealthy-zone-threshold of kube-controller-manager). Here it applies to the whole cluster,
// because a zone may consist of spot nodes only and be reclaimed.
const maxSilentPercent = 55 // percent

// silentLimit returns how many silent nodes may count as gone at a time: a tenth of all nodes, or
// two. Their pods are removed without regard to PodDisruptionBudgets, so a network failure, or a
// recovery node by node, must not cost every pod there. Kubernetes evicts the pods of the other
// silent nodes after minutes (tolerationSeconds), or another client deletes the Nodes. Nodes that
// have never reported are not counted. A node is silent long before it counts as gone, so nodes
// that become silent together are counted together.
func silentLimit(nodes []*snapshot.Node, reader *node.Reader) int {
	reported, silent := 0, 0
	for _, n := range nodes {
		if slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady }) {
			reported++
			if _, unheard := reader.KubeletSilent(n.Node); unheard {
				silent++
			}
		}
	}
	if silent == reported || silent > 2 && 100*silent >= maxSilentPercent*reported {
		return 0
	}
	return max(2, reported/10)
}

// ignoreSilence selects the silent nodes that do not count as gone. Nodes that already count as
// gone continue to do so; then the longest silence decides.
func (p *planner) ignoreSilence(nodes []*snapshot.Node) {
	type silent struct {
		node  *snapshot.Node
		known bool
		since time.Time
	}
	var all []silent
	for _, n := range nodes {
		if since, known, ok := p.silence(n); ok {
			all = append(all, silent{n, known, since})
		}
	}
	slices.SortStableFunc(all, func(a, b silent) int {
		if a.known != b.known {
			if a.known {
				return -1
			}
			return 1
		}
		return a.since.Compare(b.since)
	})
	p.ignored = map[*snapshot.Node]bool{}
	for i, s := range all {
		p.ignored[s.node] = i >= p.silentLimit
	}
}

// silence returns since when a node has been silent, and whether it is already marked for that. ok
// is false if it is not silent.
func (p *planner) silence(n *snapshot.Node) (since time.Time, known, ok bool) {
	defer recovery.Recover(recovery.Node, klog.KObj(n))
	for _, a := range p.reader.Announcements(n.Node, n.Facts.Capacity.Type, p.at) {
		if a.Name == node.Silence {
			_, known = readState(n.Node).Seen[node.Silence]
			return a.Since, known, true
		}
	}
	return time.Time{}, false, false
}

func ready(node *v1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}
