package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestGatePolicy shows which pods get the gate of the mode. The policy adds it once, after the
// gates of others, to every pod that the API server accepts.
func TestGatePolicy(t *testing.T) {
	s := start(t, setup{mode: true})
	const other, keep = "example.com/wait", "keep-scheduler"
	stock := func(spec *v1.PodSpec) { spec.SchedulerName = v1.DefaultSchedulerName }
	// gates returns the gates of a pod with this value of the opt-in label, after admission.
	gates := func(namespace, optIn string, edit func(*v1.PodSpec)) ([]v1.PodSchedulingGate, error) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: map[string]string{optInLabel: optIn}}, Spec: live.PodTemplate("app").Spec}
		edit(&pod.Spec)
		created, err := kube.CoreV1().Pods(namespace).Create(s.Ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return nil, err
		}
		return created.Spec.SchedulingGates, nil
	}
	namespaces := map[string]string{"": s.Namespace}
	for _, optIn := range []string{"true", keep} {
		namespaces[optIn] = s.NewNamespace()
		s.Others = append(s.Others, namespaces[optIn])
		s.Must(labelNamespace(s.Ctx, namespaces[optIn], optIn))
	}
	s.Eventually(soon, func() error { // the API server evaluates policies with cached namespaces
		got, err := gates(namespaces[keep], "", stock)
		if err == nil && len(got) == 0 {
			err = errors.New("the label of the namespace has no effect")
		}
		return err
	})
	for name, test := range map[string]struct {
		edit func(*v1.PodSpec)
		want []string
		// namespace and pod are values of the opt-in label.
		namespace, pod string
	}{
		"no gate":       {edit: func(*v1.PodSpec) {}, want: []string{live.GateName}},
		"another gate":  {edit: func(spec *v1.PodSpec) { spec.SchedulingGates = gatesOf(other) }, want: []string{other, live.GateName}},
		"the same gate": {edit: func(spec *v1.PodSpec) { spec.SchedulingGates = gatesOf(live.GateName, other) }, want: []string{live.GateName, other}},
		"two variables of one name": {edit: func(spec *v1.PodSpec) {
			spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
		}, want: []string{live.GateName}},
		"bound to a node":   {edit: func(spec *v1.PodSpec) { spec.NodeName = "node" }},
		"another scheduler": {edit: stock},
		// workload.Scope has the same rules.
		"namespace":                              {edit: stock, want: []string{live.GateName}, namespace: keep},
		"namespace, our scheduler":               {edit: func(*v1.PodSpec) {}, want: []string{live.GateName}, namespace: keep},
		"namespace, the pod opts out":            {edit: stock, namespace: keep, pod: "false"},
		"namespace, an unknown value of the pod": {edit: stock, want: []string{live.GateName}, namespace: keep, pod: "yes"},
		"namespace with our scheduler":           {edit: stock, namespace: "true"},
		"pod":                                    {edit: stock, want: []string{live.GateName}, pod: keep},
		"pod, namespace with our scheduler":      {edit: stock, want: []string{live.GateName}, namespace: "true", pod: keep},
		"true of the pod alone":                  {edit: stock, pod: "true"},
	} {
		s.Run(name, func(t *testing.T) {
			got, err := gates(namespaces[test.namespace], test.pod, test.edit)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(gatesOf(test.want...), got); diff != "" {
				t.Errorf("gates (-want +got):\n%s", diff)
			}
		})
	}
}

// capacityLabel is the label of simulated nodes.
const capacityLabel = "node.kubernetes.io/capacity"

// optInLabel opts in pods and namespaces.
const optInLabel = "spot-aware-scheduler.io/opt-in"

func labelNamespace(ctx context.Context, namespace, optIn string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, optInLabel, optIn)
	_, err := kube.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func gatesOf(names ...string) (gates []v1.PodSchedulingGate) {
	for _, name := range names {
		gates = append(gates, v1.PodSchedulingGate{Name: name})
	}
	return gates
}
