package main

import (
	"bufio"
	"context"
	"io"
	"os"
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

// TestUp starts every component that the command up can start. The command prints one line when
// clients can connect, and exits with status 0 when it is interrupted.
func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	nodes := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(nodes, []byte("- {namePrefix: spot-, count: 2, capacity: spot}"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stdout, writer := io.Pipe()
	var stderr strings.Builder
	status := make(chan int)
	go func() {
		code := run(ctx, []string{"up", "--karpenter", "--nodes", nodes}, writer, &stderr)
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
