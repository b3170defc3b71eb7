package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// cores are the CPU cores with numbers from from to to-1.
type cores struct{ from, to int }

// splitCores returns the cores for the servers and the cores for everything else. It returns an
// error if the machine has only one core.
func splitCores() (servers, others cores, err error) {
	n := runtime.NumCPU()
	if n < 2 {
		return servers, others, fmt.Errorf("expected 2 cores or more without -together, got %d", n)
	}
	return cores{0, n / 2}, cores{n / 2, n}, nil
}

// pin restricts all threads of a process, and all processes that it starts, to these cores.
func (c cores) pin(pid int) error {
	var set unix.CPUSet
	for i := c.from; i < c.to; i++ {
		set.Set(i)
	}
	for again := true; again; { // a thread may have started another meanwhile
		again = false
		threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			var now unix.CPUSet
			if err = unix.SchedGetaffinity(id, &now); err == nil && now != set {
				again = true
				err = unix.SchedSetaffinity(id, &set)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: the thread has exited
				return fmt.Errorf("pinning process %d to cores %d to %d: %w", pid, c.from, c.to-1, err)
			}
		}
	}
	return nil
}
