// Package frame is what the benchmarks share: the program around a benchmark, figures of several
// rounds, tables, and the resources that a process uses.
package frame

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/prometheus/procfs"
)

// Usage is an error of the command line.
type Usage struct{ Err error }

func (u Usage) Error() string { return u.Err.Error() }
func (u Usage) Unwrap() error { return u.Err }

// Main runs a program and exits with its status: 0 after success or -help, 2 for an error of the
// command line, else 1. The context ends with the first SIGINT, SIGTERM or SIGHUP. A second signal
// terminates this process at once, with all its child processes.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	var usage Usage
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	case ctx.Err() != nil:
		// The interruption caused the failure, so do not print it.
		fmt.Fprintf(os.Stderr, "%s: interrupted; nothing is left running\n", name)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	os.Exit(1)
}

// Quantile returns the q-quantile of at least one value, interpolated between its neighbours.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// Range is the median, the minimum and the maximum of some figures.
type Range struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// RangeOf returns the range of at least one value.
func RangeOf(values []float64) Range {
	return Range{Quantile(values, 0.5), slices.Min(values), slices.Max(values)}
}

// PairedRatio returns the range of a[i]/b[i]. Each pair was measured in the same round, at most
// minutes apart. A machine that is slow for longer affects both figures of a pair.
func PairedRatio(a, b []float64) Range {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return RangeOf(ratios)
}

// Text returns the median, followed by the range in brackets unless both ends are equal.
func (r Range) Text(format string) string {
	median, least, most := fmt.Sprintf(format, r.Median), fmt.Sprintf(format, r.Min), fmt.Sprintf(format, r.Max)
	if least == most {
		return median
	}
	return fmt.Sprintf("%s [%s-%s]", median, least, most)
}

// Table writes aligned columns.
func Table(out io.Writer, header []string, rows ...[]string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// Resources are what a process uses: CPU time of its threads in seconds, and resident memory in
// bytes, now and at most since its start. Threads of Go programs do not end.
type Resources struct {
	CPU            float64
	Resident, Peak uint64
}

// ResourcesOf returns the resources of a process.
func ResourcesOf(pid int) (r Resources, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return r, fmt.Errorf("reading the resource usage of process %d: %w", pid, err)
	}
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return r, fmt.Errorf("reading the threads of process %d: %w", pid, err)
	}
	for _, t := range threads { // stat of the process has a resolution of 10 ms
		time, err := t.Schedstat()
		if err != nil {
			return r, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		r.CPU += float64(time.RunningNanoseconds) / 1e9
	}
	status, err := process.NewStatus()
	r.Resident, r.Peak = status.VmRSS, status.VmHWM
	return r, err
}
