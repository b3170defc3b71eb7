package kubectl

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// Limits of every command on a cluster of 5,000 nodes and 50,000 pods, on 2 cores that it shares
// with the API server and etcd.
const (
	within    = 6 * time.Second
	mostBytes = 1 << 30
)

// perApp is the number of pods of a Deployment.
const perApp = 10

// TestScale uses a cluster of a tenth of the size of TestLongScale. The test creates the objects
// through the API, with pods already bound. Neither a scheduler nor a controller runs.
func TestScale(t *testing.T) { scale(t, 500) }

// scale creates nodes, with ten pods for each, and runs every command.
func scale(t *testing.T, nodes int) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cp, err := lab.Start(ctx, lab.Options{NoControllers: true})
	live.Must(t, err)
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	live.Must(t, fill(ctx, cp, nodes))
	config := cp.Root + "/config/scheduler-config.yaml"
	t.Logf("%d nodes and %d pods of %d bytes created in %s", nodes, nodes*10, podSize(t, cp), time.Since(began).Round(time.Second))
	for _, args := range [][]string{
		{"status", "-A"},
		{"nodes"},
		{"explain", "deploy/app-3", "-n", "team-3"},
		{"what-if", "--lose", "all-spot", "-A"},
		{"what-if", "--policy", config, "--lose", "zone=zone-a", "-A", "-o", "json"},
		{"savings"},
		{"assess"},
		{"assess", "--from", dump(t, cp)},
	} {
		// The best of three runs, to exclude other load on the machine.
		var best result
		for range 3 {
			r := spot(t, cp, append(args, "--scheduler-config", config)...)
			warned := r.err != "" && !strings.HasPrefix(r.err, "warning: the dump has no ") // it has no StatefulSets, for example
			if r.status != 0 || warned || r.out == "" {
				t.Fatalf("%q: exit status %d\n%s", args, r.status, r.err)
			}
			if best.took == 0 || r.took < best.took {
				best = r
			}
		}
		t.Logf("%-60s %6.2f s, %4d MiB, %d lines", strings.Join(args[:min(4, len(args))], " "), best.took.Seconds(), best.maxRSS>>20, strings.Count(best.out, "\n"))
		if best.took > within || best.maxRSS > mostBytes {
			t.Errorf("%q took %s and %d MiB, want at most %s and %d MiB", args, best.took, best.maxRSS>>20, within, int64(mostBytes)>>20)
		}
	}
}

// dump writes a dump of the cluster and returns its file.
func dump(t *testing.T, cp *lab.ControlPlane) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump.json")
	out, err := os.Create(file)
	live.Must(t, err)
	command := exec.CommandContext(t.Context(), filepath.Join(cp.Root, ".local", "bin", "kubectl"), "get",
		"nodes,pods,deployments,statefulsets,replicasets,jobs,daemonsets,poddisruptionbudgets,persistentvolumeclaims,persistentvolumes",
		"-A", "-o", "json", "--kubeconfig="+cp.Kubeconfig)
	command.Stdout = out
	live.Must(t, command.Run())
	live.Must(t, out.Close())
	info, err := os.Stat(file)
	live.Must(t, err)
	t.Logf("the dump has %d MiB", info.Size()>>20)
	return file
}

// podSize returns the size of a pod in the API server's response, in bytes.
func podSize(t *testing.T, cp *lab.ControlPlane) int {
	t.Helper()
	config := cp.Config()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	live.Must(t, err)
	data, err := client.CoreV1().RESTClient().Get().Namespace("team-3").Resource("pods").Name("app-3-1-1").Do(t.Context()).Raw()
	live.Must(t, err)
	return len(data)
}

// fill creates nodes in ten pools, and Deployments with pods bound to the nodes. A third of the
// nodes is on-demand.
func fill(ctx context.Context, cp *lab.ControlPlane, nodes int) error {
	config := cp.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var specs []lab.NodeSpec
	types := []string{"m5.xlarge", "c5.xlarge", "r5.xlarge"}
	for i := range nodes {
		spec := lab.NodeSpec{
			Name: fmt.Sprintf("node-%d", i), Capacity: lab.Spot, InstanceType: types[i/3%3], Zone: fmt.Sprintf("zone-%c", 'a'+i%3), CPU: "16", Pods: 110,
			Labels: map[string]string{}, Annotations: map[string]string{},
		}
		if i%3 == 0 {
			spec.Capacity = lab.OnDemand
		}
		for j := range 15 { // typical of clouds and their agents
			spec.Labels[fmt.Sprintf("example.com/label-%d", j)] = fmt.Sprintf("value-%d", j)
			spec.Annotations[fmt.Sprintf("example.com/annotation-%d", j)] = strings.Repeat("v", 60)
		}
		specs = append(specs, spec)
	}
	if err := cp.CreateNodes(ctx, specs...); err != nil {
		return err
	}
	namespaces := max(1, nodes/100)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range namespaces {
		ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%d", i)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		sa := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no controller manager creates it
		if _, err := client.CoreV1().ServiceAccounts(ns.Name).Create(ctx, sa, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range nodes * 10 / perApp {
		group.Go(func() error {
			return deploy(ctx, client, fmt.Sprintf("team-%d", i%namespaces), fmt.Sprintf("app-%d", i), i, nodes)
		})
	}
	return group.Wait()
}

// deploy creates a Deployment with its ReplicaSet and pods, of about 2.5 KB each.
func deploy(ctx context.Context, client kubernetes.Interface, namespace, name string, i, nodes int) error {
	template := live.PodTemplate(name)
	container := &template.Spec.Containers[0]
	for j := range 8 {
		container.Env = append(container.Env, v1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", j), Value: fmt.Sprintf("value-%d-of-the-environment", j)})
	}
	container.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ready"}}}}
	for j := range 2 {
		volume := fmt.Sprintf("volume-%d", j)
		template.Spec.Volumes = append(template.Spec.Volumes, v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: "/" + volume})
	}
	template.Annotations = map[string]string{"example.com/checksum": strings.Repeat("0", 64), "example.com/scrape": "true"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](perApp), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	rs, err := client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-1", Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](perApp), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for j := range perApp {
		pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Name = fmt.Sprintf("%s-1-%d", name, j)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		// Every 50th workload has a waiting pod.
		if j > 0 || i%50 != 0 {
			pod.Spec.NodeName = fmt.Sprintf("node-%d", (i*perApp+j*7)%nodes)
		}
		if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
