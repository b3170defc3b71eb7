package replay

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadCapacity(t *testing.T) {
	const header = "dataset,pool,offset_seconds,capacity\n"
	got, err := ReadCapacity("c.csv", strings.NewReader("\ufeff"+header+
		"other,x,0,1\r\nd,b,0,2\nd,a,60,0\nother,x,5,end\nd,a,120.5,3\nd,b,90,end\nd,a,120.5,end\n"), "d")
	must(t, err)
	want := Capacity{Dataset: "d", Pools: []PoolTrace{
		{Name: "a", Steps: []Step{{At: time.Minute}, {At: 120500 * time.Millisecond, Count: 3}}, End: 120500 * time.Millisecond},
		{Name: "b", Steps: []Step{{Count: 2}}, End: 90 * time.Second},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}

	for name, test := range map[string]struct {
		text     string
		wantLine int
		want     string
	}{
		"empty file":      {"", 0, "empty"},
		"no rows":         {header, 1, "no rows"},
		"no column":       {"dataset,pool,offset_seconds\nd,a,0\n", 1, `"capacity"`},
		"column twice":    {"dataset,pool,offset_seconds,capacity,pool\nd,a,0,1,a\n", 1, "twice"},
		"short row":       {header + "d,a,0,1\nd,a,10\n", 3, "wrong number of fields"},
		"unknown dataset": {header + "e,a,0,1\ne,a,1,end\n", 0, "expected one of e"},
		"no pool":         {header + "d,,0,1\n", 2, "pool"},
		"unsorted":        {header + "d,a,10,1\nd,a,5,2\nd,a,20,end\n", 3, "sorted"},
		"same time":       {header + "d,a,10,1\nd,a,10,2\nd,a,20,end\n", 3, "sorted"},
		"negative":        {header + "d,a,0,-1\n", 2, `capacity: "-1": expected an integer from 0 to`},
		"fraction":        {header + "d,a,0,1.5\n", 2, "capacity"},
		"negative offset": {header + "d,a,-1,1\n", 2, "offset_seconds"},
		"offset NaN":      {header + "d,a,NaN,1\n", 2, "offset_seconds"},
		"huge offset":     {header + "d,a,1e18,1\n", 2, "offset_seconds"},
		"no end":          {header + "d,a,0,1\nd,b,0,1\nd,a,9,2\nd,b,9,end\n", 4, "rows are missing"},
		"only end":        {header + "d,a,0,end\n", 2, "no row before"},
		"two ends":        {header + "d,a,0,1\nd,a,1,end\nd,a,1,end\n", 4, "after the row"},
		"huge capacity":   {header + "d,a,0,99999999999\n", 2, "capacity"},
		"not a name":      {header + "d,---,0,1\n", 2, "expected a name"},
		"row after end":   {header + "d,a,0,1\nd,a,1,end\nd,a,2,1\n", 4, "after the row"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadCapacity("c.csv", strings.NewReader(test.text), "d")
			wantInputError(t, err, "c.csv", test.wantLine, test.want)
		})
	}
}

// wantInputError fails the test unless err is an InputError of this file and line.
func wantInputError(t *testing.T, err error, file string, line int, text string) {
	t.Helper()
	var input *InputError
	if !errors.As(err, &input) {
		t.Fatalf("error %v, want an InputError", err)
	}
	if input.File != file || input.Line != line || !strings.Contains(err.Error(), text) {
		t.Errorf("error %q in line %d, want %s:%d and %q", err, input.Line, file, line, text)
	}
}

