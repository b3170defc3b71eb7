package main

import (
	"bytes"
	"fmt"
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

// cluster returns the kubeconfig of an API server with one pod on one spot node in namespace shop,
// a StatefulSet that is scaled to 0, and more. The API server denies the resources in denied,
// separated by commas.
func cluster(t *testing.T, denied string, more ...runtime.Object) (kubeconfig string) {
	t.Helper()
	objects := append(more, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clustertest.Namespace}})
	objects = append(objects, clustertest.Objects("node n spot m5.xlarge/a\npod p n\nstatefulset idle 0")...)
	objects[len(objects)-2].(*v1.Pod).Labels["app"] = "web"
	server := listertest.Start(t, objects...)
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

func TestWrongUsage(t *testing.T) {
	bad := policyFile(t, "minOnDemand: 1\n", "minOnDemand: 130%\n")
	for line, want := range map[string]struct {
		status int
		err    string
	}{
		"--nonsense":                        {exitUsage, "unknown flag: --nonsense"},
		"nonsense":                          {exitUsage, `unknown command "nonsense" for "kubectl spot"`},
		"status now":                        {exitUsage, `unknown command "now" for "kubectl spot status"`},
		"status -o nonsense":                {exitUsage, `output format "nonsense", allowed formats are`},
		"explain":                           {exitUsage, "accepts between 1 and 2 arg(s), received 0"},
		"explain web":                       {exitUsage, `invalid value "web": expected KIND/NAME`},
		"explain deploy/web/x":              {exitUsage, `invalid value "deploy/web/x": expected KIND/NAME`},
		"explain deploy/":                   {exitUsage, `invalid value "deploy/": expected KIND/NAME`},
		"what-if":                           {exitUsage, "--lose or --policy is required"},
		"what-if --lose everything":         {exitUsage, `--lose: invalid value "everything": expected all-spot, pool=TYPE/ZONE, zone=ZONE or node=NAME`},
		"what-if --policy /nowhere":         {exitFailed, "configuration file: open /nowhere"},
		"what-if --policy " + bad:           {exitFailed, `args.minOnDemand: Invalid value: "130%"`},
		"status --scheduler-config " + bad:  {exitFailed, `args.minOnDemand: Invalid value: "130%"`},
		"status --profile other " + shipped: {exitFailed, `expected a profile whose schedulerName is "other"`},
		"savings --prices /nowhere":         {exitFailed, "price list: open /nowhere"},
		"status -l a=b=c":                   {exitUsage, "--selector: "},
		"nodes -l ,":                        {exitUsage, "--selector: "},
		"status --context nonsense":         {exitFailed, "context was not found for specified context: nonsense"},
		"explain deploy/web " + shipped:     {exitFailed, "Deployment shop/web: not found, or it has no pods"},
		"what-if --lose zone=z " + shipped:  {exitFailed, "--lose zone=z: no node matches; possible values: zone=a"},
	} {
		args := append(strings.Fields(line), "--kubeconfig="+cluster(t, ""))
		if out, err, status := execute(t, args...); status != want.status || !strings.Contains(err, want.err) || out != "" {
			t.Errorf("%s: exit status %d, %q%s, want %d and %q", line, status, out, err, want.status, want.err)
		}
	}
}

func TestOutput(t *testing.T) {
	for line, want := range map[string]string{
		"status": "WORKLOAD   STATE        DESIRED   FLOOR   ON-DEMAND   SPOT   WAITING   WITHOUT SPOT   WITHOUT POOL   REASONS\n" +
			"pod/p      BelowFloor   1         1       0           1      0         0              0              0 of the floor of 1 on on-demand; 1 on spot beyond the budget of 0\n",
		"status -A --no-headers":                              "shop   pod/p   BelowFloor   1     1     0     1     0     0     0     0 of the floor of 1 on on-demand; 1 on spot beyond the budget of 0\n",
		"status -o name":                                      "pod/p\n",
		"status -o jsonpath={.kind}:{.items[*].state}":        "SpotStatus:BelowFloor",
		"status -o jsonpath={.items[?(@.spot>0)].name}":       "p",
		"status --context other -o jsonpath={.items[*].name}": "",
		"what-if --context other --lose node=n -o jsonpath={.workloads[*].name}{.policyChanges[*].name}": "",
		"savings -o jsonpath={.items[*].name}":                        "",
		"status -o go-template={{.kind}}":                             "SpotStatus",
		"nodes --no-headers":                                          "n     spot   node.kubernetes.io/capacity=spot   m5.xlarge/a   <none>   <none>   1     1\n",
		"nodes -A -o name":                                            "node/n\n",
		"savings -A -o jsonpath={.spotNodes}":                         "1",
		"nodes -o name":                                               "node/n\n",
		"nodes -o jsonpath={.items[0].workloadsBelowFloor[0].name}":   "p",
		"explain pod p -o jsonpath={.nodes[0].names}":                 `["n"]`,
		"explain pods/p -o name":                                      "pod/p\n",
		"what-if --lose all-spot --no-headers":                        "pod/p   ToZero   1     1     1     0\n",
		"what-if --lose node=n -o name":                               "pod/p\n",
		"what-if --policy ../../config/scheduler-config.yaml":         "With policy ../../config/scheduler-config.yaml, 0 workloads have different floors or on-demand counts: 0 replicas would have to move to on-demand, 0 replicas could move to spot.\n",
		"status -o jsonpath={.readErrors}{.policySource.name}":        "[]../../config/scheduler-config.yaml",
		"what-if --context other --lose node=n":                       "0 replicas of namespace elsewhere would be lost with 1 node. Use -A for all namespaces.\n",
		"what-if --lose node=n --no-headers -A":                       "shop   pod/p   ToZero   1     1     1     0\n",
		"status -l app=web -o name":                                   "pod/p\n",
		"status -l app!=web -o jsonpath={.items}":                     "[]",
		"nodes -l topology.kubernetes.io/zone=a -o name":              "node/n\n",
		"nodes -l topology.kubernetes.io/zone=b -o jsonpath={.items}": "[]",
		"savings -o jsonpath={.usdPerHourAllOnDemand}":                "0.192",
	} {
		out, err, status := execute(t, append(strings.Fields(line), shipped, "--kubeconfig="+cluster(t, ""))...)
		if diff := cmp.Diff(want, out); status != 0 || diff != "" || err != "" {
			t.Errorf("%s: exit status %d, %s (-want +got):\n%s", line, status, err, diff)
		}
	}
}

