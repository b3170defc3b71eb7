package interruption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// state is the content of spot.InterruptionStateAnnotation.
type state struct {
	node.ControllerMark
	// Deadline is the value of the deadline annotation if the controller wrote it.
	Deadline string `json:"deadline,omitempty"`
	// Seen is when each reclaim signal began, by the name of the signal. The notice starts then.
	Seen map[string]time.Time `json:"seen,omitempty"`
	// Ahead is the claimed start of a signal, by its name, if it was in the future when the
	// controller first saw the signal. Without it, the signal would seem to repeat at that time.
	Ahead map[string]time.Time `json:"ahead,omitempty"`
	// Released are the pods that were released for a drain of the node. During the same drain no
	// pod is released twice.
	Released []types.UID `json:"released,omitempty"`
	// Advised is when the last advisory signal began on which the controller acted.
	Advised *time.Time `json:"advised,omitempty"`

	// deadline is when the node is expected to vanish; zero if it is not interrupted. It is not
	// part of the annotation.
	deadline time.Time
	// leftOver reports whether the deadline annotation is older than every signal. It is not part
	// of the annotation.
	leftOver bool
}

func (s *state) ahead(name string, claimed time.Time) {
	if s.Ahead == nil {
		s.Ahead = map[string]time.Time{}
	}
	s.Ahead[name] = claimed
}

func (s *state) text() string {
	text, err := json.Marshal(s)
	if err != nil || string(text) == "{}" {
		return "" // times of any year that a Node can contain can be encoded
	}
	return string(text)
}

func readState(node *v1.Node) (s state) {
	if text, ok := node.Annotations[spot.InterruptionStateAnnotation]; ok && json.Unmarshal([]byte(text), &s) != nil {
		return state{}
	}
	return s
}

// readDeadline returns the time in the deadline annotation, and the annotation's text. ok is false
// if the text cannot be parsed.
func readDeadline(node *v1.Node) (deadline time.Time, text string, ok bool) {
	text = node.Annotations[spot.InterruptionDeadlineAnnotation]
	deadline, err := time.Parse(time.RFC3339, text)
	return deadline, text, err == nil
}

// withoutOwn returns the node without the controller's own taint.
func withoutOwn(node *v1.Node, current state) *v1.Node {
	others := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool { return current.Wrote(&t) })
	if len(others) == len(node.Spec.Taints) {
		return node
	}
	shallow := *node
	shallow.Spec.Taints = others
	return &shallow
}

// takenByOthers reports whether another client set the project's taint with an effect that blocks
// new pods. A node cannot have two taints with the same key and effect.
func takenByOthers(node *v1.Node, current state) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == spot.InterruptionTaint && t.Effect != v1.TaintEffectPreferNoSchedule && !current.Wrote(&t)
	})
}

// reasonOf returns the short reason for the taint's value: the last part of the signal's key.
func reasonOf(a node.Announcement) string {
	if a.Name == node.Silence {
		return node.SilenceReason
	}
	_, key, _ := strings.Cut(a.Name, " ")
	key, _, _ = strings.Cut(key, "=")
	return key[strings.LastIndex(key, "/")+1:]
}

