package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const partOf = "app.kubernetes.io/part-of=spot-aware-scheduler"

// deployments maps the shipped Deployments to their manifests in manifests/components.
var deployments = map[string]string{"spot-aware-scheduler": "scheduler/deployment.yaml", "spot-controller": "controller/deployment.yaml"}

// TestManifests installs the scheduler and the controller with kubectl, as a user does, and removes
// them again. Its kube-system namespace enforces the Pod Security level restricted. The test starts
// its own control plane, because the shared one already contains the scheduler's rights for the
// other tests.
func TestManifests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cp, err := lab.Start(ctx, lab.Options{})
	live.Must(t, err)
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(cp.Config())
	live.Must(t, err)
	_, err = cp.StartStockScheduler(ctx)
	live.Must(t, err)
	k := kubectl{cp: cp, cache: t.TempDir()}
	base := filepath.Join(cp.Root, "manifests", "base")
	monitoring := filepath.Join(cp.Root, "manifests", "overlays", "monitoring")

	// The lab applied these files itself.
	for _, file := range []string{
		"scheduler/serviceaccount.yaml", "scheduler/rbac.yaml", "scheduler/admissionpolicy.yaml", "controller/budgets-admissionpolicy.yaml",
	} {
		k.must(t, "delete", "--filename="+filepath.Join(cp.Root, "manifests", "components", file))
	}
	k.must(t, "label", "namespace", "kube-system", "pod-security.kubernetes.io/enforce=restricted",
		"pod-security.kubernetes.io/warn=restricted", "pod-security.kubernetes.io/audit=restricted")
	wantNoObjects(t, k, "before anything is applied")

	live.Must(t, cp.CreateNodes(ctx, lab.NodeSpec{Name: "only", Capacity: lab.OnDemand}))
	if !t.Run("apply", func(t *testing.T) {
		applyOverlay(t, k, base, "created")
		applyOverlay(t, k, base, "unchanged")
	}) {
		return
	}
	t.Run("both replicas on a single node", func(t *testing.T) {
		runsOn(t, client, "only", "only")
	})
	t.Run("one replica on each of two nodes, despite a PreferNoSchedule taint", func(t *testing.T) {
		unwanted := v1.Taint{Key: "unwanted", Effect: v1.TaintEffectPreferNoSchedule}
		live.Must(t, cp.CreateNodes(t.Context(), lab.NodeSpec{Name: "spot", Capacity: lab.Spot, Taints: []v1.Taint{unwanted}}))
		k.must(t, "--namespace=kube-system", "rollout", "restart", "deployment", "--selector="+partOf)
		runsOn(t, client, "only", "spot")
	})
	t.Run("a replica of a drained node runs beside the other", func(t *testing.T) {
		k.must(t, "drain", "spot")
		runsOn(t, client, "only", "only")
		k.must(t, "uncordon", "spot")
	})
	t.Run("away from spot", func(t *testing.T) {
		nodes := []lab.NodeSpec{{Name: "unlabelled"}}
		for i, label := range providers.CapacityLabels() {
			value := "true"
			if len(label.Spot) > 0 {
				value = label.Spot[0]
			} else if label.SpotUnless == nil {
				continue // the label's values do not identify spot
			}
			nodes = append(nodes, lab.NodeSpec{Name: fmt.Sprintf("spot-%d", i), Labels: map[string]string{label.Key: value}})
		}
		live.Must(t, cp.CreateNodes(t.Context(), nodes...))
		k.must(t, "--namespace=kube-system", "rollout", "restart", "deployment", "--selector="+partOf)
		runsOn(t, client, "only", "unlabelled")
	})
	t.Run("monitoring", func(t *testing.T) {
		scrapes := func() string {
			stdout, _, _ := k.run("auth", "can-i", "get", "/metrics", "--as=system:serviceaccount:kube-system:spot-aware-scheduler-metrics")
			return strings.TrimSpace(stdout)
		}
		if got := scrapes(); got != "no" {
			t.Fatalf("Prometheus may read /metrics before the overlay is applied: %s", got)
		}
		// The CRDs of the Prometheus operator.
		for _, kind := range []string{"servicemonitors", "prometheusrules"} {
			k.must(t, "create", "--filename="+filepath.Join("testdata", kind+".yaml"))
			live.Must(t, live.Until(t.Context(), soon, func() error { // kubectl wait fails at once if the object has no conditions yet
				_, stderr, err := k.run("wait", "--for=condition=Established", "crd/"+kind+".monitoring.coreos.com")
				if err != nil {
					err = fmt.Errorf("%w: %s", err, stderr)
				}
				return err
			}))
		}
		applyOverlay(t, k, monitoring, "created")
		applyOverlay(t, k, monitoring, "unchanged")
		k.must(t, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--kustomize="+monitoring+"-extender")
		live.Must(t, live.Until(t.Context(), soon, func() error {
			if got := scrapes(); got != "yes" {
				return fmt.Errorf("may Prometheus read /metrics: %s", got)
			}
			return nil
		}))
	})
	own := ownOverlay(t, base)
	t.Run("an overlay with other images and configurations rolls out", func(t *testing.T) {
		k.must(t, "apply", "-k", own)
		runsOn(t, client, "only", "unlabelled")
		// The content of the files that each Deployment mounts, by the flag that names the file.
		got := map[string]map[string]string{}
		images := map[string]string{}
		for name := range deployments {
			d, err := client.AppsV1().Deployments("kube-system").Get(t.Context(), name, metav1.GetOptions{})
			live.Must(t, err)
			pod := &d.Spec.Template.Spec
			images[name], got[name] = pod.Containers[0].Image, filesOf(t, client, pod)
		}
		if diff := cmp.Diff(map[string]string{
			"spot-aware-scheduler": "registry.example/team/scheduler:v1", "spot-controller": "registry.example/team/controller:v1",
		}, images); diff != "" {
			t.Errorf("images (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]map[string]string{
			"spot-aware-scheduler": {"--config": "changed: true\n"},
			"spot-controller":      {"--config": "changed: too\n", "--scheduler-config": "changed: true\n"},
		}, got); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
	t.Run("delete", func(t *testing.T) {
		// Kubernetes may delete the Secret of the ServiceAccount before kubectl does.
		k.must(t, "delete", "--ignore-not-found", "-k", monitoring)
		k.must(t, "delete", "-k", own)
		// ConfigMaps of earlier configurations remain.
		k.must(t, "--namespace=kube-system", "delete", "configmap", "--selector="+partOf)
		wantNoObjects(t, k, "after delete -k")
	})
}

// ownOverlay returns a kustomization that a user might build on top of base.
func ownOverlay(t *testing.T, base string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir()) // kustomize resolves symbolic links too
	live.Must(t, err)
	base, err = filepath.Rel(dir, base)
	live.Must(t, err)
	live.Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(`
resources: [`+base+`]
images:
- name: localhost/spot-aware-scheduler
  newName: registry.example/team/scheduler
  newTag: v1
- name: localhost/spot-controller
  newName: registry.example/team/controller
  newTag: v1
configMapGenerator:
- name: spot-aware-scheduler-config
  namespace: kube-system
  behavior: merge
  files: [scheduler-config.yaml]
- name: spot-controller-config
  namespace: kube-system
  behavior: merge
  files: [controller-config.yaml]
`), 0o600))
	live.Must(t, os.WriteFile(filepath.Join(dir, "scheduler-config.yaml"), []byte("changed: true\n"), 0o600))
	live.Must(t, os.WriteFile(filepath.Join(dir, "controller-config.yaml"), []byte("changed: too\n"), 0o600))
	return dir
}

