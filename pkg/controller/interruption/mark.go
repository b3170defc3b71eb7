package interruption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Mark contains the changes to write to a node.
type Mark struct {
	Node *snapshot.Node
	// Taints are the desired taints of the node, including taints of other clients; nil leaves the
	// taints unchanged.
	Taints []v1.Taint
	// Annotations are the annotations to write. A nil value removes one. An empty map leaves all
	// annotations unchanged.
	Annotations map[string]*string
	// Cause is why the node gets the controller's taint; "" if it gets none, or has it already.
	Cause safety.Cause
	// Events are the events to emit on the node after the write.
	Events []Event
}

// Event is an event on a node.
type Event struct {
	// Type is v1.EventTypeNormal or v1.EventTypeWarning. Reason is one of package spot.
	Type, Reason string
	Note         string
}

// newMark compares the current with the desired marks of a node. ok is false if they are equal.
// class is the class of the node's signals.
func newMark(n *observedNode, class decision.SignalClass, want desired) (mark Mark, ok bool) {
	mark = Mark{Node: n.Node, Annotations: map[string]*string{}}
	mark.setTaint(n, &want)
	want.OwnDeadline = mark.setDeadline(n, want)
	switch text := want.text(); {
	case text == "" && n.hasState:
		mark.Annotations[spot.InterruptionStateAnnotation] = nil
	case text != n.stateText:
		mark.Annotations[spot.InterruptionStateAnnotation] = &text
	}
	if mark.Taints == nil && len(mark.Annotations) == 0 {
		return Mark{}, false
	}
	if want.Class != n.state.Class {
		mark.addClassEvent(n, class, want)
	}
	mark.addDeadlineEvents(n, want)
	return mark, true
}

// setTaint sets Taints if the controller's taint must be added, changed or removed. An advisory
// signal never makes a node unschedulable: pods that fit on no other node start there. Nor does any
// signal while the controller is paused.
func (m *Mark) setTaint(n *observedNode, want *desired) {
	own := v1.Taint{Key: spot.InterruptionTaint, Value: want.Taint, Effect: v1.TaintEffectNoSchedule}
	isSoft := func(t v1.Taint) bool { return n.wroteTaint(t) && t.Effect == v1.TaintEffectPreferNoSchedule }
	if want.Class == decision.Advisory.String() || want.paused && slices.ContainsFunc(n.Spec.Taints, isSoft) {
		own.Effect = v1.TaintEffectPreferNoSchedule
	}
	isOwn := func(t v1.Taint) bool { return n.wroteTaint(t) && t.Value == own.Value && t.Effect == own.Effect }
	if want.Taint == "" && !n.tainted || slices.ContainsFunc(n.Spec.Taints, isOwn) {
		return
	}
	m.Taints = append([]v1.Taint{}, n.otherTaints...)
	if want.Taint != "" {
		m.Taints = append(m.Taints, own)
	}
}

// setDeadline sets the deadline annotation if it must change. It returns the value that the
// controller wrote, now or earlier; "" if the annotation is missing or belongs to another client.
func (m *Mark) setDeadline(n *observedNode, want desired) (own string) {
	switch written := n.deadline; {
	case want.notice.deadline.IsZero():
		// Values of other clients stay unchanged.
		if written.own {
			m.Annotations[spot.InterruptionDeadlineAnnotation] = nil
		}
		return ""
	case written.exists && !written.valid:
		// An invalid value stays, so that users see it.
		return ""
	case written.valid && !want.notice.stale && !want.notice.deadline.Before(written.time):
		if written.own {
			return written.text
		}
		return ""
	}
	text := want.notice.deadline.UTC().Format(time.RFC3339)
	m.Annotations[spot.InterruptionDeadlineAnnotation] = &text
	return text
}

func (m *Mark) addClassEvent(n *observedNode, class decision.SignalClass, want desired) {
	switch drain := decision.Drain.String(); {
	case want.Class == drain && n.state.Class == "", want.Class == "" && n.state.Class == drain:
		// The client that drains the node reports it.
	case want.Class == decision.Reclaim.String() && want.paused:
		m.addEvent(v1.EventTypeWarning, spot.ReasonInterruption, "%s: the node is expected to vanish at %s, and the controller is paused",
			n.signals[0].Name, want.notice.deadline.UTC().Format(time.RFC3339))
	case n.unconfirmed:
		m.addEvent(v1.EventTypeWarning, spot.ReasonInterruption, "%s: the breaker is open, so no pod is deleted, "+
			"and pods without a ready replacement are evicted one at a time at most", n.signals[0].Name)
	case want.Class == decision.Reclaim.String():
		m.addEvent(v1.EventTypeWarning, spot.ReasonInterruption, "%s: pods are moved by %s",
			n.signals[0].Name, want.notice.deadline.UTC().Format(time.RFC3339))
	case want.Class == decision.Advisory.String():
		m.addEvent(v1.EventTypeNormal, spot.ReasonAdvisory, "%s: pods are moved one at a time", n.signals[0].Name)
	case class == decision.Advisory && want.AdvisorySince != nil:
		m.addEvent(v1.EventTypeNormal, spot.ReasonInterruptionOver, "Advisory expired: the node was not reclaimed in time")
	default:
		m.addEvent(v1.EventTypeNormal, spot.ReasonInterruptionOver, "Interruption signal cleared")
	}
}

// addDeadlineEvents adds events for a deadline annotation that is ignored or replaced.
func (m *Mark) addDeadlineEvents(n *observedNode, want desired) {
	if n.deadline.exists && !n.deadline.valid && !want.notice.deadline.IsZero() {
		m.addEvent(v1.EventTypeWarning, spot.ReasonInvalidDeadline,
			"annotation %s is ignored: invalid value %.64q: expected a time such as %q; the node is expected to vanish at %s",
			spot.InterruptionDeadlineAnnotation, n.deadline.text, "2026-03-01T12:00:00Z", want.notice.deadline.UTC().Format(time.RFC3339))
	}
	if want.notice.stale && !n.deadline.own {
		m.addEvent(v1.EventTypeWarning, spot.ReasonInvalidDeadline,
			"annotation %s is replaced: %s is before the signal, or the shutdown of the kubelet, began; the node is expected to vanish at %s",
			spot.InterruptionDeadlineAnnotation, n.deadline.text, want.OwnDeadline)
	}
}

func (m *Mark) addEvent(kind, reason, format string, args ...any) {
	m.Events = append(m.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// Apply writes a mark to exactly the version of the Node that it was planned for, so that a taint
// that another client has set since is not lost. A conflict is returned as an error. The next plan,
// from a newer snapshot, contains the remaining changes.
func Apply(ctx context.Context, client kubernetes.Interface, mark Mark) error {
	node := mark.Node
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if len(mark.Annotations) > 0 {
		metadata["annotations"] = mark.Annotations
	}
	patch := map[string]any{"metadata": metadata}
	if mark.Taints != nil {
		patch["spec"] = map[string]any{"taints": mark.Taints}
	}
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("patching node %s: %w", node.Name, err)
	}
	return nil
}
