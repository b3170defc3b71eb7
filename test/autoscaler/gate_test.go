package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestGatePolicy shows which pods get the gate of the mode from the admission policy.
func TestGatePolicy(t *testing.T) {
	s := start(t, setup{mode: true})
	checkGates(s.Scenario)
}

// checkGates fails unless the right pods get the gate, once, after the gates of others. The API
// server accepts every pod.
func checkGates(s *live.Scenario) {
	s.Helper()
	const other, keep = "example.com/wait", "keep-scheduler"
	stock := func(spec *v1.PodSpec) { spec.SchedulerName = v1.DefaultSchedulerName }
	// gates returns the gates of a pod with this value of the opt-in label, after admission.
	gates := func(namespace, optIn string, edit func(*v1.PodSpec)) ([]v1.PodSchedulingGate, error) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: map[string]string{optInLabel: optIn}}, Spec: live.PodTemplate("app").Spec}
		edit(&pod.Spec)
		return admittedGates(s.Ctx, namespace, pod)
	}
	namespaces := map[string]string{"": s.Namespace}
	for _, optIn := range []string{"true", "false", "yes", keep} {
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
	namespaces[metav1.NamespaceSystem] = metav1.NamespaceSystem
	requireScope(s, slices.Collect(maps.Values(namespaces)))
}

// requireScope fails unless the API server gates the pods that workload.Scope includes, and no
// others, for all combinations of namespaces, labels, schedulers and other fields. It does not gate
// pods in kube-system, on a node or of a DaemonSet.
func requireScope(s *live.Scenario, namespaces []string) {
	s.Helper()
	scope := workload.Scope{Profile: "spot-aware-scheduler"}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range namespaces {
		namespace, err := kube.CoreV1().Namespaces().Get(s.Ctx, name, metav1.GetOptions{})
		s.Must(err)
		s.Must(indexer.Add(namespace))
	}
	scope.Namespaces = corelisters.NewNamespaceLister(indexer)
	owner := func(kind string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "u", Controller: new(true)}}
		}
	}
	shapes := map[string]func(*v1.Pod){
		"plain":           func(*v1.Pod) {},
		"gated":           func(pod *v1.Pod) { pod.Spec.SchedulingGates = gatesOf(live.GateName) },
		"another gate":    func(pod *v1.Pod) { pod.Spec.SchedulingGates = gatesOf("example.com/wait") },
		"of a Deployment": owner("ReplicaSet"),
		"of a DaemonSet":  owner("DaemonSet"),
		"on a node":       func(pod *v1.Pod) { pod.Spec.NodeName = "node" },
	}
	cases, gated := 0, 0
	for _, namespace := range namespaces {
		for _, optIn := range []string{"none", "", "true", "false", "keep-scheduler", "Keep-Scheduler"} {
			for _, scheduler := range []string{v1.DefaultSchedulerName, "spot-aware-scheduler", "volcano"} {
				for shape, edit := range shapes {
					pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}, Spec: live.PodTemplate("app").Spec}
					if optIn != "none" {
						pod.Labels = map[string]string{optInLabel: optIn}
					}
					pod.Spec.SchedulerName = scheduler
					edit(pod)
					want := shape == "gated" || scope.Includes(pod) && namespace != metav1.NamespaceSystem && pod.Spec.NodeName == "" && workload.PolicyApplies(pod)
					got, err := admittedGates(s.Ctx, namespace, pod)
					s.Must(err)
					if slices.Contains(got, gatesOf(live.GateName)[0]) != want {
						s.Errorf("namespace %s, label %s, scheduler %s, %s: gates %v, want the capacity gate: %t", namespace, optIn, scheduler, shape, got, want)
					}
					cases++
					if want {
						gated++
					}
				}
			}
		}
	}
	if gated < 100 || cases-gated < 100 {
		s.Errorf("%d of %d pods are gated, expected at least 100 of each kind", gated, cases)
	}
}

// admittedGates returns the gates of a pod after admission. The pod is not stored.
func admittedGates(ctx context.Context, namespace string, pod *v1.Pod) ([]v1.PodSchedulingGate, error) {
	created, err := kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	return created.Spec.SchedulingGates, nil
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
