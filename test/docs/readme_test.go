package docs

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestKeepYourScheduler follows README.md: it starts the cluster in which pods keep their
// scheduler, and runs the commands for the other shell. The default scheduler must place all 24
// pods, and as many as the floors require on on-demand.
func TestKeepYourScheduler(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	checkout, err := filepath.Abs(root)
	must(t, err)
	up, steps := stepsToKeepTheScheduler(t)

	lab := exec.CommandContext(t.Context(), "bash", "-c", "exec "+up)
	lab.Dir, lab.Stderr, lab.WaitDelay = checkout, os.Stderr, time.Minute
	lab.Cancel = func() error { return lab.Process.Signal(syscall.SIGTERM) }
	stdout, err := lab.StdoutPipe()
	must(t, err)
	must(t, lab.Start())
	t.Cleanup(func() { _ = lab.Wait() }) // after the context is done
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	kubeconfig, ok := strings.CutPrefix(strings.TrimSpace(line), "KUBECONFIG=")
	if !ok {
		t.Fatalf("%s prints %q, expected KUBECONFIG=", up, line)
	}

	run := func(commands string) ([]byte, error) {
		shell := exec.CommandContext(t.Context(), "bash", "-euc", strings.ReplaceAll(commands, "/tmp/spot-lab-NUMBER", filepath.Dir(kubeconfig)))
		shell.Dir, shell.Stderr = checkout, os.Stderr
		return shell.Output()
	}
	out, err := run(steps)
	must(t, err)
	t.Logf("%s", out)

	environment := steps[:strings.Index(steps, "kubectl apply")]
	want := map[string][2]int{ // on on-demand, and elsewhere
		"storefront": {3, 7}, "payments": {2, 1}, "admin": {1, 0}, "thumbnails": {0, 4}, "queue": {1, 2}, "report": {0, 3},
	}
	var diff string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		out, err := run(environment + "kubectl -n spot-example get pods -o json")
		must(t, err)
		var pods v1.PodList
		must(t, json.Unmarshal(out, &pods))
		got := map[string][2]int{}
		for _, pod := range pods.Items {
			counts := got[pod.Labels["app"]]
			switch {
			case pod.Spec.SchedulerName != v1.DefaultSchedulerName:
				t.Fatalf("%s names the scheduler %s", pod.Name, pod.Spec.SchedulerName)
			case pod.Status.Phase != v1.PodRunning:
			case strings.HasPrefix(pod.Spec.NodeName, "od-"):
				counts[0]++
			default:
				counts[1]++
			}
			got[pod.Labels["app"]] = counts
		}
		if diff = cmp.Diff(want, got); diff == "" {
			return
		}
	}
	t.Errorf("running pods by workload (-want +got):\n%s", diff)
}

// stepsToKeepTheScheduler returns the command in README.md that starts the cluster, and the
// commands for the other shell.
func stepsToKeepTheScheduler(t *testing.T) (up, steps string) {
	t.Helper()
	readme := parse("README.md", read(t, "README.md"))
	for i, block := range readme.blocks[:len(readme.blocks)-1] {
		for line := range strings.Lines(block.text) {
			if strings.HasPrefix(line, "bin/spot-lab up --mode=keep-scheduler") {
				return strings.TrimSpace(line), readme.blocks[i+1].text
			}
		}
	}
	t.Fatal("README.md does not start the cluster in which pods keep their scheduler")
	return "", ""
}
