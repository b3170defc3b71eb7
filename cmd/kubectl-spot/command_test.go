package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// clusterText is the log and the metrics of all pods.
const clusterText = "I1127 03:04:42.123456       1 evict.go:25] \"Evicted pod\" pod=\"shop/p\" node=\"n\" err=\"User \\\"jane\\\" cannot\\nmarker\"\n" +
	"spot_aware_scheduler_floor_deficit{namespace=\"shop\",workload=\"p\"} 1.5e+06\n"

// cluster returns the kubeconfig of an API server with one pod on one spot node in namespace shop,
// a StatefulSet that is scaled to 0, and more. The API server denies the resources in denied,
// separated by commas.
func cluster(t *testing.T, denied string, more ...runtime.Object) (kubeconfig string) {
	t.Helper()
	objects := append(more, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clustertest.Namespace}})
	objects = append(objects, clustertest.Objects("node n spot m5.xlarge/a\npod p n\nstatefulset idle 0")...)
	objects[len(objects)-2].(*v1.Pod).Labels["app"] = "web"
	server := listertest.Start(t, objects...)
	server.Text = clusterText
	if denied != "" {
		server.Deny = strings.Split(denied, ",")
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "shop"}}, {"name": "other", "context": {"cluster": "c", "namespace": "elsewhere"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func execute(t *testing.T, args ...string) (out, errOut string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	status = run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &o, ErrOut: &e})
	return o.String(), e.String(), status
}

const shipped = "--scheduler-config=../../config/scheduler-config.yaml"

// policyFile returns a file with the shipped configuration after one replacement.
func policyFile(t *testing.T, replaced, by string) string {
	t.Helper()
	text, err := os.ReadFile("../../config/scheduler-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, bytes.Replace(text, []byte(replaced), []byte(by), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// All nodes count, but -n limits the workloads to one namespace. The namespace of the context has
// no effect.
func TestSavingsOfNamespace(t *testing.T) {
	node, pod := clustertest.NewNode("od", "on-demand", "m5.xlarge/"), clustertest.NewPod("over")
	pod.Spec.Containers = nil // it requests nothing, so its cost is unknown
	pod.Namespace, pod.Spec.NodeName, pod.Annotations = "bank", "od", map[string]string{spot.MinOnDemandAnnotation: "0"}
	for line, want := range map[string]string{
		"savings -n bank":    "bank:over",
		"savings -n shop":    "shop:p",
		"savings":            ":p over",
		"savings -n shop -A": ":p over",
	} {
		out, err, status := execute(t, append(strings.Fields(line), shipped, "--kubeconfig="+cluster(t, "", node, pod),
			"-o", "jsonpath={.onDemandNodes} {.namespace}:{.items[*].name}")...)
		if status != 0 || out != "1 "+want || err != "" {
			t.Errorf("%s: exit status %d, %q, want %q\n%s", line, status, out, "1 "+want, err)
		}
	}
	for namespace, want := range map[string]string{
		"-n=bank": "pod/over   1     0     0     unknown   unknown   1     unknown\n",
		"-A":      "shop   pod/p      0     1     1     11.91     23.13     0     0.00\nbank   pod/over   1     0     0     unknown   unknown   1     unknown\n",
	} {
		out, _, _ := execute(t, "savings", namespace, "--no-headers", shipped, "--kubeconfig="+cluster(t, "", node, pod))
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s (-want +got):\n%s", namespace, diff)
		}
	}
	out, _, _ := execute(t, "savings", "-n", "shop", shipped, "--kubeconfig="+cluster(t, "", node, pod))
	if want := "No workload of namespace shop that opts in has replicas on on-demand beyond its floor that could run on spot.\n"; !strings.Contains(out, want) || strings.Contains(out, "bank") {
		t.Errorf("%q, want %q", out, want)
	}
}

// A workload of a kind that is not read is selected by the labels that all its pods have.
func TestSelectorOfPods(t *testing.T) {
	pod := func(name string, labels map[string]string) *v1.Pod {
		p := clustertest.NewPod(name, clustertest.OwnedBy("CloneSet", "db"))
		p.Spec.NodeName, p.Labels = "n", labels
		return p
	}
	leaving := pod("old-1", map[string]string{"app": "old"})
	clustertest.Terminate(leaving).OwnerReferences[0] = clustertest.OwnedBy("CloneSet", "old")
	kubeconfig := "--kubeconfig=" + cluster(t, "", leaving,
		pod("db-1", map[string]string{"app": "db", "hash": "1"}), pod("db-2", map[string]string{"app": "db", "hash": "2"}))
	for selector, want := range map[string]string{
		"app=db":          "cloneset.apps.kruise.io/db\n",
		"app=old":         "cloneset.apps.kruise.io/old\n", // it has no other pods
		"app=db,hash=1":   "",
		"app=web":         "pod/p\n",
		"app in (db,web)": "cloneset.apps.kruise.io/db\npod/p\n",
		"app notin (db)":  "pod/p\ncloneset.apps.kruise.io/old\n",
	} {
		out, err, status := execute(t, "status", "-l", selector, "-o", "name", shipped, kubeconfig)
		if status != 0 || out != want || err != "" {
			t.Errorf("-l %s: exit status %d, %q, want %q\n%s", selector, status, out, want, err)
		}
	}
}
