package replay

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Step is a value that applies from a time on, until the next step.
type Step struct {
	At    time.Duration
	Count int
}

// PoolTrace is the recorded capacity of a spot pool.
type PoolTrace struct {
	Name string
	// Steps are sorted by time. The capacity is 0 before the first step.
	Steps []Step
	// End is the end of the recording.
	End time.Duration
}

// Capacity is the recorded capacity of the pools of a dataset, sorted by name.
type Capacity struct {
	Dataset string
	Pools   []PoolTrace
}

// endOfPool is the capacity in the last row of a pool.
const endOfPool = "end"

// ReadCapacity returns the pools of a dataset. It reads the columns dataset, pool, offset_seconds
// and capacity. The rows of a pool must be sorted by time and end with the capacity "end". Errors
// name the file and the line.
func ReadCapacity(file string, from io.Reader, dataset string) (Capacity, error) {
	rows, err := readTable(file, from, "dataset", "pool", "offset_seconds", "capacity")
	if err != nil {
		return Capacity{}, err
	}
	datasets := map[string]bool{}
	pools, lines := map[string]*PoolTrace{}, map[string]int{} // the last line of each pool
	for _, r := range rows {
		name, err := r.name("dataset")
		if err != nil {
			return Capacity{}, err
		}
		datasets[name] = true
		if name != dataset {
			continue
		}
		if err := addCapacity(pools, r); err != nil {
			return Capacity{}, err
		}
		lines[r.values["pool"]] = r.line
	}
	if !datasets[dataset] {
		known := strings.Join(sortedKeys(datasets), ", ")
		return Capacity{}, &InputError{File: file, Problem: fmt.Sprintf("unknown dataset %q: expected one of %s", dataset, known)}
	}
	result := Capacity{Dataset: dataset}
	for _, name := range sortedKeys(pools) {
		pool := pools[name]
		if pool.End == 0 {
			return Capacity{}, &InputError{File: file, Line: lines[name],
				Problem: fmt.Sprintf("the last row of pool %q: expected the capacity \"end\": rows are missing", name)}
		}
		result.Pools = append(result.Pools, *pool)
	}
	return result, nil
}

// addCapacity adds a row to its pool.
func addCapacity(pools map[string]*PoolTrace, r row) error {
	name, err := r.name("pool")
	if err != nil {
		return err
	}
	at, err := r.offset("offset_seconds")
	if err != nil {
		return err
	}
	if !isObjectName(name) {
		return r.invalid("pool", objectNameRule)
	}
	pool := pools[name]
	if pool == nil {
		pool = &PoolTrace{Name: name}
		pools[name] = pool
	}
	if pool.End != 0 {
		return r.problem("pool %q has a row after the row with the capacity \"end\"", name)
	}
	isEnd := r.values["capacity"] == endOfPool
	if n := len(pool.Steps); n > 0 && (at < pool.Steps[n-1].At || at == pool.Steps[n-1].At && !isEnd) {
		return r.problem("offset_seconds: %q: expected more than %g, the time of the previous row of pool %q: rows must be sorted",
			r.values["offset_seconds"], pool.Steps[n-1].At.Seconds(), name)
	}
	if isEnd {
		if len(pool.Steps) == 0 {
			return r.problem("pool %q has no row before the row with the capacity \"end\"", name)
		}
		pool.End = at
		return nil
	}
	count, err := r.count("capacity")
	if err != nil {
		return err
	}
	pool.Steps = append(pool.Steps, Step{At: at, Count: count})
	return nil
}

// Span returns the time from the first row to the last row of any pool.
func (c Capacity) Span() (begin, end time.Duration) {
	begin = maxOffset
	for _, pool := range c.Pools {
		begin, end = min(begin, pool.Steps[0].At), max(end, pool.End)
	}
	return begin, end
}

// Common returns the time in which all pools were recorded. It is empty, with end before begin, if
// there is none.
func (c Capacity) Common() (begin, end time.Duration) {
	end = maxOffset
	for _, pool := range c.Pools {
		begin, end = max(begin, pool.Steps[0].At), min(end, pool.End)
	}
	return begin, end
}

// at returns the value of the steps at a time; 0 before the first step.
func at(steps []Step, when time.Duration) int {
	i, found := slices.BinarySearchFunc(steps, when, func(s Step, when time.Duration) int { return cmp.Compare(s.At, when) })
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return steps[i].Count
}

// window returns the steps within a window, with times relative to its begin. The first step is at
// 0, and each step changes the value.
func window(steps []Step, w Window) []Step {
	result := []Step{{Count: at(steps, w.From)}}
	for _, s := range steps {
		if s.At > w.From && s.At < w.From+w.Length && s.Count != result[len(result)-1].Count {
			result = append(result, Step{At: s.At - w.From, Count: s.Count})
		}
	}
	return result
}

// Window is the part of a trace that is replayed.
type Window struct {
	// From is the start of the window, on the time scale of the trace.
	From time.Duration
	// Length is the duration of the window.
	Length time.Duration
}
