package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// spawner runs functions that start processes, all on one OS thread. A child with
// PR_SET_PDEATHSIG gets its signal when the *thread* that started it ends. That thread must
// therefore live as long as the control plane.
type spawner chan func()

func newSpawner() spawner {
	s := make(spawner)
	go func() {
		// Never unlocked: the thread ends with this goroutine and kills any remaining child.
		runtime.LockOSThread()
		for start := range s {
			start()
		}
	}()
	return s
}

// do runs start on the spawner's thread and returns its error.
func (s spawner) do(start func() error) error {
	done := make(chan error)
	s <- func() { done <- start() }
	return <-done
}

// childAttr makes the kernel kill a child when this process ends, even if this process is killed.
// It also shields the child from a terminal's Ctrl-C, so that the lab stops its processes in its
// own order.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// tempDir makes a temporary directory. A call of remove deletes it. If this process ends in any
// other way, a shell that waits for it deletes the directory a second later.
func tempDir() (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp("", "spot-lab-"); err != nil {
		return "", nil, fmt.Errorf("making the lab's directory: %w", err)
	}
	// read returns at the end of its input, when the last copy of the pipe's other end closes;
	// this process has the only copy. A second later the children are dead and write no more.
	janitor := exec.Command("/bin/sh", "-c", `read _; sleep 1; rm -rf -- "$0"`, dir)
	janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var lifeline io.WriteCloser
	if lifeline, err = janitor.StdinPipe(); err == nil {
		err = janitor.Start()
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("starting the cleaner of %s: %w", dir, err), os.RemoveAll(dir))
	}
	return dir, func() error {
		err := os.RemoveAll(dir)
		_ = janitor.Process.Kill()
		_ = janitor.Wait() // "signal: killed", as intended
		_ = lifeline.Close()
		return err
	}, nil
}
