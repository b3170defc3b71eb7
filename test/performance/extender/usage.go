package main

import "github.com/prometheus/procfs"

// machineTime is CPU time of the machine in seconds, since its start: of all cores, and what the
// hypervisor took from them.
type machineTime struct{ all, stolen float64 }

func cpuTime() (machineTime, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return machineTime{}, err
	}
	stat, err := fs.Stat()
	t := stat.CPUTotal
	return machineTime{all: t.User + t.Nice + t.System + t.Idle + t.Iowait + t.IRQ + t.SoftIRQ + t.Steal, stolen: t.Steal}, err
}
