package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// dirVariable names the folder that Isolate created, for the isolated process. If it is set, the
// process is isolated.
const dirVariable = "SPOT_NODE_DIR"

// private lists the folders that each isolated process replaces by its own. containerd, the CNI
// plugins and the kubelet store files there, partly at fixed paths.
var private = []string{"/run", "/var/lib", "/var/log"}

// clean removes the folder $0 and the cgroups of that name. It starts when its input ends, which is
// when Isolate returns or its process is killed. If the process was killed, the isolated processes
// may still be terminating.
const clean = `
read _
group=${0##*/}
for _ in $(seq 100); do
  rm -rf -- "$0"
  groups=$(find /sys/fs/cgroup -depth -type d \( -path "*/$group" -o -path "*/$group/*" \))
  [ -z "$groups" ] || rmdir $groups
  [ -e "$0" ] || [ -n "$groups" ] || exit 0
  sleep 0.1
done 2>/dev/null
echo "could not remove $0 and the cgroups $groups" >&2
exit 1`

// Isolated reports whether this process was started by Isolate and is the first of its namespace.
func Isolated() bool { return os.Getenv(dirVariable) != "" && os.Getpid() == 1 }

// Isolate runs this program again with the same arguments, and waits for it. The new process is the
// first in new namespaces for processes, mounts, network and IPC. Isolate returns the exit status
// after all isolated processes are gone and the machine is as before. On SIGINT and SIGTERM it
// kills the program at once. If this process is killed, the kernel kills the program. The error
// means that the machine does not allow isolation, or names the files that could not be removed.
func Isolate() (status int, err error) {
	dir, err := os.MkdirTemp("", "spot-node-")
	if err != nil {
		return 0, err
	}
	cleaner := exec.Command("/bin/sh", "-c", clean, dir)
	cleaner.Stderr = os.Stderr
	cleaner.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must not stop it
	lifeline, err := cleaner.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cleaner.Start(); err != nil {
		return 0, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		_ = lifeline.Close()
		if cleanErr := cleaner.Wait(); cleanErr != nil {
			err = errors.Join(err, fmt.Errorf("cleaning up: %w", cleanErr))
		}
	}()
	for _, path := range append([]string{"/tmp"}, private...) {
		if err := os.MkdirAll(inside(dir, path), 0o755); err != nil {
			return 0, err
		}
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	program := exec.Command("/proc/self/exe", os.Args[1:]...)
	program.Args[0] = os.Args[0]
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	program.Env = append(os.Environ(), dirVariable+"="+dir, "TMPDIR="+inside(dir, "/tmp"))
	program.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS, // in this way Go makes its mounts private
		Setpgid:      true,
		Pdeathsig:    syscall.SIGKILL,
	}
	// The kernel sends Pdeathsig when the thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := program.Start(); err != nil {
		return 0, fmt.Errorf("new namespaces: %w", err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-signals:
			_ = program.Process.Kill()
		case <-ended:
		}
	}()
	// The first process of a PID namespace exits only after all other processes in it.
	err = program.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	default:
		return 0, err
	}
}

// inside returns the path outside of a folder of the isolated process.
func inside(dir, path string) string {
	return filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-"))
}

// EnterIsolation completes the new namespaces. It mounts /proc and the private folders, and adds
// address to the loopback interface. The isolated process must call it first.
func EnterIsolation(address string) error {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		return errors.New("not isolated: only a process that Isolate started may change mounts and network")
	}
	for _, path := range private {
		if err := syscall.Mount(inside(dir, path), path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", path, err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := makeCgroups(); err != nil {
		return err
	}
	return addLoopback(address)
}

// cgroup returns the parent of the containers' cgroups.
func cgroup() string { return "/" + filepath.Base(os.Getenv(dirVariable)) }

// makeCgroups creates cgroup; in version 1 it does so for each controller.
func makeCgroups() error {
	const root = "/sys/fs/cgroup"
	hierarchies := []string{root}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		if hierarchies, err = filepath.Glob(filepath.Join(root, "*")); err != nil {
			return err
		}
	}
	for _, hierarchy := range hierarchies {
		if err := os.MkdirAll(filepath.Join(hierarchy, cgroup()), 0o755); err != nil {
			return fmt.Errorf("creating a cgroup: %w", err)
		}
	}
	return nil
}
