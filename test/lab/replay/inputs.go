package replay

import (
	"embed"
	"fmt"
	"io"
	"os"
	"strings"
)

// Files are the paths of the input files. With an empty Capacity all files belong to
// the project's own sample.
type Files struct {
	Capacity, Prices, Services, Changes string
	// Pools is optional. The report quotes the kind, the source and the notes of the pools.
	Pools string
}

// SampleDataset is the dataset of the sample.
const SampleDataset = "sample"

// SampleInstanceType is the instance type of the sample.
const SampleInstanceType = "example.xlarge"

//go:embed sample
var sample embed.FS

// Inputs are the decoded input files.
type Inputs struct {
	Capacity Capacity
	Prices   map[string]Price
	Services []ServiceTrace
	// Pools describes the pools of the dataset. Empty: unknown.
	Pools []PoolNote
	// Source describes the files to readers of the report.
	Source string
}

// Price contains the prices and the allocatable resources of an instance type.
type Price struct {
	CPUMilli, MemoryMiB int64
	MaxPods             int
	OnDemandUSD         float64 // per hour
	SpotUSD             float64 // per hour, an estimate
	// incomplete is the error if a replay needs this instance type; nil if no value is missing.
	incomplete error
}

// ServiceTrace is a recorded service.
type ServiceTrace struct {
	Name string
	// Max is its largest number of replicas in the whole recording.
	Max       int
	CPUMilli  int64 // per replica
	MemoryMiB int64 // per replica
	// Replicas are sorted by time, from 0.
	Replicas []Step
}

// PoolNote describes how a pool was recorded.
type PoolNote struct{ Pool, Kind, Source, License, Note string }

// ReadInputs reads the files. An error in a file names the file and the line.
func ReadInputs(files Files, dataset string) (Inputs, error) {
	var in Inputs
	open := func(path string) (io.ReadCloser, error) { return os.Open(path) }
	if files.Capacity == "" {
		if files != (Files{}) {
			return in, fmt.Errorf("--capacity is missing: expected --capacity, --prices, --services and --changes together")
		}
		files = Files{
			Capacity: "sample/capacity_changes.csv", Prices: "sample/prices.csv",
			Services: "sample/services.csv", Changes: "sample/replica_changes.csv",
		}
		open = func(path string) (io.ReadCloser, error) { return sample.Open(path) }
		in.Source = "the project's own sample"
	} else {
		in.Source = fmt.Sprintf("%s, %s, %s, %s", files.Capacity, files.Prices, files.Services, files.Changes)
	}
	read := func(flag, path string, decode func(io.Reader) error) error {
		if path == "" {
			return fmt.Errorf("--%s is missing: expected --capacity, --prices, --services and --changes together", flag)
		}
		file, err := open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		return decode(file)
	}
	if err := read("capacity", files.Capacity, func(r io.Reader) (err error) {
		in.Capacity, err = ReadCapacity(files.Capacity, r, dataset)
		return err
	}); err != nil {
		return in, err
	}
	if err := read("prices", files.Prices, func(r io.Reader) (err error) {
		in.Prices, err = ReadPrices(files.Prices, r)
		return err
	}); err != nil {
		return in, err
	}
	if err := read("services", files.Services, func(r io.Reader) (err error) {
		in.Services, err = ReadServices(files.Services, r)
		return err
	}); err != nil {
		return in, err
	}
	if err := read("changes", files.Changes, func(r io.Reader) error {
		return AddChanges(files.Services, in.Services, files.Changes, r)
	}); err != nil {
		return in, err
	}
	if files.Pools == "" {
		return in, nil
	}
	return in, read("pools", files.Pools, func(r io.Reader) (err error) {
		in.Pools, err = ReadPools(files.Pools, r, dataset)
		return err
	})
}

