//go:build long

package owners

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	kueueNamespace = "kueue-system"
	kueueService   = "kueue-webhook-service"
	queueLabel     = "kueue.x-k8s.io/queue-name"
)

// startKueue installs the manifests of the release, except its Deployment and rights, and starts
// the real Kueue with the configuration of the release and other addresses. Kueue generates the
// certificate of its webhooks. The Service of the webhooks has the type ExternalName, so that the
// API server finds a process on loopback by the name in that certificate.
func startKueue(t *testing.T) {
	t.Helper()
	webhooks, err := controlPlane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	health, err := controlPlane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	host, portText, err := net.SplitHostPort(webhooks)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	var wanted, hooks []*unstructured.Unstructured
	config := map[string]any{}
	for _, object := range manifests(t, "kueue") {
		switch object.GetKind() {
		case "ConfigMap":
			text, _, _ := unstructured.NestedString(object.Object, "data", "controller_manager_config.yaml")
			if err := yaml.Unmarshal([]byte(text), &config); err != nil {
				t.Fatal(err)
			}
			continue
		case "Service":
			if object.GetName() != kueueService {
				continue
			}
			object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": host}
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			hooks = append(hooks, object)
		case "Namespace", "CustomResourceDefinition", "Secret":
		default:
			continue
		}
		setServicePort(object.Object, port)
		wanted = append(wanted, object)
	}
	t.Cleanup(func() { // no pod can be created while Kueue does not answer
		for _, object := range hooks {
			if err := objects.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	install(t, wanted)

	certificates := t.TempDir()
	config["health"] = map[string]any{"healthProbeBindAddress": health}
	config["metrics"] = map[string]any{"bindAddress": "0"}
	config["webhook"] = map[string]any{"host": host, "port": port, "certDir": certificates}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	config["featureGates"] = map[string]any{"VisibilityOnDemand": false} // it writes to /visibility
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kueue.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	go copyCertificate(t.Context(), certificates)
	startProgram(t, "http://"+health+"/readyz", "kueue", "--config="+file, "--kubeconfig="+controlPlane.Kubeconfig)
}

// setServicePort sets the port of each reference to Kueue's Service in a webhook.
func setServicePort(value any, port int64) {
	switch value := value.(type) {
	case map[string]any:
		if value["name"] == kueueService && value["path"] != nil {
			value["port"] = port
		}
		for _, inner := range value {
			setServicePort(inner, port)
		}
	case []any:
		for _, inner := range value {
			setServicePort(inner, port)
		}
	}
}

// copyCertificate writes the certificate that Kueue generates to its folder, as a kubelet writes
// the volume of a Secret.
func copyCertificate(ctx context.Context, folder string) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		secret, err := kube.CoreV1().Secrets(kueueNamespace).Get(ctx, "kueue-webhook-server-cert", metav1.GetOptions{})
		if err != nil || len(secret.Data["tls.crt"]) == 0 {
			continue
		}
		written := true
		for _, name := range []string{"ca.crt", "tls.key", "tls.crt"} { // Kueue waits for tls.crt
			written = written && os.WriteFile(filepath.Join(folder, name), secret.Data[name], 0o600) == nil
		}
		if written {
			return
		}
	}
}

// queues creates a flavor for each capacity type, which selects nodes by a label, and three queues:
// one for each flavor, and "both", which has two CPUs of spot and prefers it.
func (s *scenario) queues(label string) {
	s.Helper()
	quota := func(flavor string, cpus int) string {
		return fmt.Sprintf("{name: %s-%s, resources: [{name: cpu, nominalQuota: %d}]}", flavor, s.Namespace, cpus)
	}
	text := ""
	for _, capacity := range []string{lab.Spot, lab.OnDemand} {
		text += fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: %s-%s}
spec: {nodeLabels: {%s: %s}}
---`, capacity, s.Namespace, label, capacity)
	}
	for queue, flavors := range map[string]string{
		lab.Spot: quota(lab.Spot, 20), lab.OnDemand: quota(lab.OnDemand, 20),
		"both": quota(lab.Spot, 2) + ", " + quota(lab.OnDemand, 20),
	} {
		text += fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[1]s-%[2]s}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [%[3]s]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[1]s, namespace: %[2]s}
spec: {clusterQueue: %[1]s-%[2]s}
---`, queue, s.Namespace, flavors)
	}
	for _, object := range decode(s.T, text) {
		s.Must(objects.Create(s.Ctx, object))
	}
}

// deploy creates a Deployment in a queue.
func (s *scenario) deploy(name, queue string, replicas int32) {
	s.Helper()
	_, err := kube.AppsV1().Deployments(s.Namespace).Create(s.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{queueLabel: queue}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: live.PodTemplate(name),
		},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// job creates a Job in a queue. Its pods run until the test ends.
func (s *scenario) job(name, queue string, parallelism int32) {
	s.Helper()
	template := live.PodTemplate(name)
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	_, err := kube.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{queueLabel: queue}},
		Spec:       batchv1.JobSpec{Parallelism: &parallelism, Completions: &parallelism, Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// runsOnFlavor fails the test unless Kueue selected a capacity type for each pod and the pod's node
// has it.
func (s *scenario) runsOnFlavor(label string) {
	s.Helper()
	pods, err := live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	for _, pod := range pods {
		node, err := kube.CoreV1().Nodes().Get(s.Ctx, pod.Spec.NodeName, metav1.GetOptions{})
		s.Must(err)
		if flavor := pod.Spec.NodeSelector[label]; flavor == "" || node.Labels[label] != flavor {
			s.Errorf("pod %s: Kueue chose the flavor %q, and the pod runs on %s", pod.Name, flavor, node.Name)
		}
	}
}

// TestLongKueue runs Deployments and Jobs in the queues of the real Kueue. Each pod runs on the
// flavor that Kueue chose, whatever the floor of its workload is.
func TestLongKueue(t *testing.T) {
	startKueue(t)
	for name, mode := range map[string]bool{"plain": false, "autoscaler mode": true} {
		for _, label := range []string{lab.CapacityLabel, karpenterLabel} {
			t.Run(name+", "+label, func(t *testing.T) {
				nodes := append(live.OnDemand(2, 8), live.Spot(2, 8)...)
				for i := range nodes {
					nodes[i].Labels = map[string]string{karpenterLabel: nodes[i].Capacity}
				}
				s := start(t, mode, nodes...)
				s.queues(label)
				want := map[string]split{
					"web-spot": {Spot: 3}, "web-on-demand": {OnDemand: 3}, "web-both": {Spot: 2, OnDemand: 2},
					"job-spot": {Spot: 2}, "job-on-demand": {OnDemand: 2},
				}
				began := time.Now()
				s.deploy("web-spot", lab.Spot, 3)
				s.deploy("web-on-demand", lab.OnDemand, 3)
				s.deploy("web-both", "both", 4)
				s.job("job-spot", lab.Spot, 2)
				s.job("job-on-demand", lab.OnDemand, 2)
				for app, split := range want {
					s.Eventually(2*soon, s.HasReadySplit(app, split))
				}
				s.runsOnFlavor(label)
				var longest time.Duration
				for _, r := range since(s.Seen, began) {
					longest = max(longest, r.Ready.Sub(r.Created))
				}
				t.Logf("14 pods run on the flavors that Kueue chose; the slowest was ready %s after its creation", longest.Round(10*time.Millisecond))
			})
		}
	}
}