func TestReadWorkload(t *testing.T) {
	const servicesHeader = "service,max_replicas,cpu_cores,memory_gib\n"
	const changesHeader = "service,offset_seconds,replicas\n"
	for name, test := range map[string]struct {
		services, changes string
		wantFile          string
		wantLine          int
		want              string
	}{
		"duplicate service":   {"a,1,1,1\na,1,1,1\n", "", "s.csv", 3, "line 2"},
		"no cores":            {"a,1,0,1\n", "", "s.csv", 2, "cpu_cores"},
		"memory not number":   {"a,1,1,x\n", "", "s.csv", 2, "memory_gib"},
		"unknown service":     {"a,1,1,1\n", "a,0,1\nb,0,1\n", "r.csv", 3, `"b" is not in s.csv`},
		"equal object names":  {"a_1,1,1,1\na-1,1,1,1\n", "", "s.csv", 3, "another name"},
		"not a name":          {"é,1,1,1\n", "", "s.csv", 2, "expected a name"},
		"late first row":      {"a,1,1,1\n", "a,60,1\n", "r.csv", 2, "expected 0"},
		"unsorted":            {"a,2,1,1\n", "a,0,1\na,60,2\na,30,1\n", "r.csv", 4, "sorted"},
		"above the maximum":   {"a,1,1,1\n", "a,0,2\n", "r.csv", 2, "at most 1"},
		"negative replicas":   {"a,1,1,1\n", "a,0,-2\n", "r.csv", 2, "replicas"},
		"service without row": {"a,1,1,1\nb,1,1,1\n", "a,0,1\n", "r.csv", 0, `service "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			services, err := ReadServices("s.csv", strings.NewReader(servicesHeader+test.services))
			if err == nil {
				err = AddChanges("s.csv", services, "r.csv", strings.NewReader(changesHeader+test.changes))
			}
			wantInputError(t, err, test.wantFile, test.wantLine, test.want)
		})
	}
}

func TestReadPrices(t *testing.T) {
	const header = "instance_type,allocatable_cpu_m,allocatable_memory_mib,max_pods,on_demand_usd_per_hour,spot_usd_per_hour_est\n"
	prices, err := ReadPrices("p.csv", strings.NewReader(header+"a,3920,14162,58,0.192,0.06\nb,,,,3.06,0.612\n"))
	must(t, err)
	if got, want := prices["a"], (Price{CPUMilli: 3920, MemoryMiB: 14162, MaxPods: 58, OnDemandUSD: 0.192, SpotUSD: 0.06}); got != want {
		t.Errorf("price %+v, want %+v", got, want)
	}
	wantInputError(t, prices["b"].incomplete, "p.csv", 3, "has no")
	_, err = ReadPrices("p.csv", strings.NewReader(header+"a,3920,14162,58,-0.1,0.06\n"))
	wantInputError(t, err, "p.csv", 2, "on_demand_usd_per_hour")
	_, err = ReadPrices("p.csv", strings.NewReader(header+"a,0,14162,58,0.1,0.06\n"))
	wantInputError(t, err, "p.csv", 2, "allocatable_cpu_m")
	_, err = ReadPrices("p.csv", strings.NewReader(header+"a,1,1,1,1,1\na,1,1,1,1,1\n"))
	wantInputError(t, err, "p.csv", 3, "line 2")
}

func TestReadInputs(t *testing.T) {
	in, err := ReadInputs(Files{}, SampleDataset)
	must(t, err)
	if len(in.Capacity.Pools) != 3 || len(in.Services) < 20 || in.Prices[SampleInstanceType].incomplete != nil {
		t.Errorf("the sample has %d pools and %d services", len(in.Capacity.Pools), len(in.Services))
	}
	if _, err := ReadInputs(Files{Prices: "p.csv"}, SampleDataset); err == nil || !strings.Contains(err.Error(), "--capacity") {
		t.Errorf("without --capacity: error %v", err)
	}
	file := filepath.Join(t.TempDir(), "c.csv")
	must(t, os.WriteFile(file, []byte("dataset,pool,offset_seconds,capacity\nd,a,0,1\nd,a,9,end\n"), 0o600))
	if _, err := ReadInputs(Files{Capacity: file}, "d"); err == nil || !strings.Contains(err.Error(), "--prices is missing") {
		t.Errorf("without --prices: error %v", err)
	}
	if _, err := ReadInputs(Files{Capacity: "/nowhere"}, "d"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: error %v", err)
	}
}
