package kube

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// StateAnnotation is on nodes that the controller has marked. It contains, as JSON, the marks that
// the controller wrote, so that the controller never removes marks of other actors. It also
// contains facts that a Node does not record by itself. A taint or deadline that differs from the
// annotation belongs to another actor: the controller respects it and does not remove it. The same
// applies to all marks if the annotation is missing or does not parse.
const StateAnnotation = "spot-aware-scheduler.io/interruption-state"

// SilenceReason is the value of the controller's taint on a node whose kubelet is silent (see
// Silence).
const SilenceReason = "not-ready"

// OwnMark is the part of StateAnnotation that identifies the controller's own taint.
type OwnMark struct {
	// Class is the decision.SignalClass that the controller marked the node for, or "" if the node
	// is no longer marked.
	Class string `json:"class,omitempty"`
	// Taint is the value of the controller's taint, whose effect is NoSchedule. It is "" if the
	// controller has no taint on the node.
	Taint string `json:"taint,omitempty"`
}

// Own reports whether the controller wrote the taint.
func (m *OwnMark) Own(t *v1.Taint) bool {
	return m.Taint != "" && t.Key == InterruptionTaint && t.Effect == v1.TaintEffectNoSchedule && t.Value == m.Taint
}

// isOn reports whether the controller's taint is on the node.
func (m *OwnMark) isOn(node *v1.Node) bool {
	for i := range node.Spec.Taints {
		if m.Own(&node.Spec.Taints[i]) {
			return true
		}
	}
	return false
}

// readOwnMark returns the controller's mark on the node. It is zero if there is none, or if the
// annotation does not parse.
func readOwnMark(node *v1.Node) (m OwnMark) {
	if text, ok := node.Annotations[StateAnnotation]; ok && json.Unmarshal([]byte(text), &m) != nil {
		return OwnMark{}
	}
	return m
}

// Advised reports whether the controller marked the node for an advisory signal only, so the node
// may survive.
func Advised(node *v1.Node) bool {
	m := readOwnMark(node)
	return m.Class == decision.Advisory.String() && m.isOn(node)
}
