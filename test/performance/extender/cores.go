package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// cores are those with numbers of at least from and less than to.
type cores struct{ from, to int }

// halves returns the cores for the servers and those for all else.
func halves() (servers, others cores, err error) {
	n := runtime.NumCPU()
	if n < 2 {
		return servers, others, fmt.Errorf("-apart: expected 2 cores or more, got %d", n)
	}
	return cores{0, n / 2}, cores{n / 2, n}, nil
}

// keep has all threads of a process run on these cores, and whatever they start.
func (c cores) keep(pid int) error {
	var set unix.CPUSet
	for i := c.from; i < c.to; i++ {
		set.Set(i)
	}
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil {
			return fmt.Errorf("keeping process %d on cores %d to %d: %w", pid, c.from, c.to-1, err)
		}
	}
	return nil
}
