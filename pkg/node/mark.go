package node

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// UnreachableReason is the value of the controller's taint on a node whose kubelet is unreachable
// (see UnreachableKubelet).
const UnreachableReason = "not-ready"

// ControllerMark is the part of spot.InterruptionStateAnnotation that identifies the controller's
// own taint.
type ControllerMark struct {
	// Class is the decision.SignalClass that the controller marked the node for, or "" if the node
	// is no longer marked.
	Class string `json:"class,omitempty"`
	// Taint is the value of the controller's taint, or "" if the controller has no taint on the
	// node. The effect is PreferNoSchedule for the class advisory, and NoSchedule otherwise.
	Taint string `json:"taint,omitempty"`
}

// Wrote reports whether the controller wrote the taint. Earlier versions wrote NoSchedule for every
// class, so both effects count.
func (m *ControllerMark) Wrote(t *v1.Taint) bool {
	return m.Taint != "" && t.Key == spot.InterruptionTaint && t.Effect != v1.TaintEffectNoExecute && t.Value == m.Taint
}

func (m *ControllerMark) isOn(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return m.Wrote(&t) })
}

// readControllerMark returns the controller's mark on the node. It is zero if there is none, or if
// the annotation does not parse.
func readControllerMark(node *v1.Node) (m ControllerMark) {
	if text, ok := node.Annotations[spot.InterruptionStateAnnotation]; ok && json.Unmarshal([]byte(text), &m) != nil {
		return ControllerMark{}
	}
	return m
}

// classOn returns the class of a signal on a node of this capacity type. The controller's own taint
// repeats another signal, and has its class.
func classOn(s *providers.Signal, node *v1.Node, capacity decision.CapacityType) decision.SignalClass {
	if s.Key == spot.InterruptionTaint {
		own := readControllerMark(node)
		for _, repeated := range []decision.SignalClass{decision.Advisory, decision.Drain} {
			if own.Class == repeated.String() && !hasForeignSignal(s, node, own) {
				return repeated
			}
		}
	}
	return s.ClassOn(node, capacity)
}

// hasForeignSignal reports whether the signal is on the node because of a mark that the controller
// did not write.
func hasForeignSignal(s *providers.Signal, node *v1.Node, own ControllerMark) bool {
	if s.Kind != providers.TaintSignal || s.Key != spot.InterruptionTaint || own.Taint == "" {
		return s.IsOn(node)
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Key == s.Key && (s.Value == "" || s.Value == t.Value) && !own.Wrote(t) {
			return true
		}
	}
	return false
}