// Mark contains the changes to write to a node.
type Mark struct {
	Node *snapshot.Node
	// Taints are the desired taints of the node, including taints of other clients; nil leaves the
	// taints unchanged.
	Taints []v1.Taint
	// Annotations are the annotations to write; nil removes one.
	Annotations map[string]*string
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
// announced are the signals that decided.
func newMark(n *snapshot.Node, current, want state, class decision.SignalClass, announced []node.Announcement) (mark Mark, ok bool) {
	mark = Mark{Node: n, Annotations: map[string]*string{}}
	mark.setTaint(current, want)
	deadlineOwn := mark.setDeadline(current, &want)

	written, exists := n.Annotations[spot.InterruptionStateAnnotation]
	switch text := want.text(); {
	case text == "" && exists:
		mark.Annotations[spot.InterruptionStateAnnotation] = nil
	case text != written:
		mark.Annotations[spot.InterruptionStateAnnotation] = &text
	}
	if mark.Taints == nil && len(mark.Annotations) == 0 {
		return Mark{}, false
	}
	if want.Class != current.Class {
		mark.addClassEvent(want, class, announced)
	}
	mark.addDeadlineEvents(want, deadlineOwn)
	return mark, true
}

// setTaint sets Taints if the controller's taint must be added, changed or removed.
func (m *Mark) setTaint(current, want state) {
	existing := m.Node.Spec.Taints
	tainted := slices.ContainsFunc(existing, func(t v1.Taint) bool { return current.Wrote(&t) })
	if want.Taint == current.Taint && tainted == (want.Taint != "") {
		return
	}
	m.Taints = slices.DeleteFunc(append([]v1.Taint{}, existing...), func(t v1.Taint) bool { return current.Wrote(&t) })
	if want.Taint != "" {
		m.Taints = append(m.Taints, v1.Taint{Key: spot.InterruptionTaint, Value: want.Taint, Effect: v1.TaintEffectNoSchedule})
	}
	if len(m.Taints) == len(existing) && !tainted && want.Taint == "" {
		m.Taints = nil // another client has already removed the taint
	}
}

// setDeadline sets the deadline annotation if it must change, and want.Deadline. It reports whether
// the controller wrote the current annotation.
func (m *Mark) setDeadline(current state, want *state) (own bool) {
	written, text, parsed := readDeadline(m.Node.Node)
	_, exists := m.Node.Annotations[spot.InterruptionDeadlineAnnotation]
	own = exists && current.Deadline == text
	switch {
	case want.deadline.IsZero() && own:
		m.Annotations[spot.InterruptionDeadlineAnnotation] = nil
	case want.deadline.IsZero() || exists && !parsed:
		// Values of other clients stay unchanged. An invalid value also stays, so that users see
		// it.
	case parsed && !want.leftOver && !want.deadline.Before(written):
		if own {
			want.Deadline = text
		}
	default:
		want.Deadline = want.deadline.UTC().Format(time.RFC3339)
		text := want.Deadline
		m.Annotations[spot.InterruptionDeadlineAnnotation] = &text
	}
	return own
}

// addClassEvent adds the event for a change of the class of the node's signals.
func (m *Mark) addClassEvent(want state, class decision.SignalClass, announced []node.Announcement) {
	switch {
	case want.Class == decision.Reclaim.String():
		m.addEvent(v1.EventTypeWarning, spot.ReasonInterruption, "%s: pods are moved by %s",
			announced[0].Name, want.deadline.UTC().Format(time.RFC3339))
	case want.Class == decision.Advisory.String():
		m.addEvent(v1.EventTypeNormal, spot.ReasonAdvice, "%s: pods are moved one at a time", announced[0].Name)
	case class == decision.Advisory && want.Advised != nil:
		m.addEvent(v1.EventTypeNormal, spot.ReasonInterruptionOver, "Advisory expired: the node was not reclaimed in time")
	default:
		m.addEvent(v1.EventTypeNormal, spot.ReasonInterruptionOver, "Interruption signal cleared")
	}
}

// addDeadlineEvents adds events for a deadline annotation that is ignored or replaced.
func (m *Mark) addDeadlineEvents(want state, own bool) {
	_, text, parsed := readDeadline(m.Node.Node)
	_, exists := m.Node.Annotations[spot.InterruptionDeadlineAnnotation]
	if exists && !parsed && !want.deadline.IsZero() {
		m.addEvent(v1.EventTypeWarning, spot.ReasonInvalidDeadline,
			"annotation %s is ignored: invalid value %.64q: expected a time such as %q; the node is expected to vanish at %s",
			spot.InterruptionDeadlineAnnotation, text, "2026-03-01T12:00:00Z", want.deadline.UTC().Format(time.RFC3339))
	}
	if want.leftOver && !own {
		m.addEvent(v1.EventTypeWarning, spot.ReasonInvalidDeadline,
			"annotation %s is replaced: %s is before the signal began; the node is expected to vanish at %s",
			spot.InterruptionDeadlineAnnotation, text, want.Deadline)
	}
}

func (m *Mark) addEvent(kind, reason, format string, args ...any) {
	m.Events = append(m.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// patch is a JSON merge patch of a node.
type patch struct {
	Metadata patchMeta  `json:"metadata"`
	Spec     *patchSpec `json:"spec,omitempty"`
}

type patchMeta struct {
	UID             types.UID          `json:"uid"`
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

type patchSpec struct {
	Taints []v1.Taint `json:"taints"`
}

// Apply writes a mark to exactly the version of the Node that it was planned for, so that a taint
// that another client has set since is not lost. A conflict is returned as an error. The next plan,
// from a newer snapshot, contains the remaining changes.
func Apply(ctx context.Context, client kubernetes.Interface, mark Mark) error {
	node := mark.Node
	p := patch{Metadata: patchMeta{UID: node.UID, ResourceVersion: node.ResourceVersion, Annotations: mark.Annotations}}
	if mark.Taints != nil {
		p.Spec = &patchSpec{Taints: mark.Taints}
	}
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("patching node %s: %w", node.Name, err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patching node %s: %w", node.Name, err)
	}
	return nil
}
