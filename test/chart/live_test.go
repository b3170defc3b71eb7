package chart

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The selectors of all objects of a release, and of all objects of the product.
const (
	ofRelease = "app.kubernetes.io/instance=" + release
	ofProduct = "app.kubernetes.io/part-of=spot-aware-scheduler"
)

// cluster is a control plane without objects of the product.
type cluster struct {
	*testing.T
	*lab.ControlPlane
	client kubernetes.Interface
	// program is helm or helm3.
	program string
}

// TestRelease installs the chart with all parts that run beside each other, changes its policy,
// rolls the change back, and uninstalls it. Simulated kubelets report the pods of the programs as
// ready. The namespace of the release is not kube-system.
func TestRelease(t *testing.T) {
	c := startCluster(t)
	for _, program := range []string{"helm", "helm3"} {
		t.Run(program, func(t *testing.T) {
			c := &cluster{T: t, ControlPlane: c.ControlPlane, client: c.client, program: program}
			c.wantRelease()
		})
	}
}

// wantRelease fails unless one program can install and change a release, as TestRelease describes.
func (c *cluster) wantRelease() {
	c.Helper()
	t := c.T
	rollback := map[string]string{"helm": "--rollback-on-failure", "helm3": "--atomic"}[c.program]
	c.helm("lint", "--strict", "--set=image.registry=localhost", chart)
	all := values{
		"controller":     values{"admission": "policy", "config": values{"gating": values{"enabled": true}}},
		"monitoring":     values{"enabled": true, "labels": values{"release": "prometheus"}},
		"namespaceOptIn": values{"enabled": true},
		"viewer":         values{"enabled": true, "group": "platform"},
		"operator":       values{"enabled": true, "group": "platform"},
		"gang":           values{"enabled": true},
	}
	flags := []string{"--namespace=spot-system", "--wait", "--timeout=2m", "--values=" + file(t, all)}

	c.helm(append([]string{"install", release, chart, "--create-namespace"}, flags...)...)
	c.wantFloor("spot-system", "1")
	if got := len(c.objects(ofRelease)); got < 40 {
		t.Errorf("the release has %d objects, expected at least 40", got)
	}
	c.wantOptIn()
	c.wantRefusals("spot-system", "the Helm release "+release)

	c.helm(append([]string{"upgrade", release, chart, "--set=policy.minOnDemand=30%"}, flags...)...)
	c.wantFloor("spot-system", "30%")
	_, err := command(t, c.Kubeconfig, c.program, append([]string{"upgrade", release, chart, "--set=policy.minOnDemnd=1"}, flags...)...)
	if err == nil || !strings.Contains(err.Error(), "minOnDemnd") {
		t.Errorf("upgrade with policy.minOnDemnd: %v, want an error about this name", err)
	}
	c.wantFloor("spot-system", "30%")
	// Pods that fit no node represent replicas that do not become ready.
	if _, err := command(t, c.Kubeconfig, c.program, append(append([]string{"upgrade", release, chart}, flags...),
		"--set=policy.minOnDemand=2,podTemplate.spec.nodeSelector.none=x", rollback, "--timeout=10s")...); err == nil {
		t.Error("an upgrade with pods that fit no node succeeded, want an error")
	}
	c.wantFloor("spot-system", "30%")
	c.helm("rollback", release, "1", "--namespace=spot-system", "--wait", "--timeout=2m")
	c.wantFloor("spot-system", "1")

	if _, err := c.cleanup(); err == nil || !strings.Contains(err.Error(), "Deployment spot-system/spot-controller exists") {
		t.Errorf("kubectl spot cleanup of a running installation: %v, want a refusal", err)
	}
	c.helm("uninstall", release, "--namespace=spot-system", "--wait", "--timeout=2m")
	c.wantNoObjects()
	if out, err := c.cleanup(); err != nil || out != "Nothing is left.\n" {
		t.Errorf("kubectl spot cleanup after uninstall: %v, %q", err, out)
	}
	secrets, err := c.client.CoreV1().Secrets("spot-system").List(t.Context(), metav1.ListOptions{})
	live.Must(t, err)
	if len(secrets.Items) > 0 {
		t.Errorf("after uninstall helm's namespace has %d Secrets, want none", len(secrets.Items))
	}

	t.Run("a release takes over what kubectl applied", func(t *testing.T) {
		c := &cluster{T: t, ControlPlane: c.ControlPlane, client: c.client, program: c.program}
		c.kubectl("apply", "--kustomize="+filepath.Join(c.Root, "manifests", "base"))
		flags := []string{"--namespace=kube-system", "--take-ownership", "--wait", "--timeout=2m", "--set=image.registry=localhost"}
		if c.program == "helm" { // Helm 3 has no server-side apply, which reports conflicts
			flags = append(flags, "--force-conflicts")
		}
		c.helm(append([]string{"install", release, chart}, flags...)...)
		c.wantFloor(metav1.NamespaceSystem, "1")
		c.kubectl("--namespace=kube-system", "delete", "configmaps", "--selector="+ofProduct+",app.kubernetes.io/managed-by!=Helm")
		c.wantFloor(metav1.NamespaceSystem, "1")
		c.helm("uninstall", release, "--namespace=kube-system", "--wait", "--timeout=2m")
		c.wantNoObjects()
	})
}

