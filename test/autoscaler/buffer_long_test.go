//go:build long

package autoscaler

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLongCapacityBuffer: Karpenter has a spare on-demand node for a CapacityBuffer. A
// singleton starts there without waiting for a node to boot, and Karpenter launches the next
// spare node. No node gets more pods than it has room for. docs/autoscalers.md recommends this
// setup.
func TestLongCapacityBuffer(t *testing.T) {
	const boot = 20 * time.Second
	s := start(t, setup{mode: true, karpenter: lab.KarpenterOptions{
		InstanceTypes: []string{"c-1x-amd64-linux"}, NodeRegistrationDelay: boot, Flags: []string{"--feature-gates=CapacityBuffer=true"},
	}})
	s.buffer("on-demand-room", 1, "500m", "64Mi")
	s.Eventually(boot+soon, s.ready(1))

	began := time.Now()
	s.deploy("first", 1, "500m", "64Mi")
	s.Eventually(soon, s.isAvailableWithSplit("first", split{OnDemand: 1}))
	pod := s.Seen.Pods("first")[0]
	t.Logf("ready %s after its creation, beside a boot of %s", pod.Ready.Sub(began).Round(time.Millisecond), boot)
	if pod.Ready.Sub(began) > boot/2 {
		t.Errorf("it was ready after %s: it did not get the spare node", pod.Ready.Sub(began))
	}
	s.Eventually(boot+soon, s.ready(2)) // the next spare node

	for i := range 3 {
		s.deploy(fmt.Sprintf("more-%d", i), 1, "500m", "64Mi")
	}
	s.Eventually(2*boot+soon, s.complete)
	s.Must(s.noNodeOvercommitted())
	s.Must(s.floorsMet())
}

// buffer makes Karpenter reserve room on on-demand for `replicas` pods.
func (s *scenario) buffer(name string, replicas int64, cpu, memory string) {
	s.Helper()
	template := live.PodTemplate(name)
	template.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	template.Spec.NodeSelector = map[string]string{lab.KarpenterCapacityLabel: lab.OnDemand}
	_, err := kube.CoreV1().PodTemplates(s.Namespace).Create(s.Ctx, &v1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}, Template: template}, metav1.CreateOptions{})
	s.Must(err)
	buffer := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"podTemplateRef": map[string]any{"name": name}, "replicas": replicas}}}
	buffer.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling.x-k8s.io", Version: "v1beta1", Kind: "CapacityBuffer"})
	buffer.SetNamespace(s.Namespace)
	buffer.SetName(name)
	s.Must(objects.Create(s.Ctx, buffer))
}

// ready returns a check that `want` nodes are ready.
func (s *scenario) ready(want int) func() error {
	return func() error {
		nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := 0
		for _, node := range nodes.Items {
			for _, c := range node.Status.Conditions {
				if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
					got++
				}
			}
		}
		if got != want {
			return fmt.Errorf("%d nodes are ready, want %d", got, want)
		}
		return nil
	}
}

// noNodeOvercommitted returns an error if the pods on a node request more CPU than it has. The
// simulated kubelet would run all of the pods.
func (s *scenario) noNodeOvercommitted() error {
	pods, err := kube.CoreV1().Pods("").List(s.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		return err
	}
	requested := map[string]int64{}
	for _, pod := range pods.Items {
		for _, c := range pod.Spec.Containers {
			requested[pod.Spec.NodeName] += c.Resources.Requests.Cpu().MilliValue()
		}
	}
	nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if has := node.Status.Allocatable.Cpu().MilliValue(); requested[node.Name] > has {
			return fmt.Errorf("the pods on node %s request %dm CPU, but it has %dm", node.Name, requested[node.Name], has)
		}
	}
	return nil
}
