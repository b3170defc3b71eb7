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
	"slices"
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

// scenario is a scenario with objects of other projects.
type scenario struct {
	*live.Scenario
	schedulerName string // of the pods
}

// start starts a scheduler and a controller with these nodes. The controller does not wait for a
// calm period before it moves pods. mode is the overlay that gates new pods: live.AutoscalerMode,
// live.AnyScheduler, which starts kube-scheduler and a failsafe, or "".
func start(t *testing.T, mode string, nodes ...lab.NodeSpec) *scenario {
	t.Helper()
	s := &scenario{live.NewScenario(t, controlPlane, kube, nodes...), "spot-aware-scheduler"}
	s.Watch()
	if mode != "" {
		s.ApplyMode(mode)
	}
	settings := live.Settings{
		"rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s", "gating.enabled": mode != "",
	}
	if mode == live.AnyScheduler {
		s.schedulerName = v1.DefaultSchedulerName
		_, err := kube.CoreV1().Namespaces().Patch(s.Ctx, s.Namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"spot-aware-scheduler.io/opt-in":"keep-scheduler"}}}`), metav1.PatchOptions{})
		s.Must(err)
		s.Audit(nil, audit.Options{SchedulerName: s.schedulerName, Gated: true})
		s.Scheduler, err = controlPlane.StartStockScheduler(s.Ctx)
		s.Must(err)
		s.StartAnotherController(settings, "--failsafe")
	} else {
		s.Audit(nil, audit.Options{})
		s.StartScheduler(lab.SchedulerOptions{})
	}
	s.StartController(settings)
	return s
}

// template returns a pod of an app.
func (s *scenario) template(app string) v1.PodTemplateSpec {
	template := live.PodTemplate(app)
	template.Spec.SchedulerName = s.schedulerName
	return template
}

// create creates an object of another project in the scenario's namespace.
func (s *scenario) create(object *unstructured.Unstructured) {
	s.Helper()
	object.SetNamespace(s.Namespace)
	s.Must(objects.Create(s.Ctx, object))
	s.BeforeClear = append(s.BeforeClear, func(ctx context.Context) error {
		return client.IgnoreNotFound(objects.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	})
}

// patch changes an object by a merge patch, or its status if subresource is "status".
func (s *scenario) patch(object *unstructured.Unstructured, patch string, subresource string) {
	s.Helper()
	data := client.RawPatch(types.MergePatchType, []byte(patch))
	target := object.DeepCopy()
	if subresource == "" {
		s.Must(objects.Patch(s.Ctx, target, data))
	} else {
		s.Must(objects.SubResource(subresource).Patch(s.Ctx, target, data))
	}
}

// hasFloor returns a check that the app has this number of pods, that all are ready, and that at
// least `floor` pods run on on-demand.
func (s *scenario) hasFloor(app string, replicas, floor int) func() error {
	return func() error {
		got, err := s.Splits()
		if err != nil {
			return err
		}
		at := got[app]
		if s.Seen.Serving(app, nil) != replicas || at.OnDemand+at.Spot != replicas || at.Waiting > 0 || at.OnDemand < floor {
			return fmt.Errorf("%s: %+v and %d are ready, want %d pods and %d on on-demand", app, at, s.Seen.Serving(app, nil), replicas, floor)
		}
		return nil
	}
}

// status is a workload in the output of kubectl spot status.
type status struct {
	Kind, Name, State string
	Desired, Floor    int
}

// assumed is the exit status of an answer with an assumed policy or configuration.
const assumed = 3

// hasStatus returns a check that kubectl spot status lists only this workload. The cluster has no
// Deployment of the controller, so its configuration is assumed.
func (s *scenario) hasStatus(want status) func() error {
	return func() error {
		command := exec.CommandContext(s.Ctx, filepath.Join(controlPlane.Root, "bin", "kubectl-spot"),
			"status", "-n", s.Namespace, "-o", "json", "--kubeconfig="+controlPlane.Kubeconfig,
			"--scheduler-config="+filepath.Join(controlPlane.Root, "config", "scheduler-config.yaml"))
		var out, errOut bytes.Buffer
		command.Stdout, command.Stderr = &out, &errOut
		if err := command.Run(); err != nil && command.ProcessState.ExitCode() != assumed {
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

// since returns the records of the pods that were created after a time.
func since(seen *live.History, began time.Time) []live.PodRecord {
	return slices.DeleteFunc(seen.Pods(""), func(r live.PodRecord) bool { return !r.Created.After(began) })
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