// All nodes count, but -n limits the workloads to one namespace. The namespace of the context has
// no effect.
func TestSavingsOfNamespace(t *testing.T) {
	node, pod := clustertest.NewNode("od", "on-demand", "m5.xlarge/"), clustertest.NewPod("over")
	pod.Spec.Containers = nil // it requests nothing, so it costs nothing
	pod.Namespace, pod.Spec.NodeName, pod.Annotations = "bank", "od", map[string]string{spot.MinOnDemandAnnotation: "0"}
	for line, want := range map[string]string{
		"savings -n bank":    "bank:over",
		"savings -n shop":    "shop:",
		"savings":            ":over",
		"savings -n shop -A": ":over",
	} {
		out, err, status := execute(t, append(strings.Fields(line), shipped, "--kubeconfig="+cluster(t, "", node, pod),
			"-o", "jsonpath={.onDemandNodes} {.namespace}:{.items[*].name}")...)
		if status != 0 || out != "1 "+want || err != "" {
			t.Errorf("%s: exit status %d, %q, want %q\n%s", line, status, out, "1 "+want, err)
		}
	}
	for namespace, want := range map[string]string{
		"-n=bank": "pod/over   0     1     1     0.0000\n",
		"-A":      "bank   pod/over   0     1     1     0.0000\n",
	} {
		out, _, _ := execute(t, "savings", namespace, "--no-headers", shipped, "--kubeconfig="+cluster(t, "", node, pod))
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s (-want +got):\n%s", namespace, diff)
		}
	}
	out, _, _ := execute(t, "savings", "-n", "shop", shipped, "--kubeconfig="+cluster(t, "", node, pod))
	if want := "No workload of namespace shop that opts in has replicas on on-demand beyond its floor that could run on spot.\n"; !strings.HasSuffix(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

func TestNothingFound(t *testing.T) {
	kubeconfig := "--kubeconfig=" + cluster(t, "")
	for line, want := range map[string]string{
		"status --context other": "No workload in namespace elsewhere opts in: no pod there has schedulerName spot-aware-scheduler. " +
			"docs/opt-in.md explains how; use -A for all namespaces and --profile for another scheduler's pods.\n",
		"status":           "",
		"status -l app=db": "No workload in namespace shop that opts in matches -l app=db.\n",
		"nodes -l a":       "No node matches -l a.\n",
	} {
		_, err, status := execute(t, append(strings.Fields(line), shipped, kubeconfig)...)
		if status != 0 || err != want {
			t.Errorf("%s: exit status %d, %q, want %q", line, status, err, want)
		}
	}
	// Without a scheduler in the cluster, the defaults are assumed and reported.
	out, err, status := execute(t, "status", kubeconfig)
	want := "the defaults are assumed: minOnDemand=1 "
	if status != exitPartial || out == "" || !strings.Contains(err, want) ||
		!strings.Contains(err, "namespace kube-system has no Deployment") {
		t.Errorf("exit status %d, %q, want %d and %q", status, err, exitPartial, want)
	}
}

func TestDenied(t *testing.T) {
	for denied, want := range map[string]string{
		"pods":        "The ClusterRole spot-viewer",
		"nodes":       "nodes cannot be read",
		"jobs":        "",
		"deployments": "the defaults are assumed",
	} {
		args := []string{"nodes", "--kubeconfig=" + cluster(t, denied)}
		if denied == "jobs" {
			args = append(args, shipped)
		}
		out, err, status := execute(t, args...)
		wantStatus := exitPartial
		if denied == "pods" || denied == "nodes" {
			wantStatus = exitFailed
		}
		if status != wantStatus || (out == "") != (status == exitFailed) || !strings.Contains(err, want) ||
			!strings.Contains(err, fmt.Sprintf("cannot list resource %q", denied)) || !strings.Contains(err, "manifests/overlays/viewer") {
			t.Errorf("%s: exit status %d, want %d, %q\n%s", denied, status, wantStatus, out, err)
		}
	}
}

// The error names nodes, even if other resources are denied too.
func TestNodesDenied(t *testing.T) {
	kubeconfig := "--kubeconfig=" + cluster(t, "replicasets,nodes")
	for line, want := range map[string]string{
		"nodes":                   "error: nodes cannot be read, and this command needs them: nodes is forbidden",
		"savings":                 "error: nodes cannot be read, so their cost is unknown: nodes is forbidden",
		"what-if --lose all-spot": "error: nodes cannot be read, so the affected replicas are unknown: nodes is forbidden",
	} {
		_, err, status := execute(t, append(strings.Fields(line), shipped, kubeconfig)...)
		if status != exitFailed || !strings.Contains(err, want) {
			t.Errorf("%s: exit status %d, %q, want %d and %q", line, status, err, exitFailed, want)
		}
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

// The output for programs has the gaps, and answers without owners are qualified.
func TestGapsInOutput(t *testing.T) {
	out, _, status := execute(t, "status", "-o", "jsonpath={.readErrors}{.policySource.assumedReason}", "--kubeconfig="+cluster(t, "jobs"))
	if status != exitPartial || !strings.Contains(out, "the workloads of pods of jobs are unknown") ||
		!strings.Contains(out, "namespace kube-system has no Deployment") {
		t.Errorf("exit status %d, %q", status, out)
	}
	for line, want := range map[string]string{
		"status --context other":     "Not all owners of pods could be read, so this may be incomplete: no workload in namespace elsewhere opts in",
		"savings":                    "Not all owners of pods could be read, so this may be incomplete: no workload that opts in",
		"what-if --lose all-spot -A": "are missing below",
	} {
		out, err, status := execute(t, append(strings.Fields(line), shipped, "--kubeconfig="+cluster(t, "jobs"))...)
		if status != exitPartial || !strings.Contains(out+err, want) {
			t.Errorf("%s: exit status %d, %q%q, want %q", line, status, out, err, want)
		}
	}
}

// A user with rights in one namespace is warned that other pods do not count.
func TestOneNamespace(t *testing.T) {
	const counts = "only pods of namespace shop are counted"
	for _, line := range []string{"nodes", "savings"} {
		out, err, status := execute(t, line, shipped, "-o", "jsonpath={.readErrors}", "--kubeconfig="+cluster(t, "pods/*"))
		if status != exitPartial || !strings.Contains(err, counts) || !strings.Contains(out, counts) {
			t.Errorf("%s: exit status %d, %q\n%s", line, status, out, err)
		}
	}
}

// Without the right to list priority classes, a gap is reported only if a rule depends on a class.
func TestPriorities(t *testing.T) {
	byPriority := policyFile(t, "minOnDemand: 1\n", "minOnDemand: 1\n      rules: [{name: important, minPriority: 100, minOnDemand: 2}]\n")
	for line, gap := range map[string]bool{
		"explain sts/idle " + shipped:                       false,
		"explain sts/idle --scheduler-config=" + byPriority: true,
		"explain pod/p --scheduler-config=" + byPriority:    true,
		"status --scheduler-config=" + byPriority:           false,
	} {
		_, err, _ := execute(t, append(strings.Fields(line), "--kubeconfig="+cluster(t, "priorityclasses"))...)
		if strings.Contains(err, "which rules by priority apply to workloads without pods is unknown") != gap {
			t.Errorf("%s: %q, want a warning: %t", line, err, gap)
		}
	}
}

func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"explain ":                     "pod/p\npod/\n:6\n",
		"explain po/":                  "po/p\n:4\n",
		"what-if --lose ":              "all-spot\npool=m5.xlarge/a\nzone=a\nnode=n\n:4\n",
		"status -n ":                   "shop\n:4\n",
		"status --context nowhere -n ": ":4\n",
	} {
		args := append([]string{"__complete", shipped, "--kubeconfig=" + cluster(t, "")}, strings.Split(line, " ")...)
		out, _, status := execute(t, args...)
		if diff := cmp.Diff(want, out); status != 0 || diff != "" {
			t.Errorf("%q: exit status %d (-want +got):\n%s", line, status, diff)
		}
	}
	if out, _, _ := execute(t, "__complete", "status", "-o", ""); !strings.Contains(out, "wide\n") || !strings.Contains(out, "yaml\n") {
		t.Errorf("-o: %q", out)
	}
}

func TestColours(t *testing.T) {
	text := "HEADER\none\ntwo\n"
	if got, want := coloured(text, []colour{plain, red}, false), "HEADER\none\n\x1b[31mtwo\x1b[0m\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := coloured("one\ntwo\n", []colour{yellow, plain}, true), "\x1b[33mone\x1b[0m\ntwo\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