// applyOverlay applies a kustomization. It fails unless kubectl prints done for every object, and
// nothing else.
func applyOverlay(t *testing.T, k kubectl, dir, done string) {
	t.Helper()
	var want []string
	for _, object := range built(t, k, dir) {
		line := fmt.Sprintf("%s/%s %s", strings.ToLower(object.Kind), object.Name, done)
		if object.Kind == "PodDisruptionBudget" && done == "unchanged" {
			// kubectl sends the selector, which is replaced as a whole, without comparing it first.
			// The API server finds no difference.
			line = fmt.Sprintf("%s/%s configured", strings.ToLower(object.Kind), object.Name)
		}
		want = append(want, line)
	}
	stdout, stderr, err := k.run("apply", "-k", dir)
	if err != nil || stderr != "" {
		t.Fatalf("kubectl apply -k %s: %v, standard error:\n%s", dir, err, stderr)
	}
	var got []string
	for line := range strings.Lines(stdout) {
		resource, rest, _ := strings.Cut(strings.TrimSpace(line), "/")
		kind, _, _ := strings.Cut(resource, ".")
		got = append(got, kind+"/"+rest)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("kubectl apply -k %s (-want +got):\n%s", dir, diff)
	}
}

// wantNoObjects fails if an object of any kind carries the label of this project.
func wantNoObjects(t *testing.T, k kubectl, when string) {
	t.Helper()
	kinds := strings.Fields(k.must(t, "api-resources", "--verbs=list,delete", "--output=name"))
	if !slices.Contains(kinds, "deployments.apps") || !slices.Contains(kinds, "clusterroles.rbac.authorization.k8s.io") {
		t.Fatalf("the API server's kinds: %v", kinds)
	}
	// Kubernetes deletes pods and ReplicaSets shortly after their owner.
	live.Must(t, live.Until(t.Context(), soon, func() error {
		stdout, stderr, err := k.run("get", strings.Join(kinds, ","), "--all-namespaces", "--selector="+partOf, "--output=name")
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		if stdout != "" {
			return fmt.Errorf("%s these objects remain:\n%s", when, stdout)
		}
		return nil
	}))
}

