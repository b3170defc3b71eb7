// Package interruption says what has to be done about nodes that go: which are marked, with what, and which pods have to leave them by when.
//
// What has been announced, and since when, is read from the Node by the table that the scheduler uses too (package kube). What a Node does
// not say by itself stands in one annotation of ours, so that a controller that is started goes on where an earlier one was.
package interruption

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// Settings are what a plan depends on besides the cluster. The zero Settings act on nothing, and take back what an earlier controller marked.
type Settings struct {
	// Signals is the table; NotReadyAfter is as in kube.NodeReader. Both are what the snapshot was read with.
	Signals       []kube.Signal
	NotReadyAfter time.Duration
	// Reclaim: nodes with a reclaim signal are marked and emptied.
	Reclaim bool
	// DefaultNotice is how long a node is taken to last where neither its signal nor an annotation says.
	DefaultNotice time.Duration
	// Advice: nodes with nothing but an advisory signal are marked and emptied too, slowly, for AdviceLimit: then the mark is taken off, and
	// the node's advice is not heard for AdvicePause.
	Advice                   bool
	AdviceLimit, AdvicePause time.Duration
	// Assist: pods are released from nodes that somebody else drains, where that is needed (migration.Drain). Cordons: a cordoned node counts as
	// one that is drained.
	Assist, Cordons bool
	// Selects reports whether the pods of a namespace are moved; nil: those of all are. Nodes are marked for the sake of all.
	Selects func(namespace string) bool
}

