package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// parentVariable makes this test binary start a control plane, print its directory and wait to be
// killed.
const parentVariable = "SPOT_LAB_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) == "" {
		os.Exit(m.Run())
	}
	cp, err := Start(context.Background(), Options{})
	if err == nil {
		_, err = cp.StartStockScheduler(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(cp.Dir)
	select {}
}

func TestStopRemovesEverything(t *testing.T) {
	cp, _ := startLab(t, Options{})
	if _, err := cp.StartStockScheduler(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := processesOf(t, cp.Dir); len(got) < 5 {
		t.Fatalf("found only these processes: %q", got)
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	if got := processesOf(t, cp.Dir); len(got) != 0 {
		t.Errorf("still running: %q", got)
	}
	if _, err := os.Stat(cp.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s still exists: %v", cp.Dir, err)
	}
}

func TestKilledParentLeavesNoProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	parent.Stderr = os.Stderr
	stdout, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())
	defer func() {
		_ = parent.Process.Kill()
		_ = parent.Wait()
	}()
	dir, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the parent did not start a control plane: %v", err)
	}
	dir = strings.TrimSpace(dir)
	if got := processesOf(t, dir); len(got) < 5 {
		t.Fatalf("found only these processes: %q", got)
	}
	must(t, parent.Process.Kill())
	eventually(t, "nothing to be left", func(context.Context) error {
		if got := processesOf(t, dir); len(got) != 0 {
			return fmt.Errorf("still running: %q", got)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s still exists, or: %w", dir, err)
		}
		return nil
	})
}

func TestDirIsLocked(t *testing.T) {
	dir := t.TempDir()
	cp, _ := startLab(t, Options{Dir: dir})
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second lab in the same directory: %v, want an error that contains in use", err)
	}
	must(t, cp.Stop())
	if _, err := os.Stat(cp.Kubeconfig); err != nil {
		t.Errorf("Stop removed the directory of Options.Dir: %v", err)
	}
	startLab(t, Options{Dir: dir}) // a later lab can use it
}

func TestForeignDirIsRejected(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "logs")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "empty directory") {
		t.Errorf("a directory with a foreign file: %v, want an error", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the foreign file: %v", err)
	}
}

// TestWaitReportsExitOfComponent kills a component: Wait returns an error with the end of its
// log.
func TestWaitReportsExitOfComponent(t *testing.T) {
	cp, _ := startLab(t, Options{})
	scheduler, err := cp.StartStockScheduler(t.Context())
	must(t, err)
	noticed := make(chan error)
	go func() { noticed <- cp.Wait(t.Context()) }()
	if err := scheduler.Stop(); err != nil {
		t.Error(err)
	}
	var exit *ExitError
	if err := <-noticed; !errors.As(err, &exit) || exit.Name != "kube-scheduler" || exit.Tail == "" {
		t.Errorf("got %v, want an ExitError of kube-scheduler with the end of its log", err)
	}
}

// processesOf returns the command lines that name dir.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		if line := strings.ReplaceAll(string(data), "\x00", " "); strings.Contains(line, dir) {
			found = append(found, line)
		}
	}
	return found
}
