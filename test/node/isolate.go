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

// dirVariable tells the isolated process the folder that Isolate made for it. Its presence says that it is isolated.
const dirVariable = "SPOT_NODE_DIR"

// private are the folders of the machine in whose place an isolated process has its own: where containerd, the CNI plugins and kubelet
// leave things, in part at fixed paths.
var private = []string{"/run", "/var/lib", "/var/log"}

// clean removes the folder $0 and the cgroups of that name. It starts when its input ends, which is when Isolate returns or its process
// is killed; in the latter case the isolated processes may still be about to end.
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

// Isolated says whether this process is the one that Isolate started, the first of its namespace.
func Isolated() bool { return os.Getenv(dirVariable) != "" && os.Getpid() == 1 }

// Isolate runs this program again, with the same arguments, as the first process of new namespaces for processes, mounts, network and
// IPC, and waits for it. It returns the exit status when everything that was started in there is gone and the machine is as before.
// On SIGINT and SIGTERM it ends the program at once, and when this process is killed, the kernel does. The error says that the machine
// does not allow it, or what could not be removed.
func Isolate() (status int, err error) {
	dir, err := os.MkdirTemp("", "spot-node-")
	if err != nil {
		return 0, err
	}
	cleaner := exec.Command("/bin/sh", "-c", clean, dir)
	cleaner.Stderr = os.Stderr
	cleaner.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C for it
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
		Unshareflags: syscall.CLONE_NEWNS, // this way Go makes its mounts private
		Setpgid:      true,
		Pdeathsig:    syscall.SIGKILL,
	}
	// Pdeathsig comes when the thread ends.
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
	// The first process of a PID namespace is gone only after all others in it.
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

// inside is where a folder of the isolated process is seen from outside.
func inside(dir, path string) string {
	return filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-"))
}

// EnterIsolation makes the new namespaces fit to live in: own process and variable files, and address on the loopback interface. The
// isolated process calls it first.
func EnterIsolation(address string) error {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		return errors.New("not isolated: only what Isolate started may change mounts and network")
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

// cgroup is the parent of the containers' cgroups.
func cgroup() string { return "/" + filepath.Base(os.Getenv(dirVariable)) }

// makeCgroups makes cgroup, in version 1 once for each controller.
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
			return fmt.Errorf("making a cgroup: %w", err)
		}
	}
	return nil
}