// ReadPrices returns the instance types by name. A missing price or resource is an error only if
// the instance type is used.
func ReadPrices(file string, from io.Reader) (map[string]Price, error) {
	columns := []string{"allocatable_cpu_m", "allocatable_memory_mib", "max_pods", "on_demand_usd_per_hour", "spot_usd_per_hour_est"}
	rows, err := readTable(file, from, append([]string{"instance_type"}, columns...)...)
	if err != nil {
		return nil, err
	}
	prices, lines := map[string]Price{}, map[string]int{}
	for _, r := range rows {
		name, err := r.name("instance_type")
		if err != nil {
			return nil, err
		}
		if line, ok := lines[name]; ok {
			return nil, r.problem("instance type %q is also in line %d", name, line)
		}
		lines[name] = r.line
		numbers := map[string]float64{}
		var incomplete error
		for _, column := range columns {
			if r.values[column] == "" {
				incomplete = r.problem("instance type %q has no %s", name, column)
				continue
			}
			least := 0.0
			if strings.HasPrefix(column, "allocatable") {
				least = 1
			}
			if numbers[column], err = r.number(column, least); err != nil {
				return nil, err
			}
		}
		prices[name] = Price{
			CPUMilli: int64(numbers["allocatable_cpu_m"]), MemoryMiB: int64(numbers["allocatable_memory_mib"]),
			MaxPods: int(numbers["max_pods"]), OnDemandUSD: numbers["on_demand_usd_per_hour"], SpotUSD: numbers["spot_usd_per_hour_est"],
			incomplete: incomplete,
		}
	}
	return prices, nil
}

// ReadServices returns the services without their replica changes, in the order of the file.
func ReadServices(file string, from io.Reader) ([]ServiceTrace, error) {
	rows, err := readTable(file, from, "service", "max_replicas", "cpu_cores", "memory_gib")
	if err != nil {
		return nil, err
	}
	var services []ServiceTrace
	lines, objects := map[string]int{}, map[string]string{}
	for _, r := range rows {
		name, err := r.name("service")
		if err != nil {
			return nil, err
		}
		if line, ok := lines[name]; ok {
			return nil, r.problem("service %q is also in line %d", name, line)
		}
		lines[name] = r.line
		if !isObjectName(name) {
			return nil, r.invalid("service", objectNameRule)
		}
		if other, ok := objects[objectName(name)]; ok {
			return nil, r.invalid("service", fmt.Sprintf("another name: it differs from service %q only in characters that object names "+
				"do not have", other))
		}
		objects[objectName(name)] = name
		most, err := r.count("max_replicas")
		if err != nil {
			return nil, err
		}
		cores, err := r.number("cpu_cores", 0.001)
		if err != nil {
			return nil, err
		}
		memory, err := r.number("memory_gib", 0.001)
		if err != nil {
			return nil, err
		}
		services = append(services, ServiceTrace{Name: name, Max: most, CPUMilli: int64(cores * 1000), MemoryMiB: int64(memory * 1024)})
	}
	return services, nil
}

// AddChanges adds the replica changes of a file to the services. The rows of a service must be
// sorted by time. Its first row must be at 0, and each service must have rows.
func AddChanges(servicesFile string, services []ServiceTrace, file string, from io.Reader) error {
	rows, err := readTable(file, from, "service", "offset_seconds", "replicas")
	if err != nil {
		return err
	}
	byName := map[string]*ServiceTrace{}
	for i := range services {
		byName[services[i].Name] = &services[i]
	}
	for _, r := range rows {
		s := byName[r.values["service"]]
		if s == nil {
			return r.problem("service %q is not in %s", r.values["service"], servicesFile)
		}
		at, err := r.offset("offset_seconds")
		if err != nil {
			return err
		}
		replicas, err := r.count("replicas")
		if err != nil {
			return err
		}
		n := len(s.Replicas)
		switch {
		case n == 0 && at != 0:
			return r.problem("the first row of service %q is at %s s, expected 0: rows are missing", s.Name, r.values["offset_seconds"])
		case n > 0 && at <= s.Replicas[n-1].At:
			return r.problem("offset_seconds: %q: not after the previous row of service %q: rows must be sorted",
				r.values["offset_seconds"], s.Name)
		case replicas > s.Max:
			return r.problem("replicas: %d: expected at most %d, the max_replicas of service %q", replicas, s.Max, s.Name)
		}
		s.Replicas = append(s.Replicas, Step{At: at, Count: replicas})
	}
	for _, s := range services {
		if len(s.Replicas) == 0 {
			return &InputError{File: file, Problem: fmt.Sprintf("no rows for service %q of %s", s.Name, servicesFile)}
		}
	}
	return nil
}

// ReadPools returns the notes about the pools of a dataset, in the order of the file.
func ReadPools(file string, from io.Reader, dataset string) ([]PoolNote, error) {
	rows, err := readTable(file, from, "dataset", "pool", "kind", "licence", "source", "note")
	if err != nil {
		return nil, err
	}
	var notes []PoolNote
	for _, r := range rows {
		if r.values["dataset"] == dataset {
			notes = append(notes, PoolNote{
				Pool: r.values["pool"], Kind: r.values["kind"], Source: r.values["source"], License: r.values["licence"], Note: r.values["note"],
			})
		}
	}
	return notes, nil
}
