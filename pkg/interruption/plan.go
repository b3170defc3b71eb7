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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Selects reports whether the pods of a namespace are moved; nil: those of all are. Nodes are marked for the sake of all.
	Selects func(namespace string) bool
}

// Plan returns what is to be written on nodes, by their names, and the pods that have to leave theirs: those with a deadline first, the
// earliest before the later, then by namespace and name. A node that bears what it should gets no mark.
//
//   - reclaim: the project's taint and the deadline. Every pod leaves by then, but for those of DaemonSets, static ones, those that already
//     leave, and those that came although the taint stood there, which they tolerate: they would come again. If the node is merely silent, see
//     staysOnSilentNode.
//   - drain: nothing, somebody else empties the node.
//   - advisory: see Settings.Advice. One pod of a workload at a time, none that must not be disturbed for less than need (MayDisrupt), or
//     that nothing makes anew elsewhere without loss (Jobs, pods without a controller).
//
// A spot node that is silent only counts as gone while most nodes are ready (mostSilent), and while few others do (believed): otherwise it
// is rather the control plane that hears nothing. Without pods to move, silence is not marked either: it is also how nodes begin.
func Plan(s *cluster.Snapshot, settings Settings) (marks []Mark, moves []migration.Move) {
	p := &planner{
		Settings: settings,
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
	// now is in whole seconds, as all times on objects.
	now    time.Time
	reader kube.NodeReader
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
	announced := p.reader.Announced(withoutOwn(n.Node, had), n.Facts.Capacity.Type, p.now)
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
	return newMark(n, had, want, class, announced)
}

// reclaim plans for a node that goes.
func (p *planner) reclaim(n *cluster.Node, had state, announced []kube.Announcement) state {
	want := state{Class: decision.Reclaim.String(), Seen: map[string]time.Time{}}
	heard := ready(n.Node) && !slices.ContainsFunc(announced, isSilence)
	first, oldest := p.now, p.now
	for _, a := range announced {
		since := p.start(a, had, heard, &want)
		want.Seen[a.Name] = since
		first, oldest = earlier(first, since), earlier(oldest, since)
		if claimed := claimedStart(a); !claimed.IsZero() {
			oldest = earlier(oldest, claimed)
		}
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

func isSilence(a kube.Announcement) bool { return a.Name == kube.Silence }

// claimedStart returns when the object that announces it says that it began, in whole seconds; zero if it does not say.
func claimedStart(a kube.Announcement) time.Time {
	if a.Since.IsZero() {
		return a.Since
	}
	return a.Since.UTC().Truncate(time.Second)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// start returns when a signal began, from which its notice counts: what the Node says, so that time that has passed is not promised again; but
// not before it was recorded, unless it went and came again since. heard: the node's kubelet is alive.
//
// The clock that wrote the time may be wrong, and then every pod of every such node would be deleted at once. A time to come counts as now.
// So does a start whose notice is over on a node that is alive all the same: that time says nothing of what is left.
func (p *planner) start(a kube.Announcement, had state, heard bool, want *state) time.Time {
	claimed, recorded := claimedStart(a), had.Seen[a.Name]
	if ahead := had.Ahead[a.Name]; !recorded.IsZero() && (!claimed.After(recorded) || claimed.Equal(ahead)) {
		if !ahead.IsZero() {
			want.ahead(a.Name, ahead)
		}
		return recorded
	}
	switch {
	case claimed.IsZero():
		return p.now
	case claimed.After(p.now):
		want.ahead(a.Name, claimed)
		return p.now
	case heard && !claimed.Add(p.notice(a)).After(p.now):
		return p.now
	}
	return claimed
}

// notice returns how long a node lasts from the start of a signal on.
func (p *planner) notice(a kube.Announcement) time.Duration {
	if a.Timed {
		return a.Notice
	}
	return p.DefaultNotice
}

// deadline returns when a node goes: what its annotation says, unless a signal with a notice of its own says that it goes earlier. Where there is
// no annotation that counts, signals that do not say how much time they leave count too, with the default. An annotation does not count if it
// does not parse, or lies before oldest, the start of the first signal: then it is left over from an earlier one.
func (p *planner) deadline(node *v1.Node, announced []kube.Announcement, want *state, oldest time.Time) time.Time {
	deadline, _, written := readDeadline(node)
	if written && deadline.Before(oldest) {
		deadline, written, want.leftOver = time.Time{}, false, true
	}
	for _, a := range announced {
		if !a.Timed && written {
			continue
		}
		if at := want.Seen[a.Name].Add(p.notice(a)).Truncate(time.Second); deadline.IsZero() || at.Before(deadline) {
			deadline = at
		}
	}
	return deadline
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
	return state{Class: decision.Advisory.String(), Taint: reasonOf(announced[0]), Advised: &since}
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

// staysOnSilentNode reports whether a pod is not moved off a node of which nothing is known but that its kubelet is silent. The node may be
// back soon. A pod without a controller would be lost for good, and one that tolerates such a node for longer than a pod does by default was
// written to stay.
func staysOnSilentNode(pod *cluster.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil ||
		endures(pod.Pod, v1.TaintNodeUnreachable) || endures(pod.Pod, v1.TaintNodeNotReady)
}

// admittedTolerance is how long the admission plugin DefaultTolerationSeconds has every pod tolerate a node that is not ready or unreachable.
const admittedTolerance = 300 // seconds

// endures reports whether a pod tolerates a taint with the effect NoExecute for ever, or for longer than admission adds to every pod. Of
// several tolerations the shortest counts, as in Kubernetes.
func endures(pod *v1.Pod, key string) bool {
	taint := &v1.Taint{Key: key, Effect: v1.TaintEffectNoExecute}
	tolerates := false
	for i := range pod.Spec.Tolerations {
		if t := &pod.Spec.Tolerations[i]; t.ToleratesTaint(klog.Background(), taint, false) {
			if t.TolerationSeconds != nil && *t.TolerationSeconds <= admittedTolerance {
				return false
			}
			tolerates = true
		}
	}
	return tolerates
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
	for _, a := range p.reader.Announced(n.Node, n.Facts.Capacity.Type, p.now) {
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
