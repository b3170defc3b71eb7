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

// The script runs only kubectl, whatever tenants write into their objects.
func TestPatchesAreSafe(t *testing.T) {
	file := dumpFile(t, "node od on-demand m5.xlarge/a\nnode sp spot m5.xlarge/a\ndeployment web 3 od od od\ndeployment other 3 od od od\nbudget web 1\nbudget other 1", func(pod *v1.Pod) {
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
