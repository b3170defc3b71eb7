package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// dumpFile returns a dump of objects. A pod without a profile in its line names the default
// scheduler.
func dumpFile(t *testing.T, cluster string, edit func(*v1.Pod)) string {
	t.Helper()
	objects := clustertest.Objects(cluster)
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			if pod.Spec.SchedulerName == clustertest.Profile {
				pod.Spec.SchedulerName = v1.DefaultSchedulerName
			}
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
			if edit != nil {
				edit(pod)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(file, []byte(listertest.Dump(t, objects...)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const assessed = "node od on-demand m5.xlarge/a\nnode sp spot m5.xlarge/a\ndeployment web 3 od sp sp\nbudget web 1\ndeployment api 1 od\ndeployment log 2 od sp\npod bare od"

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

// Another scheduler may place all replicas in one spot pool.
func TestAssessWarnsOfPools(t *testing.T) {
	const warning = "one pool may get all replicas beyond a floor"
	for mode, want := range map[string]bool{"own": false, "keep-scheduler": true} {
		html := filepath.Join(t.TempDir(), "report.html")
		_, errOut, status := execute(t, "assess", "--from", dumpFile(t, assessed, nil), "--mode", mode, "--html", html)
		page, err := os.ReadFile(html)
		if err != nil || strings.Contains(errOut, warning) != want || strings.Contains(string(page), warning) != want {
			t.Errorf("mode %s: exit status %d, %v, the warning is wanted: %t\n%s", mode, status, err, want, errOut)
		}
	}
}

// The script runs only kubectl, whatever tenants write into their objects.
func TestPatchesAreSafe(t *testing.T) {
	file := dumpFile(t, "node od on-demand m5.xlarge/a\nnode sp spot m5.xlarge/a\ndeployment web 3 od od od\ndeployment other 3 od od od\nbudget web 1\nbudget other 1\n"+
		"deployment evil 3 od od od\nbudget evil 1", func(pod *v1.Pod) {
		if pod.Name != "web-0" && strings.HasPrefix(pod.Name, "web") {
			return
		}
		if strings.HasPrefix(pod.Name, "evil") {
			pod.Spec.SchedulerName = "x\ntouch evil\r\x1b[2J"
		}
		pod.Spec.Volumes = []v1.Volume{{Name: "v\u2028\ntouch evil", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
	})
	for mode, want := range map[string]struct {
		patch    string
		commands int
	}{
		"own":            {`{"spec":{"template":{"spec":{"schedulerName":"it's\nmine; touch evil"}}}}`, 2}, // evil keeps its scheduler
		"keep-scheduler": {`{"spec":{"template":{"metadata":{"labels":{"spot-aware-scheduler.io/opt-in":"keep-scheduler"}}}}}`, 3},
	} {
		t.Run(mode, func(t *testing.T) { requireSafe(t, file, mode, want.patch, want.commands) })
	}
}

// requireSafe runs the script for a dump. Each of its commands must have this patch.
func requireSafe(t *testing.T, dump, mode, want string, commands int) {
	t.Helper()
	script, err, status := execute(t, "assess", "--from", dump, "-o", "patch", "--profile", "it's\nmine; touch evil", "--mode", mode)
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, err)
	}
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(line, "#") { // all workloads have a hostPath volume
			t.Errorf("the script runs %q", line)
		}
	}
	// kubectl is replaced by a function that prints the last argument of kubectl patch.
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "sh", "-c", `kubectl() { for last; do :; done; [ "$1" = rollout ] || printf '%s\n' "$last"; }`+"\n"+strings.ReplaceAll(script, "# kubectl", "kubectl"))
	command.Dir = dir
	out, runErr := command.CombinedOutput()
	if runErr != nil {
		t.Fatalf("%v\n%s\n%s", runErr, out, script)
	}
	for line := range strings.Lines(string(out)) {
		if strings.TrimSpace(line) != want || !json.Valid([]byte(line)) {
			t.Errorf("the patch is %s, want %s", line, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 || strings.Count(string(out), "\n") != commands {
		t.Errorf("%v, files %v\n%s", err, entries, out)
	}
}