// startCluster returns a control plane with two nodes, the stock scheduler and the kinds of the
// Prometheus operator.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cp, err := lab.Start(ctx, lab.Options{PodStartup: 50 * time.Millisecond, APIServerFlags: live.MutatingPolicies().Flags})
	live.Must(t, err)
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(cp.Config())
	live.Must(t, err)
	c := &cluster{T: t, ControlPlane: cp, client: client}
	_, err = cp.StartStockScheduler(ctx)
	live.Must(t, err)
	live.Must(t, cp.CreateNodes(ctx, live.OnDemand(2, 4)...))
	// The lab applied these files itself.
	for _, name := range []string{
		"scheduler/serviceaccount.yaml", "scheduler/rbac.yaml", "scheduler/admissionpolicy.yaml", "controller/budgets-admissionpolicy.yaml",
	} {
		c.kubectl("delete", "--filename="+filepath.Join(cp.Root, "manifests", "components", name))
	}
	for _, kind := range []string{"servicemonitors", "prometheusrules"} {
		c.kubectl("create", "--filename="+filepath.Join(cp.Root, "test", "integration", "testdata", kind+".yaml"))
	}
	live.Must(t, live.Until(ctx, live.Soon, func() error {
		list, err := client.Discovery().ServerResourcesForGroupVersion("monitoring.coreos.com/v1")
		if err == nil && len(list.APIResources) < 2 {
			err = errors.New("the kinds of the Prometheus operator are not served yet")
		}
		return err
	}))
	return c
}

func (c *cluster) helm(args ...string) {
	c.Helper()
	_, err := command(c.T, c.Kubeconfig, c.program, args...)
	live.Must(c.T, err)
}

// cleanup returns the answer of kubectl spot cleanup.
func (c *cluster) cleanup() (string, error) {
	return command(c.T, c.Kubeconfig, filepath.Join("..", "..", "bin", "kubectl-spot"), "cleanup", "--yes")
}

func (c *cluster) kubectl(args ...string) {
	c.Helper()
	_, err := command(c.T, c.Kubeconfig, "kubectl", append(args, "--cache-dir="+c.TempDir())...)
	live.Must(c.T, err)
}

