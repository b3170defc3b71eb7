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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// StateAnnotation is kube.StateAnnotation.
const StateAnnotation = kube.StateAnnotation

// state is what StateAnnotation says.
type state struct {
	kube.OwnMark
	// Deadline is what the deadline annotation says if it is ours.
	Deadline string `json:"deadline,omitempty"`
	// Seen is when each reclaim signal began, by its name: from then on its notice counts.
	Seen map[string]time.Time `json:"seen,omitempty"`
	// Ahead is what the Node says of the start of a signal if that was still to come when the signal was first seen, by its name. Without it
	// the signal would seem to come again when that time has come.
	Ahead map[string]time.Time `json:"ahead,omitempty"`
	// Released are the pods that were released because somebody else drains the node. While it is drained, none is released for the second time.
	Released []types.UID `json:"released,omitempty"`
	// Advised is when the last advice began that was acted upon.
	Advised *time.Time `json:"advised,omitempty"`

	// deadline is when the node goes; zero if it does not. It is no part of the annotation.
	deadline time.Time
	// leftOver: the deadline annotation is older than every signal. It is no part of the annotation either.
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
		return "" // times within any year that a Node can name do marshal
	}
	return string(text)
}

func readState(node *v1.Node) (s state) {
	if text, ok := node.Annotations[StateAnnotation]; ok && json.Unmarshal([]byte(text), &s) != nil {
		return state{}
	}
	return s
}

// readDeadline returns what the deadline annotation says. text is the annotation as it is, ok is false unless it parses.
func readDeadline(node *v1.Node) (deadline time.Time, text string, ok bool) {
	text = node.Annotations[kube.DeadlineAnnotation]
	deadline, err := time.Parse(time.RFC3339, text)
	return deadline, text, err == nil
}

// withoutOwn returns the node as it would be without our taint.
func withoutOwn(node *v1.Node, had state) *v1.Node {
	others := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool { return had.Own(&t) })
	if len(others) == len(node.Spec.Taints) {
		return node
	}
	shallow := *node
	shallow.Spec.Taints = others
	return &shallow
}

// takenByOthers reports whether somebody else set the project's taint in a way that keeps new pods off. Two of one key and effect cannot be.
func takenByOthers(node *v1.Node, had state) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == kube.InterruptionTaint && t.Effect != v1.TaintEffectPreferNoSchedule && !had.Own(&t)
	})
}

// reasonOf returns the short reason that the taint's value gives: the last part of the signal's key.
func reasonOf(a kube.Announcement) string {
	if a.Name == kube.Silence {
		return kube.SilenceReason
	}
	_, key, _ := strings.Cut(a.Name, " ")
	key, _, _ = strings.Cut(key, "=")
	return key[strings.LastIndex(key, "/")+1:]
}

// Mark is what is to be written on a node.
type Mark struct {
	Node *cluster.Node
	// Taints are what the node's are to be, those of others as they are; nil leaves them.
	Taints []v1.Taint
	// Annotations are those to write; nil removes one.
	Annotations map[string]*string
	// Events are what to tell on the node when that is done.
	Events []Event
}

// Event is what a person is told on a node.
type Event struct {
	// Type is v1.EventTypeNormal or v1.EventTypeWarning, Reason one of package kube.
	Type, Reason string
	Note         string
}

// newMark compares what a node bears with what it should. ok is false if that is the same. announced is what decided.
func newMark(n *cluster.Node, had, want state, class decision.SignalClass, announced []kube.Announcement) (mark Mark, ok bool) {
	mark = Mark{Node: n, Annotations: map[string]*string{}}
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return had.Own(&t) })
	if want.Taint != had.Taint || tainted != (want.Taint != "") {
		mark.Taints = slices.DeleteFunc(append([]v1.Taint{}, n.Spec.Taints...), func(t v1.Taint) bool { return had.Own(&t) })
		if want.Taint != "" {
			mark.Taints = append(mark.Taints, v1.Taint{Key: kube.InterruptionTaint, Value: want.Taint, Effect: v1.TaintEffectNoSchedule})
		}
		if len(mark.Taints) == len(n.Spec.Taints) && !tainted && want.Taint == "" {
			mark.Taints = nil // somebody took ours off already
		}
	}

	written, text, parsed := readDeadline(n.Node)
	_, there := n.Annotations[kube.DeadlineAnnotation]
	ours := there && had.Deadline == text
	switch {
	case want.deadline.IsZero() && ours:
		mark.Annotations[kube.DeadlineAnnotation] = nil
	case want.deadline.IsZero() || there && !parsed:
		// What somebody else wrote stays. That one does not parse stays to be seen, too.
	case parsed && !want.leftOver && !want.deadline.Before(written):
		if ours {
			want.Deadline = text
		}
	default:
		want.Deadline = want.deadline.UTC().Format(time.RFC3339)
		mark.Annotations[kube.DeadlineAnnotation] = &want.Deadline
	}

	bears, has := n.Annotations[StateAnnotation]
	switch text := want.text(); {
	case text == "" && has:
		mark.Annotations[StateAnnotation] = nil
	case text != bears:
		mark.Annotations[StateAnnotation] = &text
	}
	if mark.Taints == nil && len(mark.Annotations) == 0 {
		return Mark{}, false
	}

	if want.Class != had.Class {
		switch {
		case want.Class == decision.Reclaim.String():
			mark.tell(v1.EventTypeWarning, kube.ReasonInterruption, "%s: pods leave by %s", announced[0].Name, want.deadline.UTC().Format(time.RFC3339))
		case want.Class == decision.Advisory.String():
			mark.tell(v1.EventTypeNormal, kube.ReasonAdvice, "%s: pods leave one after the other", announced[0].Name)
		case class == decision.Advisory && want.Advised != nil:
			mark.tell(v1.EventTypeNormal, kube.ReasonInterruptionOver, "advice is not heard any more: the node did not go in time")
		default:
			mark.tell(v1.EventTypeNormal, kube.ReasonInterruptionOver, "nothing announces any more that the node goes")
		}
	}
	if there && !parsed && !want.deadline.IsZero() {
		mark.tell(v1.EventTypeWarning, kube.ReasonInvalidDeadline, "annotation %s is ignored: invalid value %.64q: expected a time such as %q; the node is taken to go at %s",
			kube.DeadlineAnnotation, text, "2026-03-01T12:00:00Z", want.deadline.UTC().Format(time.RFC3339))
	}
	if want.leftOver && !ours {
		mark.tell(v1.EventTypeWarning, kube.ReasonInvalidDeadline, "annotation %s is replaced: %s is before the signal began; the node is taken to go at %s",
			kube.DeadlineAnnotation, text, want.Deadline)
	}
	return mark, true
}

func (m *Mark) tell(kind, reason, format string, args ...any) {
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

// Apply writes a mark, only on the very version of the Node that it was planned for: a taint that somebody set since is not lost. A conflict
// is an error like every other; the next plan, from a newer snapshot, says what is still to be done.
func Apply(ctx context.Context, client kubernetes.Interface, mark Mark) error {
	node := mark.Node
	p := patch{Metadata: patchMeta{UID: node.UID, ResourceVersion: node.ResourceVersion, Annotations: mark.Annotations}}
	if mark.Taints != nil {
		p.Spec = &patchSpec{Taints: mark.Taints}
	}
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("marking node %s: %w", node.Name, err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("marking node %s: %w", node.Name, err)
	}
	return nil
}
