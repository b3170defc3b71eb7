package kube

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// StateAnnotation is on nodes that the controller has marked, as JSON: what it wrote there, so that it never takes off what somebody else
// wrote, and what a Node does not say by itself. A taint or a deadline that differs from it is somebody else's: it is heard, and stays. So is
// everything where the annotation is missing or does not parse.
const StateAnnotation = "spot-aware-scheduler.io/interruption-state"

// SilenceReason is the value of the controller's taint on a node that is marked for Silence.
const SilenceReason = "not-ready"

// OwnMark is the part of StateAnnotation that identifies the controller's own taint.
type OwnMark struct {
	// Class is the decision.SignalClass that the node was marked for; "" if it is not any more.
	Class string `json:"class,omitempty"`
	// Taint is the value of the controller's taint, which has the effect NoSchedule; "": none is its own.
	Taint string `json:"taint,omitempty"`
}

// Own reports whether the controller wrote a taint.
func (m *OwnMark) Own(t *v1.Taint) bool {
	return m.Taint != "" && t.Key == InterruptionTaint && t.Effect == v1.TaintEffectNoSchedule && t.Value == m.Taint
}

// on reports whether the controller's taint is on node.
func (m *OwnMark) on(node *v1.Node) bool {
	for i := range node.Spec.Taints {
		if m.Own(&node.Spec.Taints[i]) {
			return true
		}
	}
	return false
}

// ownMark returns what the controller wrote on node; zero if that is nothing, or does not parse.
func ownMark(node *v1.Node) (m OwnMark) {
	if text, ok := node.Annotations[StateAnnotation]; ok && json.Unmarshal([]byte(text), &m) != nil {
		return OwnMark{}
	}
	return m
}

// Advised reports whether the controller marked node for an advisory signal only: the node may stay.
func Advised(node *v1.Node) bool {
	m := ownMark(node)
	return m.Class == decision.Advisory.String() && m.on(node)
}
