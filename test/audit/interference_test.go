package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestInterference contains changes by the controller and by others of a node with a foreign taint.
func TestInterference(t *testing.T) {
	const controller, other, perhaps = Controller, OtherActor, PerhapsController
	taints := func(keys ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = nil
			for _, key := range keys {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
		}
	}
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable }
	type step struct {
		author Author
		edit   func(*corev1.Node)
	}
	removed := []string{"the taint foreign:NoSchedule was removed or changed"}
	for name, test := range map[string]struct {
		steps []step
		want  []string
	}{
		"it sets and removes its own taint":       {steps: []step{{controller, taints("foreign", ownTaint)}, {controller, taints("foreign")}}},
		"it removes a foreign taint":              {steps: []step{{controller, taints()}}, want: removed},
		"others remove a foreign taint":           {steps: []step{{other, taints()}}},
		"it removes a foreign taint with its own": {steps: []step{{controller, taints("foreign", ownTaint)}, {controller, taints()}}, want: removed},
		"it sets a foreign taint":                 {steps: []step{{controller, taints("foreign", "x")}}, want: []string{"the taint x:NoSchedule was set"}},
		"it cordons":                              {steps: []step{{controller, cordon}}, want: []string{"unschedulable was set from false to true"}},
		"it removes the cordon of others":         {steps: []step{{other, cordon}, {controller, cordon}}, want: []string{"unschedulable was set from true to false"}},
		"it removes its taint of others":          {steps: []step{{other, taints("foreign", ownTaint)}, {controller, taints("foreign")}}, want: []string{"the taint " + ownTaint + ", which another actor had set, was removed"}},
		"it is killed while it sets its taint":    {steps: []step{{perhaps, taints("foreign", ownTaint)}, {controller, taints("foreign")}}},
		"others remove its taint":                 {steps: []step{{controller, taints("foreign", ownTaint)}, {other, taints("foreign")}}},
		"others change taints in between":         {steps: []step{{controller, taints("foreign", ownTaint)}, {other, taints(ownTaint)}, {controller, taints()}}},
		"it changes the time of a foreign taint":  {steps: []step{{other, taintedAt("foreign")}, {controller, taints("foreign")}}, want: []string{"the taint foreign:NoSchedule since 2026-01-01T06:00:00Z was removed or changed; the taint foreign:NoSchedule was set"}},
		"labels and annotations are ignored":      {steps: []step{{controller, func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, "")
			authors := map[uint64]Author{}
			h.core.author = func(_ string, resourceVersion uint64) Author { return authors[resourceVersion] }
			h.node("s", map[string]string{ownLabel: "spot"}, taints("foreign"))
			for _, step := range test.steps {
				authors[uint64(h.revision+1)] = step.author
				edit(h, "s", step.edit)
			}
			h.wait(authorDelay + tickEvery)
			var got []string
			for _, finding := range findingsOf[Interference](h.core) {
				t.Log(finding)
				got = append(got, finding.Detail)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("interference (-want +got):\n%s", diff)
			}
		})
	}
}

func taintedAt(key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: dawn}}}
	}
}
