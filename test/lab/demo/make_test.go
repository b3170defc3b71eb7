package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// make demo writes the lines of downloads and compilers to a log, which it names. If the build
// fails, it prints the end of the log.
func TestMakeDemoLogsTheBuild(t *testing.T) {
	root, err := lab.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	fake := "#!/bin/sh\nseq -f 'go: downloading example.com/module v1.%g' 1000 >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(folder, "go"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(folder, "logs", "build.log")
	command := exec.CommandContext(t.Context(), "make", "demo", "BUILD_LOG="+log)
	command.Dir, command.Env = root, append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err == nil {
		t.Error("make demo succeeds although the build fails")
	}
	if want := "the log is " + log; !strings.Contains(stdout.String(), want) || !strings.Contains(stderr.String(), "the build failed; "+want) {
		t.Errorf("standard output %q, standard error %q: want %q in both", stdout.String(), stderr.String(), want)
	}
	if n := strings.Count(stdout.String()+stderr.String(), "downloading"); n == 0 || n > 20 {
		t.Errorf("%d lines of the build on the terminal, want the last few", n)
	}
	content, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(content), "module v1.1\n") {
		t.Errorf("the log does not begin with the first lines of the build: %v", err)
	}
}
