//go:build long

package owners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
		text += s.queue(queue, flavors)
	}
	for _, object := range decode(s.T, text) {
		s.Must(objects.Create(s.Ctx, object))
	}
}

// queue returns the manifests of a queue with these flavors. The ClusterQueue is the first.
func (s *scenario) queue(name, flavors string) string {
	return fmt.Sprintf(`
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
---`, name, s.Namespace, flavors)
}

// deploy creates a Deployment in a queue, with a floor of 1 unless annotations has another.
func (s *scenario) deploy(name, queue string, replicas int32, annotations map[string]string) {
	s.Helper()
	_, err := kube.AppsV1().Deployments(s.Namespace).Create(s.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{queueLabel: queue}, Annotations: annotations},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: s.template(name),
		},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// job creates a Job in a queue. Its pods run until the test ends.
func (s *scenario) job(name, queue string, parallelism int32) {
	s.Helper()
	template := s.template(name)
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
	for name, mode := range map[string]string{"plain": "", "autoscaler mode": live.AutoscalerMode, "any scheduler": live.AnyScheduler} {
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
				s.deploy("web-spot", lab.Spot, 3, nil)
				s.deploy("web-on-demand", lab.OnDemand, 3, nil)
				s.deploy("web-both", "both", 4, nil)
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

// TestLongKueueQuota: the gate of a pod does not expire while the pod waits for quota, and the
// controller decides after the real Kueue has admitted the pod.
func TestLongKueueQuota(t *testing.T) {
	const kueueGate, gateTimeout = "kueue.x-k8s.io/admission", 30 * time.Second
	startKueue(t)
	for name, mode := range map[string]string{"autoscaler mode": live.AutoscalerMode, "any scheduler": live.AnyScheduler} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode, append(live.OnDemand(2, 8), live.Spot(2, 8)...)...)
			flavor := fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any-%s}
---`, s.Namespace)
			flavors := func(cpus int) string {
				return fmt.Sprintf("{name: any-%s, resources: [{name: cpu, nominalQuota: %d}]}", s.Namespace, cpus)
			}
			for _, object := range decode(t, flavor+s.queue("any", flavors(0))) {
				s.Must(objects.Create(s.Ctx, object))
			}
			setQuota := func(cpus int) {
				queue := decode(t, s.queue("any", flavors(cpus)))[0]
				spec, err := json.Marshal(map[string]any{"spec": queue.Object["spec"]})
				s.Must(err)
				s.patch(queue, string(spec), "")
			}
			// haveGates returns a check that so many pods wait for Kueue and for the controller, in
			// this order, and that so many others wait only for the controller.
			haveGates := func(queued, admitted int) func() error {
				return func() error {
					pods, err := live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{})
					got := [2]int{}
					for _, pod := range pods {
						gates := pod.Spec.SchedulingGates
						switch {
						case !live.Gated(&pod):
							err = errors.Join(err, fmt.Errorf("%s has the gates %v, want %s", pod.Name, gates, live.GateName))
						case len(gates) == 1:
							got[1]++
						case (gates[0].Name == kueueGate) == (pod.Name == "single"):
							got[0]++
						}
					}
					if want := [2]int{queued, admitted}; err == nil && got != want {
						err = fmt.Errorf("%d pods wait for both and the controller, want %d", got, want)
					}
					return err
				}
			}
			s.deploy("web", "any", 6, map[string]string{minOnDemand: "2"})
			// The gates of this pod have the other order.
			single := s.template("single")
			single.Labels[queueLabel], single.Spec.SchedulingGates = "any", []v1.PodSchedulingGate{{Name: kueueGate}}
			_, err := kube.CoreV1().Pods(s.Namespace).Create(s.Ctx, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "single", Labels: single.Labels}, Spec: single.Spec,
			}, metav1.CreateOptions{})
			s.Must(err)
			s.Eventually(soon, haveGates(7, 0))
			s.RequireThroughout(gateTimeout+15*time.Second, haveGates(7, 0))

			// Kueue admits three pods, and the timeout of their last gate begins.
			s.Must(s.Controller.Pause())
			setQuota(3)
			s.Eventually(soon, haveGates(4, 3))
			s.RequireThroughout(5*time.Second, haveGates(4, 3))
			s.Must(s.Controller.Resume())
			s.Eventually(soon, func() error {
				splits, err := s.Splits()
				if web := splits["web"]; err == nil && (web.OnDemand != min(2, 6-web.Waiting) || web.Waiting+splits["single"].Waiting != 4) {
					err = fmt.Errorf("%+v, want 3 pods, and web with 2 on on-demand if it has 2", splits)
				}
				return err
			})
			s.job("job", "any", 2)
			setQuota(20)
			s.Eventually(2*soon, s.HaveReadySplits(map[string]split{"web": {OnDemand: 2, Spot: 4}, "single": {OnDemand: 1}, "job": {Spot: 2}}))
			for _, pod := range s.Seen.Pods("") {
				if strings.HasPrefix(pod.Assigned, "none:") {
					t.Errorf("%s is assigned %q", pod.Name, pod.Assigned)
				}
			}
		})
	}
}
