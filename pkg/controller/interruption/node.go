package interruption

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// observedNode contains everything that the plan for a node depends on. Every node is read once, by
// planner.observe.
type observedNode struct {
	*snapshot.Node
	// signals are the announcements on the node, in the order of node.Reader. The controller's own
	// taint is not a signal. keepStrongestSignals removes the signals of weaker classes.
	signals []node.Announcement
	// alive reports whether the kubelet is ready and not silent, and silent whether its Lease is
	// overdue or it is unreachable.
	alive, silent bool
	memory        *nodeMemory
	// state is the content of the state annotation. It is zero if the annotation is missing or
	// cannot be parsed. stateText is the text of the annotation, and hasState whether it exists.
	state     state
	stateText string
	hasState  bool
	// tainted reports whether the controller's taint is on the node. otherTaints are the taints
	// that the controller did not write.
	tainted     bool
	otherTaints []v1.Taint
	deadline    deadlineAnnotation
	notice      notice
	// sources are the tools that announce the end of the node, and ends reports whether a fact
	// about the node itself shows its end.
	sources []string
	ends    bool
	// inBurst reports whether the breaker has opened for the node, and unconfirmed whether it
	// concerns the node now. common are the sources that confirm nothing: too many nodes have them,
	// or a signal of the node is doubtful. observeBreaker sets all three.
	inBurst, unconfirmed bool
	common               []string
}

// notice is when a node with reclaim signals is expected to vanish; zero without such signals.
type notice struct {
	// starts contains the start of each reclaim signal, by its name. futureStarts is as in state.
	starts, futureStarts map[string]time.Time
	// first is the start of the first signal, and newest that of the last one.
	first, newest time.Time
	// deadline is when the node is expected to vanish. stale reports whether the deadline
	// annotation is before every signal, and belongs to an earlier interruption, or is before the
	// kubelet's shutdown: then it is replaced.
	deadline time.Time
	stale    bool
}

// state is the content of spot.InterruptionStateAnnotation. Later versions read it, so the names of
// its JSON fields must not change.
type state struct {
	node.ControllerMark
	// OwnDeadline is the value of the deadline annotation if the controller wrote it.
	OwnDeadline string `json:"deadline,omitempty"`
	// Starts contains the start of each reclaim signal, by the name of the signal. The notice
	// starts then.
	Starts map[string]time.Time `json:"starts,omitempty"`
	// FutureStarts contains the start of a signal according to the Node, by the name of the signal,
	// if it was in the future when the controller first read the signal. Without it, the signal
	// would seem to repeat at that time.
	FutureStarts map[string]time.Time `json:"futureStarts,omitempty"`
	// Burst: the breaker has opened for the node. Common are the sources that confirm nothing.
	Burst  bool     `json:"burst,omitempty"`
	Common []string `json:"common,omitempty"`
	// Released contains the pods that were released for a drain of the node. During the same drain
	// no pod is released twice.
	Released []types.UID `json:"released,omitempty"`
	// AdvisorySince is the start of the last advisory signal on which the controller acted.
	AdvisorySince *time.Time `json:"advisorySince,omitempty"`
}

// text returns the value of the state annotation; "" if the node needs no annotation.
func (s *state) text() string {
	text, err := json.Marshal(s)
	if err != nil || string(text) == "{}" {
		return "" // times of any year that a Node can contain can be encoded
	}
	return string(text)
}

// deadlineAnnotation is spot.InterruptionDeadlineAnnotation of a node.
type deadlineAnnotation struct {
	text   string
	exists bool
	// time is the value; valid reports whether it could be parsed.
	time  time.Time
	valid bool
	own   bool
}

// observe reads a node. ok is false if the node has no signal, no mark and no cordon: then there is
// nothing to plan for it.
func (p *planner) observe(n *snapshot.Node) (o observedNode, ok bool) {
	defer recovery.Recover(recovery.Node, klog.KObj(n))
	o.Node = n
	if n.Facts.Capacity.Type == decision.Spot {
		p.spotNodes++
	}
	if _, ready := nodeutil.GetNodeCondition(&n.Status, v1.NodeReady); ready != nil { // the kubelet has reported
		p.kubelets.reported++
		if _, unreachable := p.reader.KubeletUnreachable(n.Node); unreachable {
			p.kubelets.unreachable++
			o.silent = true
		}
		o.alive = ready.Status == v1.ConditionTrue && !o.silent
	}
	o.state, o.stateText, o.hasState = readState(n.Node)
	if o.state.Taint == "" {
		o.state.Taint = p.unrecordedTaint(n)
	}
	o.deadline = readDeadline(n.Node, o.state)
	o.tainted = slices.ContainsFunc(n.Spec.Taints, o.wroteTaint)
	o.otherTaints = n.Spec.Taints
	others := n.Node
	if o.tainted {
		o.otherTaints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), o.wroteTaint)
		shallow := *n.Node
		shallow.Spec.Taints = o.otherTaints
		others = &shallow
	}
	o.signals = p.reader.Announcements(others, n.Facts.Capacity.Type, p.at)
	if o.memory = p.Memory.see(n.UID, o.facts(), p.at); len(o.signals) == 0 {
		o.memory.reclaim = reclaimMemory{calm: true}
	}
	return o, len(o.signals) > 0 || o.hasState || o.deadline.exists || n.Spec.Unschedulable
}

