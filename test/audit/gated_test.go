package audit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestGated: the controller decides before another scheduler binds, so the values since its
// decision count.
func TestGated(t *testing.T) {
	const s = time.Second
	gate := func(h *history, names ...string) *history {
		for _, name := range names {
			edit(h, name, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: prefix + "capacity"}} })
		}
		return h
	}
	ungate := func(h *history, assigned string, names ...string) *history {
		for _, name := range names {
			edit(h, name, func(p *corev1.Pod) {
				p.Spec.SchedulingGates, p.Annotations = nil, map[string]string{prefix + "assigned": assigned}
			})
		}
		return h
	}
	for name, test := range map[string]struct {
		play func(h *history)
		want []BreachKind
	}{
		"too many on spot": {func(h *history) {
			ungate(gate(h, "a", "b"), "any", "a", "b").wait(10*s).bind("s", "a", "b")
		}, []BreachKind{OverBudget}},
		"as many as the budget": {func(h *history) {
			ungate(gate(h, "a", "b"), "any", "a", "b").bind("s", "a").bind("d", "b")
		}, nil},
		"scaled down after the decision": {func(h *history) {
			ungate(gate(h.scale("web", 3), "a", "b"), "any", "a", "b").wait(4*s).scale("web", 2).wait(6*s).bind("s", "a", "b")
		}, nil},
		"scaled down before the decision": {func(h *history) {
			ungate(gate(h.scale("web", 3), "a", "b").wait(4*s).scale("web", 2).wait(3*s), "any", "a", "b").wait(6*s).bind("s", "a", "b")
		}, []BreachKind{OverBudget}},
		"no decision": {func(h *history) {
			ungate(gate(h, "a", "b"), "none: the gate expired", "a", "b").bind("s", "a", "b")
		}, nil},
		"never gated": {func(h *history) { h.bind("s", "a", "b") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, "")
			h.core.gated = true
			test.play(h.spot("s").onDemand("d").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b"))
			h.wait(10 * s)
			var got []BreachKind
			for _, breach := range findingsOf[Breach](h.core) {
				got = append(got, breach.Kind)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("breaches (-want +got):\n%s", diff)
			}
		})
	}
}