// wantFloor fails unless both Deployments in the namespace are ready and mount one configuration of
// the scheduler, with this default floor.
func (c *cluster) wantFloor(namespace, want string) {
	c.Helper()
	got := map[string]string{}
	for _, name := range []string{"spot-aware-scheduler", "spot-controller"} {
		d, err := c.client.AppsV1().Deployments(namespace).Get(c.Context(), name, metav1.GetOptions{})
		live.Must(c.T, err)
		if d.Status.ReadyReplicas != 2 || d.Status.UpdatedReplicas != 2 {
			c.Errorf("%s has %d ready and %d updated replicas, want 2", name, d.Status.ReadyReplicas, d.Status.UpdatedReplicas)
		}
		for _, volume := range d.Spec.Template.Spec.Volumes {
			if volume.ConfigMap == nil || !strings.HasPrefix(volume.ConfigMap.Name, "spot-aware-scheduler-config-") {
				continue
			}
			files, err := c.client.CoreV1().ConfigMaps(namespace).Get(c.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
			live.Must(c.T, err)
			policy, _, err := config.ReadPolicy([]byte(files.Data["scheduler-config.yaml"]), config.DefaultProfile)
			live.Must(c.T, err)
			got[name] = policy.Defaults.MinOnDemand.String()
		}
	}
	if diff := cmp.Diff(map[string]string{"spot-aware-scheduler": want, "spot-controller": want}, got); diff != "" {
		c.Errorf("floors in the mounted configurations (-want +got):\n%s", diff)
	}
}

// wantRefusals fails unless a second installation is refused, by helm and by kubectl, with an error
// that names the first.
func (c *cluster) wantRefusals(namespace, by string) {
	c.Helper()
	base := filepath.Join(c.Root, "manifests", "base")
	const wayOut = ", and a cluster can have one installation: remove it first, or delete ClusterRoleBinding spot-"
	install := slices.Clip([]string{c.program, "install", "second", chart, "--set=image.registry=localhost"})
	for _, second := range []struct {
		want    string
		program []string
	}{
		{"installed in namespace " + namespace + " by " + by, append(install, "--namespace=second", "--create-namespace")},
		{"installed in namespace " + namespace + " by " + by, append(install, "--namespace="+namespace)},
		{"installed in namespace " + namespace + wayOut, []string{"kubectl", "apply", "--dry-run=server", "--kustomize=" + base}},
	} {
		live.Must(c.T, live.Until(c.Context(), live.Soon, func() error { // a policy takes effect some time after its creation
			_, err := command(c.T, c.Kubeconfig, second.program[0], second.program[1:]...)
			if err == nil || !strings.Contains(err.Error(), second.want) {
				return fmt.Errorf("%s: %w, want an error with %q", strings.Join(second.program, " "), err, second.want)
			}
			return nil
		}))
	}
	if namespaces, err := c.client.CoreV1().Secrets("second").List(c.Context(), metav1.ListOptions{}); err != nil || len(namespaces.Items) > 0 {
		c.Errorf("the refused release left %d Secrets: %v", len(namespaces.Items), err)
	}
}

// wantOptIn fails unless the API server sets the scheduler and the gate of a new pod in an opted-in
// namespace, and rejects a mark of the controller by another user.
func (c *cluster) wantOptIn() {
	c.Helper()
	namespace := "shop-" + c.program
	_, err := c.client.CoreV1().Namespaces().Create(c.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"spot-aware-scheduler.io/opt-in": "true"},
	}}, metav1.CreateOptions{})
	live.Must(c.T, err)
	template := live.PodTemplate("web")
	template.Spec.SchedulerName = ""
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: template.Spec}
	marked := pod.DeepCopy()
	marked.Annotations = map[string]string{"spot-aware-scheduler.io/released": "x"}
	// A policy takes effect some time after its creation.
	live.Must(c.T, live.Until(c.Context(), live.Soon, func() error {
		created, err := c.client.CoreV1().Pods(namespace).Create(c.Context(), pod, dryRun)
		if err != nil {
			return err
		}
		if s := created.Spec; s.SchedulerName != "spot-aware-scheduler" || len(s.SchedulingGates) != 1 {
			return fmt.Errorf("scheduler %q and gates %v, want spot-aware-scheduler and its gate", s.SchedulerName, s.SchedulingGates)
		}
		copied, err := c.client.CoreV1().Pods(namespace).Create(c.Context(), marked, dryRun)
		if err != nil || len(copied.Annotations) > 0 {
			return fmt.Errorf("a copy of a released pod: %v, annotations %v, want none", err, copied.Annotations)
		}
		return nil
	}))
}

// wantNoObjects fails unless all objects of the product are deleted soon. Kubernetes deletes pods,
// ReplicaSets and EndpointSlices some time after their owners.
func (c *cluster) wantNoObjects() {
	c.Helper()
	live.Must(c.T, live.Until(c.Context(), time.Minute, func() error {
		if left := append(c.objects(ofRelease), c.objects(ofProduct)...); len(left) > 0 {
			return fmt.Errorf("after uninstall these objects are left: %s", strings.Join(left, ", "))
		}
		return nil
	}))
}

// objects returns all objects with these labels, of all kinds that the API server can list.
func (c *cluster) objects(selector string) []string {
	c.Helper()
	client, err := metadata.NewForConfig(c.Config())
	live.Must(c.T, err)
	lists, err := discovery.ServerPreferredResources(c.client.Discovery())
	live.Must(c.T, err)
	kinds := 0
	var found []string
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		live.Must(c.T, err)
		for _, resource := range list.APIResources {
			kinds++
			items, err := client.Resource(version.WithResource(resource.Name)).List(c.Context(), metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				c.Fatalf("listing %s: %v", resource.Name, err)
			}
			for _, item := range items.Items {
				found = append(found, fmt.Sprintf("%s %s/%s", resource.Name, item.Namespace, item.Name))
			}
		}
	}
	if kinds < 40 {
		c.Fatalf("found %d kinds, expected at least 40", kinds)
	}
	return found
}