// unrecordedTaint returns the value of a taint that the controller wrote for a signal of the node,
// if someone has removed the state annotation since; else "". The value shows the signal. Without
// this, the taint would itself count as a signal and stay when the other signals end.
func (p *planner) unrecordedTaint(n *snapshot.Node) string {
	own := slices.IndexFunc(n.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == spot.InterruptionTaint && t.Effect != v1.TaintEffectNoExecute && t.Value != ""
	})
	if own < 0 || !slices.ContainsFunc(p.reader.Announcements(n.Node, n.Facts.Capacity.Type, p.at), func(a node.Announcement) bool {
		return !strings.Contains(a.Name, spot.InterruptionTaint) && taintValue(a) == n.Spec.Taints[own].Value
	}) {
		return ""
	}
	return n.Spec.Taints[own].Value
}

func readState(node *v1.Node) (s state, text string, exists bool) {
	text, exists = node.Annotations[spot.InterruptionStateAnnotation]
	if exists {
		var parsed state // only a node with the annotation costs an allocation
		if json.Unmarshal([]byte(text), &parsed) == nil {
			s = parsed
		}
	}
	return s, text, exists
}

func readDeadline(node *v1.Node, current state) (d deadlineAnnotation) {
	if d.text, d.exists = node.Annotations[spot.InterruptionDeadlineAnnotation]; !d.exists {
		return d
	}
	deadline, err := time.Parse(time.RFC3339, d.text)
	d.time, d.valid = deadline, err == nil
	d.own = d.text == current.OwnDeadline
	return d
}

func (o *observedNode) wroteTaint(t v1.Taint) bool { return o.state.Wrote(&t) }

// blockedByOthers reports whether another client set the project's taint with an effect that blocks
// new pods. A node cannot have two taints with the same key and effect.
func (o *observedNode) blockedByOthers() bool {
	return slices.ContainsFunc(o.otherTaints, func(t v1.Taint) bool {
		return t.Key == spot.InterruptionTaint && t.Effect != v1.TaintEffectPreferNoSchedule
	})
}

// blocksNewPods reports whether every scheduler keeps new pods off the node: it is cordoned,
// another client set the project's taint, a signal is itself a taint, or Kubernetes sets one
// because the kubelet is unreachable.
func (o *observedNode) blocksNewPods() bool {
	return o.Spec.Unschedulable || o.blockedByOthers() || slices.ContainsFunc(o.signals, func(a node.Announcement) bool {
		isTaint := a.Signal != nil && a.Signal.Kind == providers.TaintSignal
		return isUnreachable(a) || isTaint && slices.ContainsFunc(o.otherTaints, func(t v1.Taint) bool {
			return t.Key == a.Signal.Key && t.Effect != v1.TaintEffectPreferNoSchedule
		})
	})
}

func (o *observedNode) onlyUnreachable() bool {
	return !slices.ContainsFunc(o.signals, func(a node.Announcement) bool { return !isUnreachable(a) })
}

// cause returns why pods leave the node, or why it gets the project's taint. class is the class of
// its signals.
func (o *observedNode) cause(class decision.SignalClass) safety.Cause {
	switch {
	case class == decision.Advisory:
		return safety.Advisory
	case class == decision.Drain:
		return safety.Drain
	case o.onlyUnreachable():
		return safety.Unreachable
	}
	return safety.Reclaim
}

// keepStrongestSignals removes the signals of weaker classes, and returns the strongest class.
func (o *observedNode) keepStrongestSignals() decision.SignalClass {
	class := decision.NoSignal
	for _, a := range o.signals {
		class = max(class, a.Class)
	}
	o.signals = slices.DeleteFunc(o.signals, func(a node.Announcement) bool { return a.Class != class })
	return class
}
