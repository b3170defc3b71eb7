package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// dumpFile returns a dump of objects. A pod without a profile in its line names the default
// scheduler.
func dumpFile(t *testing.T, cluster string, edit func(*v1.Pod)) string {
	t.Helper()
	items := []runtime.Object{}
	for _, object := range clustertest.Objects(cluster) {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
		if pod, ok := object.(*v1.Pod); ok {
			if pod.Spec.SchedulerName == clustertest.Profile {
				pod.Spec.SchedulerName = v1.DefaultSchedulerName
			}
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
			if edit != nil {
				edit(pod)
			}
		}
		items = append(items, object)
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const assessed = "node od on-demand m5.xlarge/a\nnode sp spot m5.xlarge/a\ndeployment web 3 od sp sp\npod bare od"

const missing = "warning: the dump has no jobs, persistentvolumeclaims, persistentvolumes, poddisruptionbudgets, statefulsets: if the cluster has some, add them to the dump\n"

func TestAssess(t *testing.T) {
	file := dumpFile(t, assessed, nil)
	table := "WORKLOAD         CLASS        DESIRED   FLOOR   READY   WITHOUT SPOT   WITHOUT SPOT THEN   USD/MONTH   USD/MONTH THEN   REASONS\n" +
		"deployment/web   WithChange   3         1       3       1              1                   58.87       58.87            add a PodDisruptionBudget, so that drains leave replicas available\n" +
		"pod/bare         No           1         1       1       1              1                   35.04       35.04            no controller creates the pod again if its node is lost\n"
	for line, want := range map[string]string{
		"-n shop": "2 workloads: 0 can run on spot now, 1 with a change, and 1 should not.\n" +
			"A loss of all spot nodes (1) would leave 0 without a ready replica; with the policy, 0.\n" +
			"They cost 93.91 USD a month; with the policy and these changes, 93.91.\n" +
			"Prices: AWS list prices of us-east-1, spot by its average saving. Policy: the defaults.\n\n" + table,
		"-n shop --no-headers -o table": "deployment/web   WithChange   3     1     3     1     1     58.87   58.87   add a PodDisruptionBudget, so that drains leave replicas available\n" +
			"pod/bare         No           1     1     1     1     1     35.04   35.04   no controller creates the pod again if its node is lost\n",
		"-o name":                       "deployment.apps/web\npod/bare\n",
		"-o jsonpath={.items[*].floor}": "1 1",
		"-o patch": "# deployment/web in namespace shop: WithChange\n" +
			"#   add a PodDisruptionBudget, so that drains leave replicas available\n" +
			`kubectl patch deployment web -n shop --type=strategic -p '{"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}'` + "\n" +
			"# pod/bare in namespace shop: No\n" +
			"#   no controller creates the pod again if its node is lost\n",
		"-n other": "No workload of namespace other has pods to assess.\n",
		"-o jsonpath={.policySource.name} " + shipped: "../../config/scheduler-config.yaml",
	} {
		out, err, status := execute(t, append([]string{"assess", "--from", file}, strings.Fields(line)...)...)
		if status != 0 || out != want || !strings.HasSuffix(err, missing) && err != missing {
			t.Errorf("%s: exit status %d\n%s\nwant\n%s\n%s", line, status, out, want, err)
		}
	}
}

// A cluster without the scheduler gives a complete answer with the defaults.
func TestAssessBeforeInstall(t *testing.T) {
	out, err, status := execute(t, "assess", "--kubeconfig="+cluster(t, ""), "-o", "jsonpath={.policySource.name}: {.items[*].name}")
	if status != 0 || out != "the defaults: p" || err != "" {
		t.Errorf("exit status %d, %q\n%s", status, out, err)
	}
	_, err, status = execute(t, "assess", "--kubeconfig="+cluster(t, "poddisruptionbudgets"))
	if status != exitPartial || !strings.Contains(err, "which evictions a PodDisruptionBudget blocks is unknown") {
		t.Errorf("exit status %d\n%s", status, err)
	}
	if _, err, status = execute(t, "assess", "--kubeconfig="+cluster(t, "nodes")); status != exitFailed || !strings.Contains(err, "nodes cannot be read") {
		t.Errorf("exit status %d\n%s", status, err)
	}
}

// The answer lacks pods whose owner is not in the dump, and nodes without a price.
func TestAssessGaps(t *testing.T) {
	out, err, status := execute(t, "assess", "--from", dumpFile(t, "node n spot x.large/a\npod lost n owner=ReplicaSet/gone\ndeployment web 2 n n", nil))
	if status != exitPartial || !strings.Contains(err, "the owners of 1 pod are unknown") || !strings.Contains(err, "no price for x.large/a (1)") ||
		!strings.Contains(out, "unknown     unknown") || !strings.Contains(out, "The costs of 1 workload are unknown.") {
		t.Errorf("exit status %d\n%s%s", status, out, err)
	}
}

func TestAssessInvalid(t *testing.T) {
	file := dumpFile(t, assessed, nil)
	dir := t.TempDir()
	text := filepath.Join(dir, "text.json")
	if err := os.WriteFile(text, []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]struct {
		status int
		err    string
	}{
		"-o nonsense":                          {exitUsage, `output format "nonsense", allowed formats are`},
		"-o patches":                           {exitUsage, "also patch, table"},
		"now":                                  {exitUsage, `unknown command "now" for "kubectl spot assess"`},
		"--from /nowhere":                      {exitFailed, "--from: stat /nowhere: no such file or directory: expected the output of kubectl get -o json"},
		"--from " + text:                       {exitFailed, "--from: " + text + ": expected the output of kubectl get -o json: "},
		"--from " + filepath.Dir(shipped[19:]): {exitFailed, "the directory has no file *.json"},
		"--from " + file + " --html /nowhere/a.html": {exitFailed, "--html: expected a file that can be written: open /nowhere/a.html"},
		"--from " + file + " --prices /nowhere":      {exitFailed, "price list: open /nowhere"},
	} {
		out, err, status := execute(t, append([]string{"assess"}, strings.Fields(line)...)...)
		if status != want.status || !strings.Contains(err, want.err) || out != "" {
			t.Errorf("%s: exit status %d, %q%s, want %d and %q", line, status, out, err, want.status, want.err)
		}
	}
}

func TestAssessHTML(t *testing.T) {
	html := filepath.Join(t.TempDir(), "report.html")
	if _, err, status := execute(t, "assess", "--from", dumpFile(t, assessed, nil), "--html", html); status != 0 {
		t.Fatalf("exit status %d\n%s", status, err)
	}
	page, err := os.ReadFile(html)
	if err != nil || !strings.Contains(string(page), "shop: deployment/web") || !strings.Contains(string(page), "has no jobs, persistentvolumeclaims") {
		t.Errorf("%v\n%s", err, page)
	}
}

// The script runs only kubectl, whatever tenants write into their objects.
func TestPatchesAreSafe(t *testing.T) {
	file := dumpFile(t, "node od on-demand m5.xlarge/a\ndeployment web 3 od od od\ndeployment other 3 od od od", func(pod *v1.Pod) {
		if pod.Name != "web-0" && strings.HasPrefix(pod.Name, "web") {
			return
		}
		pod.Spec.SchedulerName = "x\ntouch evil\r\x1b[2J"
		pod.Spec.Volumes = []v1.Volume{{Name: "v\u2028\ntouch evil", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
	})
	script, err, status := execute(t, "assess", "--from", file, "-o", "patch", "--profile", "it's\nmine; touch evil")
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, err)
	}
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(line, "#") { // both workloads name another scheduler
			t.Errorf("the script runs %q", line)
		}
	}
	// kubectl is replaced by a function that prints its last argument.
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "sh", "-c", `kubectl() { for last; do :; done; printf '%s\n' "$last"; }`+"\n"+strings.ReplaceAll(script, "# kubectl", "kubectl"))
	command.Dir = dir
	out, runErr := command.CombinedOutput()
	if runErr != nil {
		t.Fatalf("%v\n%s\n%s", runErr, out, script)
	}
	var patch struct {
		Spec struct {
			Template struct{ Spec map[string]string }
		}
	}
	for line := range strings.Lines(string(out)) {
		if err := json.Unmarshal([]byte(line), &patch); err != nil || patch.Spec.Template.Spec["schedulerName"] != "it's\nmine; touch evil" {
			t.Errorf("%v: %s", err, line)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 || strings.Count(string(out), "\n") != 2 {
		t.Errorf("%v, files %v\n%s", err, entries, out)
	}
}
