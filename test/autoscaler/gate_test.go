package autoscaler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestGatePolicy shows which pods get the gate of the mode. The policy adds it once, after the
// gates of others, to every pod that the API server accepts.
func TestGatePolicy(t *testing.T) {
	s := start(t, setup{mode: true})
	const other = "example.com/wait"
	for name, test := range map[string]struct {
		edit func(*v1.PodSpec)
		want []string
	}{
		"no gate":       {func(*v1.PodSpec) {}, []string{live.GateName}},
		"another gate":  {func(spec *v1.PodSpec) { spec.SchedulingGates = gatesOf(other) }, []string{other, live.GateName}},
		"the same gate": {func(spec *v1.PodSpec) { spec.SchedulingGates = gatesOf(live.GateName, other) }, []string{live.GateName, other}},
		"two variables of one name": {func(spec *v1.PodSpec) {
			spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
		}, []string{live.GateName}},
		"another scheduler": {func(spec *v1.PodSpec) { spec.SchedulerName = v1.DefaultSchedulerName }, nil},
		"bound to a node":   {func(spec *v1.PodSpec) { spec.NodeName = "node" }, nil},
	} {
		s.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: live.PodTemplate("app").Spec}
			test.edit(&pod.Spec)
			created, err := kube.CoreV1().Pods(s.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(gatesOf(test.want...), created.Spec.SchedulingGates); diff != "" {
				t.Errorf("gates (-want +got):\n%s", diff)
			}
		})
	}
}

func gatesOf(names ...string) (gates []v1.PodSchedulingGate) {
	for _, name := range names {
		gates = append(gates, v1.PodSchedulingGate{Name: name})
	}
	return gates
}
