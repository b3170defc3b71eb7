//go:build long

package owners

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// soon limits the time of an immediate reaction on a loaded machine.
const soon = live.Soon

// The names in manifests, as literals, so that a change of a constant in the code fails the tests.
const (
	minOnDemand    = "spot-aware-scheduler.io/min-on-demand"
	karpenterLabel = "karpenter.sh/capacity-type"
)

// split counts the pods of an app by the capacity type of their nodes.
type split = live.Split

// scenario is the state of one test. Its objects are deleted at the end of the test.
type scenario struct {
	*testing.T
	ctx       context.Context
	namespace string
	// mode is the autoscaler mode: the admission policy, and gating in the controller.
	mode                  bool
	scheduler, controller *lab.Process
	seen                  *history
	// owners are the objects of other projects in the namespace.
	owners []*unstructured.Unstructured
}

// start starts a scheduler and a controller with these nodes. The controller does not wait for a
// calm period before it moves pods.
func start(t *testing.T, mode bool, nodes ...lab.NodeSpec) *scenario {
	t.Helper()
	s := &scenario{T: t, ctx: t.Context(), mode: mode}
	ns, err := kube.CoreV1().Namespaces().Create(s.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	s.must(err)
	s.namespace = ns.Name
	t.Cleanup(s.clean)
	s.must(controlPlane.CreateNodes(s.ctx, nodes...))
	s.seen = s.watch()
	if mode {
		s.applyMode()
	}
	config, err := live.SchedulerConfig(controlPlane.Root, nil)
	s.must(err)
	policy, err := audit.PolicyFromSchedulerConfig(config)
	s.must(err)
	audit.Watch(t, controlPlane.Config(), audit.Options{Policy: policy})
	s.scheduler, err = controlPlane.StartScheduler(s.ctx, lab.SchedulerOptions{})
	s.must(err)
	s.controller, err = controlPlane.StartController(s.ctx, lab.ControllerOptions{Flags: []string{"-v=2"}, Edit: func(config map[string]any) {
		rebalance := config["rebalance"].(map[string]any)
		rebalance["pauseAfterInterruption"], rebalance["calmPeriod"] = "0s", "1s"
		config["gating"].(map[string]any)["enabled"] = mode
	}})
	s.must(err)
	return s
}

// applyMode applies the manifests of the autoscaler mode, and waits until the API server sets the
// gate.
func (s *scenario) applyMode() {
	s.Helper()
	// The manifests grant rights to an account of the base manifests.
	_, err := controlPlane.ControllerKubeconfig(s.ctx)
	s.must(err)
	s.must(live.KubectlAutoscalerMode(s.ctx, controlPlane, "apply"))
	s.eventually(soon, func() error {
		pod, err := kube.CoreV1().Pods(s.namespace).Create(s.ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: live.PodTemplate("probe").Spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(pod.Spec.SchedulingGates) == 0 {
			err = errors.New("the API server does not set the gate")
		}
		return err
	})
}

// clean deletes all objects of the scenario. It stops the programs first, so that no pod is moved
// or bound meanwhile.
func (s *scenario) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if s.Failed() {
		s.logCluster(ctx)
	}
	for _, p := range []*lab.Process{s.scheduler, s.controller} {
		if p == nil {
			continue
		}
		if s.Failed() {
			s.Logf("the log of %s ends with:\n%s", p.Name, live.Tail(p.Log, 40))
		}
		if err := p.Stop(); err != nil {
			s.Errorf("stopping %s: %v", p.Name, err)
		}
		if err := live.Denied(p); err != nil {
			s.Error(err)
		}
	}
	if s.mode {
		if err := live.KubectlAutoscalerMode(ctx, controlPlane, "delete"); err != nil {
			s.Error(err)
		}
	}
	// Without the old leases, the next programs become leaders at once.
	for _, lease := range []string{"spot-aware-scheduler", "spot-controller"} {
		if err := kube.CoordinationV1().Leases("kube-system").Delete(ctx, lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	}
	for _, owner := range s.owners {
		if err := objects.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			s.Error(err)
		}
	}
	if err := live.Clear(ctx, kube, s.namespace); err != nil {
		s.Errorf("cleaning up: %v", err)
	}
	if err := kube.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		s.Error(err)
	}
	if err := kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.Errorf("cleaning up nodes: %v", err)
	}
}

