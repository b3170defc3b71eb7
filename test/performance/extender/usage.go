package main

import "github.com/prometheus/procfs"

// usage is CPU time in seconds, since the start of a process or the machine. process is the time of
// the process, stolen is the time that the hypervisor took from all cores, and all is the total
// time of all cores.
type usage struct{ process, stolen, all float64 }

func readUsage(pid int) (u usage, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	ofProcess, err := process.Stat()
	if err != nil {
		return u, err
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return u, err
	}
	t := stat.CPUTotal
	return usage{
		process: ofProcess.CPUTime(), stolen: t.Steal,
		all: t.User + t.Nice + t.System + t.Idle + t.Iowait + t.IRQ + t.SoftIRQ + t.Steal,
	}, nil
}