// Plan returns what is to be written on nodes, by their names, and the pods that have to leave theirs: those with a deadline first, the
// earliest before the later, then by namespace and name. A node that bears what it should gets no mark.
//
//   - reclaim: the project's taint and the deadline. Every pod leaves by then, but for those of DaemonSets, static ones, those that already
//     leave, and those that came although the taint stood there, which they tolerate: they would come again. If the node is merely silent, see
//     staysOnSilentNode.
//   - drain: nothing is marked, because somebody else drains the node. See Settings.Assist.
//   - advisory: see Settings.Advice. One pod of a workload at a time, none that must not be disturbed for less than need (MayDisrupt), or
//     that nothing makes anew elsewhere without loss (Jobs, pods without a controller).
//
// A spot node that is silent only counts as gone while most nodes are ready (mostSilent), and while few others do (believed): otherwise it
// is rather the control plane that hears nothing. Without pods to move, silence is not marked either: it is also how nodes begin.
func Plan(s *cluster.Snapshot, settings Settings) (marks []Mark, moves []migration.Move) {
	p := &planner{
		Settings: settings,
		at:       s.Now,
		now:      s.Now.UTC().Truncate(time.Second),
		reader:   kube.NodeReader{Signals: settings.Signals, NotReadyAfter: settings.NotReadyAfter, Overdue: s.Overdue},
	}
	p.believes = believed(s.Nodes, &p.reader)
	p.doubt(s.Nodes)
	if settings.Advice {
		p.motions, p.advised = s.Motions(), map[kube.OwnerKey]bool{}
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

// planner is one run of Plan.
type planner struct {
	Settings
	// at is when the snapshot was taken. now is the same in whole seconds, as all times on objects.
	at, now time.Time
	reader  kube.NodeReader
	// believes is how many silent nodes may count as gone; doubted are those that do not.
	believes int
	doubted  map[*cluster.Node]bool
	motions  map[kube.OwnerKey]cluster.Motion
	// advised are the workloads of which a pod already moves on advice.
	advised map[kube.OwnerKey]bool
	moves   []migration.Move
}

// node plans for one node. ok is false if it bears what it should.
func (p *planner) node(n *cluster.Node) (mark Mark, ok bool) {
	defer recovery.Recover(recovery.Node, klog.KObj(n))
	had := readState(n.Node)
	announced := p.reader.Announced(withoutOwn(n.Node, had), n.Facts.Capacity.Type, p.at)
	if p.doubted[n] {
		announced = slices.DeleteFunc(announced, isSilence)
	}
	class := decision.NoSignal
	for _, a := range announced {
		class = max(class, a.Class)
	}
	announced = slices.DeleteFunc(announced, func(a kube.Announcement) bool { return a.Class != class })
	var want state
	switch {
	case class == decision.Reclaim && p.Reclaim:
		want = p.reclaim(n, had, announced)
	case p.Advice:
		want = p.advice(n, had, announced, class == decision.Advisory)
	}
	if class == decision.Drain || p.Cordons && class < decision.Drain && n.Spec.Unschedulable {
		want.Released = p.assist(n, had)
	}
	return newMark(n, had, want, class, announced)
}

// reclaim plans for a node that goes.
func (p *planner) reclaim(n *cluster.Node, had state, announced []kube.Announcement) state {
	want := state{OwnMark: kube.OwnMark{Class: decision.Reclaim.String()}, Seen: map[string]time.Time{}}
	heard := ready(n.Node) && !slices.ContainsFunc(announced, isSilence)
	first, oldest := p.now, p.now
	for _, a := range announced {
		since := p.start(a, had, heard, &want)
		want.Seen[a.Name] = since
		first = kube.Earlier(first, since)
		oldest = kube.Earlier(oldest, kube.Earlier(since, claimedStart(a)))
	}
	deadline := p.deadline(n.Node, announced, &want, oldest)
	if !takenByOthers(n.Node, had) {
		want.Taint = reasonOf(announced[0])
	}
	want.deadline = deadline
	pods := p.leave(n, first)
	merelySilent := !slices.ContainsFunc(announced, func(a kube.Announcement) bool { return !isSilence(a) })
	if merelySilent {
		pods = slices.DeleteFunc(pods, staysOnSilentNode)
	}
	if len(pods) == 0 && had.Class != want.Class && merelySilent {
		return state{}
	}
	for _, pod := range pods {
		p.moves = append(p.moves, migration.Move{Pod: pod, Reason: migration.Interruption, Deadline: deadline, Noticed: first})
	}
	return want
}

// advice plans for a node that may go, if announced, or for one that was taken to.
func (p *planner) advice(n *cluster.Node, had state, announced []kube.Announcement, still bool) state {
	since := p.now
	if had.Advised != nil {
		since = *had.Advised
		switch end := since.Add(p.AdviceLimit); {
		case p.now.Before(end):
		case p.now.Before(end.Add(p.AdvicePause)):
			return state{Advised: &since}
		default:
			since = p.now
		}
	}
	if !still {
		return state{}
	}
	for _, pod := range p.leave(n, since) {
		if w := pod.Workload; w != nil && pod.Live() && !p.advised[w.Key] && p.motions[w.Key] == (cluster.Motion{}) &&
			w.Kind != "Pod" && w.Kind != "Job" && kube.MayDisrupt(pod.Pod, p.now) {
			p.advised[w.Key] = true
			p.moves = append(p.moves, migration.Move{Pod: pod, Reason: migration.Advice})
		}
	}
	return state{OwnMark: kube.OwnMark{Class: decision.Advisory.String(), Taint: reasonOf(announced[0])}, Advised: &since}
}

// leave returns the pods that have to leave a node that has been known since then to go, of the namespaces that are selected.
func (p *planner) leave(n *cluster.Node, since time.Time) (pods []*cluster.Pod) {
	for _, pod := range n.Pods {
		if pod.DeletionTimestamp == nil && kube.HasOpinion(pod.Pod) && (p.Selects == nil || p.Selects(pod.Namespace)) &&
			!(pod.CreationTimestamp.After(since) && tolerates(pod.Pod)) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func tolerates(pod *v1.Pod) bool {
	return corev1.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations,
		&v1.Taint{Key: kube.InterruptionTaint, Effect: v1.TaintEffectNoSchedule}, false)
}

// mostSilent is the percentage of silent nodes from which on the node lifecycle controller takes a zone for disrupted and hardly
// evicts from it any more (--unhealthy-zone-threshold of kube-controller-manager); here it is of the whole cluster, because a zone may be
// all spot, and be reclaimed.
const mostSilent = 55 // percent

// believed returns how many silent nodes may count as gone at a time: a tenth of all, or two. No pod of theirs is asked for, and no budget:
// a part of the network that is away, or comes back node by node, must not cost every pod there. The others are left to Kubernetes, which
// gives them up after minutes (tolerationSeconds), or to whoever deletes their Nodes. Nodes that have not reported yet do not count. A node is
// silent long before it counts as gone, so that many that fall silent together are counted together.
func believed(nodes []*cluster.Node, reader *kube.NodeReader) int {
	reported, silent := 0, 0
	for _, n := range nodes {
		if slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady }) {
			reported++
			if _, unheard := reader.Unheard(n.Node); unheard {
				silent++
			}
		}
	}
	if silent == reported || silent > 2 && 100*silent >= mostSilent*reported {
		return 0
	}
	return max(2, reported/10)
}

// doubt decides which silent nodes do not count as gone: those that count already do first, then those that have been silent for longest.
func (p *planner) doubt(nodes []*cluster.Node) {
	type silent struct {
		node  *cluster.Node
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
	p.doubted = map[*cluster.Node]bool{}
	for i, s := range all {
		p.doubted[s.node] = i >= p.believes
	}
}

// silence returns since when a node has been silent, and whether it is marked for that; ok is false if it is not silent.
func (p *planner) silence(n *cluster.Node) (since time.Time, known, ok bool) {
	defer recovery.Recover(recovery.Node, klog.KObj(n))
	for _, a := range p.reader.Announced(n.Node, n.Facts.Capacity.Type, p.at) {
		if a.Name == kube.Silence {
			_, known = readState(n.Node).Seen[kube.Silence]
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
