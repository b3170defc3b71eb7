package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestExitStatus(t *testing.T) {
	badNodes := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(badNodes, []byte("- {namePrefix: a, count: -1}"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args       []string
		want       int
		wantStderr string
	}{
		"help":             {[]string{"--help"}, 0, ""},
		"unknown command":  {[]string{"down"}, exitUsage, "down"},
		"unknown flag":     {[]string{"up", "--node", "x"}, exitUsage, "--node"},
		"surplus argument": {[]string{"demo", "x"}, exitUsage, "x"},
		"flag without value": {
			[]string{"up", "--nodes"}, exitUsage, "--nodes",
		},
		"unknown mode":       {[]string{"up", "--mode", "mine"}, exitUsage, "expected own or keep-scheduler"},
		"no such nodes file": {[]string{"up", "--nodes", "/nowhere"}, exitFailed, "/nowhere"},
		"bad nodes file":     {[]string{"up", "--nodes", badNodes}, exitFailed, "nodes[0].count: Invalid value: -1"},
		"not a boolean":      {[]string{"up", "--controller=maybe"}, exitUsage, "maybe"},
		"binaries missing":   {[]string{"up", "--root", t.TempDir()}, exitFailed, "hack/tools.sh"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			if got := run(t.Context(), test.args, io.Discard, &stderr); got != test.want {
				t.Errorf("exit status %d, want %d", got, test.want)
			}
			if !strings.Contains(stderr.String(), test.wantStderr) {
				t.Errorf("standard error %q, want %q in it", stderr.String(), test.wantStderr)
			}
		})
	}
}

// The admission policy of the autoscaler mode requires Kubernetes 1.36.
func TestModesBefore136(t *testing.T) {
	t.Setenv("SPOT_KUBERNETES", "1.35")
	for _, flag := range []string{"--karpenter", "--mode=keep-scheduler"} {
		var stderr strings.Builder
		if got := run(t.Context(), []string{"up", flag, "--root", t.TempDir()}, io.Discard, &stderr); got != exitFailed {
			t.Errorf("%s: exit status %d, want %d", flag, got, exitFailed)
		}
		if want := "requires 1.36 or later"; !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: standard error %q, want %q in it", flag, stderr.String(), want)
		}
		stderr.Reset()
		run(t.Context(), []string{"up", flag, "--controller=false", "--root", t.TempDir()}, io.Discard, &stderr)
		if want := "hack/tools.sh"; !strings.Contains(stderr.String(), want) {
			t.Errorf("%s --controller=false: standard error %q, want %q in it", flag, stderr.String(), want)
		}
	}
}

// TestUp starts every component that the command up can start. The command prints one line when
// clients can connect, and exits with status 0 when it is interrupted. Its hints work as they are.
func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	tests := map[string]struct {
		flags       []string
		controllers int
		paste       bool // run the hints
	}{
		"default":                      {nil, 1, true},
		"Karpenter":                    {[]string{"--karpenter"}, 1, true},
		"without a controller":         {[]string{"--controller=false"}, 0, false},
		"Karpenter without controller": {[]string{"--karpenter", "--controller=false"}, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			testUp(t, test.flags, func(kubeconfig, stderr string) {
				logs, err := filepath.Glob(filepath.Join(filepath.Dir(kubeconfig), "logs", "*-spot-controller.log"))
				if err != nil || len(logs) != test.controllers {
					t.Errorf("logs of controllers: %s, %v; want %d", logs, err, test.controllers)
				}
				if test.paste {
					paste(t, stderr)
				}
			})
		})
	}
}

// paste runs the commands in the hints as they are, except that the watch ends. All pods of the
// example must run before the reclaim, and none may remain on the reclaimed node after it.
func paste(t *testing.T, stderr string) {
	t.Helper()
	const watch, undo = `kubectl spot nodes "$node" -w`, `kubectl taint node "$node"`
	var script strings.Builder
	watched, undone := false, false
	for line := range strings.Lines(stderr) {
		command, ok := strings.CutPrefix(line, "  ")
		switch {
		case !ok:
			continue
		case strings.TrimSpace(command) == watch:
			watched = true
			script.WriteString("timeout 7 " + watch + " || [ $? = 124 ]\n")
			continue
		case strings.HasPrefix(command, "kubectl spot status"):
			script.WriteString("kubectl -n spot-example wait pod --all --for=condition=Ready --timeout=1m\n")
		case strings.HasPrefix(command, undo):
			undone = true
			script.WriteString(`for i in $(seq 60); do
  left=$(kubectl -n spot-example get pods --field-selector=spec.nodeName="$node" -o name)
  [ -n "$left" ] || break
  sleep 1
done
[ -z "$left" ]
kubectl get events -A | grep SpotInterruption
`)
		}
		script.WriteString(command)
	}
	if !watched || !undone {
		t.Errorf("the hints lack a command:\n%s", stderr)
	}
	shell := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", script.String())
	shell.Dir = t.TempDir() // the hints do not depend on the folder
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("pasting the hints: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// testUp runs the command up with these flags until check returns.
func testUp(t *testing.T, flags []string, check func(kubeconfig, stderr string)) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stdout, writer := io.Pipe()
	var stderr strings.Builder
	status := make(chan int)
	go func() {
		code := run(ctx, append([]string{"up"}, flags...), writer, &stderr)
		writer.Close()
		status <- code
	}()

	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("nothing on standard output: %v; status %d; standard error:\n%s", err, <-status, stderr.String())
	}
	kubeconfig, ok := strings.CutPrefix(strings.TrimSpace(line), "KUBECONFIG=")
	if !ok {
		t.Errorf("the line is %q", line)
	}
	if _, err := clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		t.Error(err)
	}
	check(kubeconfig, stderr.String())
	interrupt()
	if rest, _ := io.ReadAll(lines); len(rest) != 0 {
		t.Errorf("extra output on standard output: %q", rest)
	}
	if got := <-status; got != 0 {
		t.Errorf("exit status %d, want 0; standard error:\n%s", got, stderr.String())
	}
	if _, err := os.Stat(filepath.Dir(kubeconfig)); !os.IsNotExist(err) {
		t.Errorf("the temporary directory still exists: %v", err)
	}
}
