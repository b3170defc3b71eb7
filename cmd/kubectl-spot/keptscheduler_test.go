package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// controllerOnly returns the objects of an installation without our scheduler, and a pod that keeps
// its scheduler because of the label of its namespace. The floor of the policy is 2.
func controllerOnly(t *testing.T, config string) []runtime.Object {
	t.Helper()
	policy, err := os.ReadFile(policyFile(t, "minOnDemand: 1\n", "minOnDemand: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	configMap := func(name, key, text string) *v1.ConfigMap {
		return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{key: text}}
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller", Labels: map[string]string{
		"app.kubernetes.io/name": "spot-controller", "app.kubernetes.io/component": "controller"}}}
	container := v1.Container{Args: []string{"--config=/c/controller-config.yaml", "--scheduler-config=/s/scheduler-config.yaml"}}
	for path, name := range map[string]string{"/c": "spot-controller-config", "/s": "spot-aware-scheduler-config"} {
		container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: name, MountPath: path})
		d.Spec.Template.Spec.Volumes = append(d.Spec.Template.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}})
	}
	d.Spec.Template.Spec.Containers = []v1.Container{container}
	pod := clustertest.NewPod("kept")
	pod.Namespace, pod.Spec.NodeName, pod.Spec.SchedulerName = "bank", "n", v1.DefaultSchedulerName
	const head = "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"
	return append(clustertest.Objects("namespace bank keep-scheduler"), pod, d,
		configMap("spot-controller-config", "controller-config.yaml", head+config),
		configMap("spot-aware-scheduler-config", "scheduler-config.yaml", string(policy)))
}

// Every command reads the policy from the ConfigMap of the controller. A label counts unless
// gating.enabled of the controller is known to be false.
func TestKeptScheduler(t *testing.T) {
	const kept, ours = "bank/kept ", "shop/p "
	for name, test := range map[string]struct {
		config, denied string
		want           string
		wantErr        string // on standard error
	}{
		"enabled":                     {config: "gating: {enabled: true}", want: kept + ours},
		"disabled":                    {config: "gating: {enabled: false}", want: ours + kept}, // with the reason
		"disabled, namespaces denied": {config: "gating: {enabled: false}", denied: "namespaces", want: ours},
		"namespaces denied": {config: "gating: {enabled: true}", denied: "namespaces", want: ours,
			wantErr: `namespaces is forbidden: user cannot list resource "namespaces" in API group "": which pods opt in by the label of their namespace is unknown`},
		"configuration denied": {config: "gating: {enabled: false}", denied: "deployments/kube-system", want: kept + ours,
			wantErr: "gating.enabled is assumed, because pods opt in with the label spot-aware-scheduler.io/opt-in"},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := "--kubeconfig=" + cluster(t, test.denied, controllerOnly(t, test.config)...)
			out, errOut, status := execute(t, "status", "-A", "-o", `jsonpath={range .items[*]}{.namespace}/{.name} {end}`, kubeconfig)
			if out != test.want || (status == 0) != (test.wantErr == "") || !strings.Contains(errOut, test.wantErr) {
				t.Errorf("exit status %d, %q, want %q\n%s", status, out, test.want, errOut)
			}
		})
	}
	// Without an installation, only assess is complete.
	kubeconfig := "--kubeconfig=" + cluster(t, "", controllerOnly(t, "")[:2]...)
	for command, want := range map[string]int{"assess": 0, "nodes": exitPartial} {
		if out, errOut, status := execute(t, command, "-n", "bank", shipped, kubeconfig); status != want || strings.Contains(errOut, "gating.enabled") != (want != 0) {
			t.Errorf("%s: exit status %d, want %d\n%s%s", command, status, want, out, errOut)
		}
	}
	kubeconfig = "--kubeconfig=" + cluster(t, "", controllerOnly(t, "gating: {enabled: true}")...)
	got := map[string]string{}
	for _, line := range []string{
		"explain pod/kept -n bank -o jsonpath={.scheduler}:{.floor}:{.settings[0].value}",
		"what-if --lose all-spot -n bank -o jsonpath={.workloads[*].effect}",
		"nodes -o jsonpath={.items[*].belowFloor}",
		"savings -n bank -o jsonpath={.items[*].floor}",
		"assess -n bank -o jsonpath={.items[*].class}",
	} {
		out, errOut, status := execute(t, append(strings.Fields(line), kubeconfig)...)
		if status != 0 {
			t.Errorf("%s: exit status %d\n%s", line, status, errOut)
		}
		got[strings.Fields(line)[0]] = out
	}
	want := map[string]string{"explain": "default-scheduler:1:2", "what-if": "ToZero", "nodes": "2", "savings": "1", "assess": "OptedIn"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A dump need not have namespaces, but their labels count.
func TestDumpOfNamespaces(t *testing.T) {
	for cluster, want := range map[string]string{
		assessed: "Now WithChange OnDemand No", "namespace shop keep-scheduler\n" + assessed: "OptedIn OptedIn OptedIn OptedIn",
	} {
		out, errOut, status := execute(t, "assess", "--from", dumpFile(t, cluster, nil), "-o", "jsonpath={.items[*].class}")
		if status != 0 || out != want || strings.Contains(errOut, "namespaces") {
			t.Errorf("exit status %d, %q, want %q\n%s", status, out, want, errOut)
		}
	}
}