// logCluster logs the state of the cluster after a failure.
func (s *scenario) logCluster(ctx context.Context) {
	pods, err := kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for _, pod := range pods.Items {
		s.Logf("pod %s on %q: phase %s, gates %v, node selector %v, terminating %t, annotations %v", pod.Name, pod.Spec.NodeName, pod.Status.Phase,
			pod.Spec.SchedulingGates, pod.Spec.NodeSelector, pod.DeletionTimestamp != nil, pod.Annotations)
	}
	list, err := kube.EventsV1().Events(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	logged := map[string]int{}
	for _, event := range list.Items {
		if logged[event.Reason]++; logged[event.Reason] <= 3 {
			s.Logf("%s %s %s: %s", event.ReportingController, event.Reason, event.Regarding.Name, event.Note)
		}
	}
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually waits until check returns nil. It fails with the last error of check after limit.
func (s *scenario) eventually(limit time.Duration, check func() error) {
	s.Helper()
	s.must(live.Until(s.ctx, limit, check))
}

// create creates an object of another project in the scenario's namespace.
func (s *scenario) create(object *unstructured.Unstructured) {
	s.Helper()
	object.SetNamespace(s.namespace)
	s.must(objects.Create(s.ctx, object))
	s.owners = append(s.owners, object)
}

// patch changes an object by a merge patch, or its status if subresource is "status".
func (s *scenario) patch(object *unstructured.Unstructured, patch string, subresource string) {
	s.Helper()
	data := client.RawPatch(types.MergePatchType, []byte(patch))
	target := object.DeepCopy()
	if subresource == "" {
		s.must(objects.Patch(s.ctx, target, data))
	} else {
		s.must(objects.SubResource(subresource).Patch(s.ctx, target, data))
	}
}

// hasSplit returns a check that the live pods of an app have this split, and that all pods with a
// node are ready.
func (s *scenario) hasSplit(app string, want split) func() error {
	return func() error {
		got, err := live.Splits(s.ctx, kube, s.namespace)
		if err != nil {
			return err
		}
		if ready := s.seen.ready(app); got[app] != want || ready != want.OnDemand+want.Spot {
			return fmt.Errorf("%s: %+v and %d are ready, want %+v", app, got[app], ready, want)
		}
		return nil
	}
}

// hasFloor returns a check that the app has this number of pods, that all are ready, and that at
// least `floor` pods run on on-demand.
func (s *scenario) hasFloor(app string, replicas, floor int) func() error {
	return func() error {
		got, err := live.Splits(s.ctx, kube, s.namespace)
		if err != nil {
			return err
		}
		at := got[app]
		if s.seen.ready(app) != replicas || at.OnDemand+at.Spot != replicas || at.Waiting > 0 || at.OnDemand < floor {
			return fmt.Errorf("%s: %+v and %d are ready, want %d pods and %d on on-demand", app, at, s.seen.ready(app), replicas, floor)
		}
		return nil
	}
}

// status is a workload in the output of kubectl spot status.
type status struct {
	Kind, Name, State string
	Desired, Floor    int
}

// hasStatus returns a check that kubectl spot status lists only this workload.
func (s *scenario) hasStatus(want status) func() error {
	return func() error {
		command := exec.CommandContext(s.ctx, filepath.Join(controlPlane.Root, "bin", "kubectl-spot"),
			"status", "-n", s.namespace, "-o", "json", "--kubeconfig="+controlPlane.Kubeconfig,
			"--scheduler-config="+filepath.Join(controlPlane.Root, "config", "scheduler-config.yaml"))
		var out, errOut bytes.Buffer
		command.Stdout, command.Stderr = &out, &errOut
		if err := command.Run(); err != nil {
			return fmt.Errorf("kubectl spot status: %w: %s", err, errOut.String())
		}
		var got struct{ Items []status }
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			return fmt.Errorf("kubectl spot status: %w: %s", err, out.String())
		}
		if len(got.Items) != 1 || got.Items[0] != want {
			return fmt.Errorf("kubectl spot status shows %+v, want only %+v\n%s", got.Items, want, out.String())
		}
		return nil
	}
}

// events returns the notes of the events with this reason of an object.
func (s *scenario) events(reason, object string) []string {
	s.Helper()
	list, err := kube.EventsV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	s.must(err)
	var notes []string
	for _, event := range list.Items {
		if event.Regarding.Name == object {
			notes = append(notes, event.Note)
		}
	}
	return notes
}

// startProgram starts a program of another project that hack/tools.sh controllers builds, and waits
// until the URL ready answers. The test stops the program at its end.
func startProgram(t *testing.T, ready, name string, args ...string) *lab.Process {
	t.Helper()
	binary := filepath.Join(controlPlane.Root, ".local", "bin", name)
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v: hack/tools.sh controllers builds it", err)
	}
	p, err := controlPlane.StartProgram(name, binary, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s ends with:\n%s", name, live.Tail(p.Log, 30))
		}
		if err := errors.Join(p.Err(), p.Stop()); err != nil {
			t.Error(err)
		}
	})
	err = live.Until(t.Context(), time.Minute, func() error {
		if err := p.Err(); err != nil {
			return err
		}
		response, err := http.Get(ready)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", ready, response.Status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// manifests returns the objects of the YAML files in a folder of .local.
func manifests(t *testing.T, folder string) (all []*unstructured.Unstructured) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(controlPlane.Root, ".local", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf(".local/%s has no manifests (%v): hack/tools.sh controllers copies them", folder, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, decode(t, string(data))...)
	}
	return all
}

// decode returns the objects of YAML documents.
func decode(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// install creates objects that do not exist, and waits until the API server serves their CRDs.
func install(t *testing.T, all []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range all {
		if err := objects.Create(t.Context(), object.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("creating %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range all {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := live.Until(t.Context(), soon, func() error {
			if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
			for _, c := range conditions {
				if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
					return nil
				}
			}
			return fmt.Errorf("CRD %s is not established", object.GetName())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// The client must know the new kinds.
	meta.MaybeResetRESTMapper(objects.RESTMapper())
}