// filesOf returns the content of the files that the arguments of a pod's container name, by flag.
func filesOf(t *testing.T, client kubernetes.Interface, pod *v1.PodSpec) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, arg := range pod.Containers[0].Args {
		flag, file, ok := strings.Cut(arg, "=/")
		if !ok {
			continue
		}
		for _, mount := range pod.Containers[0].VolumeMounts {
			for _, volume := range pod.Volumes {
				if mount.Name == volume.Name && mount.MountPath == filepath.Dir("/"+file) {
					config, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
					live.Must(t, err)
					files[flag] = config.Data[filepath.Base(file)]
				}
			}
		}
	}
	return files
}

// runsOn waits until both Deployments are rolled out, and the pods of each run on exactly these
// nodes.
func runsOn(t *testing.T, client kubernetes.Interface, nodes ...string) {
	t.Helper()
	slices.Sort(nodes)
	for name := range deployments {
		live.Must(t, live.Until(t.Context(), soon, func() error {
			d, err := client.AppsV1().Deployments("kube-system").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := d.Status; s.ObservedGeneration != d.Generation || s.AvailableReplicas != 2 || s.UpdatedReplicas != 2 {
				return fmt.Errorf("status of Deployment %s: %+v", name, s)
			}
			selector := partOf + ",app.kubernetes.io/name=" + name
			pods, err := client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return err
			}
			var on []string
			for _, pod := range pods.Items {
				on = append(on, pod.Spec.NodeName)
			}
			slices.Sort(on)
			if !slices.Equal(on, nodes) {
				return fmt.Errorf("pods of %s run on %v, want %v", name, on, nodes)
			}
			return nil
		}))
	}
}

// TestManifestsAvoidSpot compares the Deployments' preference against spot nodes with the labels
// that the scheduler reads, value by value.
func TestManifestsAvoidSpot(t *testing.T) {
	want := []v1.NodeSelectorRequirement{{Key: spot.CapacityLabel, Operator: v1.NodeSelectorOpNotIn, Values: []string{"spot"}}}
	for _, label := range providers.CapacityLabels() {
		switch {
		case len(label.Spot) > 0:
			want = append(want, v1.NodeSelectorRequirement{Key: label.Key, Operator: v1.NodeSelectorOpNotIn, Values: label.Spot})
		case len(label.SpotUnless) > 0: // one term cannot express "any value except"
			want = append(want, v1.NodeSelectorRequirement{Key: label.Key, Operator: v1.NodeSelectorOpNotIn, Values: []string{"true"}})
		case label.SpotUnless != nil:
			want = append(want, v1.NodeSelectorRequirement{Key: label.Key, Operator: v1.NodeSelectorOpDoesNotExist})
		}
	}
	for name := range deployments {
		var got []v1.NodeSelectorRequirement
		d := shippedDeployment(t, name)
		for _, term := range d.Spec.Template.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			got = append(got, term.Preference.MatchExpressions...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: preferred node affinity (-want +got):\n%s", name, diff)
		}
	}
}

// TestPlacementExampleWorkloads applies the shipped examples, and checks that each is placed as its
// comment describes.
func TestPlacementExampleWorkloads(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(3, 8), live.Spot(6, 8)))
	s.Must(client.CoreV1().Namespaces().Delete(s.Ctx, s.Namespace, metav1.DeleteOptions{}))
	s.Namespace = "spot-example" // the cleanup deletes it like any other namespace
	k := kubectl{cp: controlPlane, cache: t.TempDir()}
	dir := filepath.Join(controlPlane.Root, "manifests", "overlays", "example-workloads")
	applyOverlay(t, k, dir, "created")

	s.Eventually(soon, s.haveSplits(map[string]split{
		"storefront": {OnDemand: 3, Spot: 7}, "payments": {OnDemand: 2, Spot: 1}, "admin": {OnDemand: 1}, "thumbnails": {Spot: 4},
		"queue": {OnDemand: 1, Spot: 2}, "report": {Spot: 3},
	}))
	applyOverlay(t, k, dir, "unchanged")
}

// kubectl runs the built kubectl as the administrator of a control plane.
type kubectl struct {
	cp    *lab.ControlPlane
	cache string // the discovery cache
}

func (k kubectl) run(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(filepath.Join(k.cp.Root, ".local", "bin", "kubectl"),
		append([]string{"--kubeconfig=" + k.cp.Kubeconfig, "--cache-dir=" + k.cache}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must returns the output of kubectl, and fails the test if kubectl fails.
func (k kubectl) must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := k.run(args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout
}

// built returns the objects of a kustomization.
func built(t *testing.T, k kubectl, dir string) []metav1.PartialObjectMetadata {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(k.must(t, "kustomize", dir)), 4096)
	var objects []metav1.PartialObjectMetadata
	for {
		var object metav1.PartialObjectMetadata
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// shippedDeployment reads the manifest of a Deployment in deployments.
func shippedDeployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(controlPlane.Root, "manifests", "components", deployments[name]))
	live.Must(t, err)
	var d appsv1.Deployment
	live.Must(t, yaml.UnmarshalStrict(data, &d))
	return &d
}
