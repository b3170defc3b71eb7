package live

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// shardsVariable is the number of processes that run the tests of a package side by side.
	shardsVariable = "SPOT_SHARDS"
	// listVariable makes a test binary run without a control plane, to list its tests.
	listVariable = "SPOT_LIST_TESTS"
	// usualSeconds is the duration that a test without a record is expected to have.
	usualSeconds = 30
)

// Sharded runs the tests of a package and returns the exit status. run starts a control plane, runs
// the tests on it and stops it. If SPOT_SHARDS is a number above 1 and -run names no subtest,
// Sharded instead starts that many processes of the test binary. Each calls run for a part of the
// tests, so each has a control plane of its own. Most live tests wait most of the time.
//
// testdata/seconds.txt of the package contains the duration of tests, as lines "TestName seconds".
// The durations balance the parts and have no other effect.
func Sharded(m *testing.M, run func() int) int {
	if os.Getenv(listVariable) != "" {
		return m.Run()
	}
	flag.Parse()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(shardsVariable), "1"))
	if err != nil || n < 1 {
		fmt.Fprintf(os.Stderr, "%s=%q: want a number of processes, at least 1\n", shardsVariable, os.Getenv(shardsVariable))
		return 2
	}
	selected := cmp.Or(flag.Lookup("test.run").Value.String(), "^Test")
	if n == 1 || strings.Contains(selected, "/") {
		return run()
	}
	tests, err := listTests(selected, flag.Lookup("test.skip").Value.String())
	if err != nil {
		fmt.Fprintln(os.Stderr, "listing the tests:", err)
		return 1
	}
	if n = min(n, len(tests)); n < 2 {
		return run()
	}
	return runShards(divide(tests, seconds("testdata/seconds.txt"), n))
}

// listTests returns the names of the tests in the binary that the expression selected matches and
// the expression skipped, unless it is empty, does not match.
func listTests(selected, skipped string) ([]string, error) {
	skip, err := regexp.Compile(skipped)
	if err != nil {
		return nil, err
	}
	command := exec.Command(os.Args[0], "-test.list", selected)
	command.Env = append(os.Environ(), listVariable+"=1")
	output, err := command.Output()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(string(output)), func(test string) bool { return skipped != "" && skip.MatchString(test) }), nil
}

// seconds returns the recorded durations of tests; none if the file cannot be read.
func seconds(file string) map[string]float64 {
	recorded := map[string]float64{}
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if name, text, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if s, err := strconv.ParseFloat(text, 64); err == nil {
				recorded[name] = s
			}
		}
	}
	return recorded
}

// divide divides the tests into n parts of about the same duration: the longest test first, each to
// the part with the shortest duration so far. Every test is in exactly one part.
func divide(tests []string, recorded map[string]float64, n int) [][]string {
	duration := func(test string) float64 {
		if s, ok := recorded[test]; ok {
			return s
		}
		return usualSeconds
	}
	ordered := slices.Clone(tests)
	slices.SortFunc(ordered, func(a, b string) int { return cmp.Or(cmp.Compare(duration(b), duration(a)), strings.Compare(a, b)) })
	parts, sums := make([][]string, n), make([]float64, n)
	for _, test := range ordered {
		shortest := slices.Index(sums, slices.Min(sums))
		parts[shortest] = append(parts[shortest], test)
		sums[shortest] += duration(test)
	}
	return slices.DeleteFunc(parts, func(part []string) bool { return len(part) == 0 })
}

// runShards runs each part of the tests in a process of its own, prints their outputs one after the
// other, and returns the exit status: 0 if all parts passed and ran all their tests.
func runShards(parts [][]string) (status int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		part   int
		output []byte
		err    error
	}
	results := make(chan result)
	for i, part := range parts {
		quoted := make([]string, len(part))
		for j, test := range part {
			quoted[j] = regexp.QuoteMeta(test)
		}
		// -test.v lists every test that has run; the output is filtered below.
		arguments := append(slices.Clone(os.Args[1:]), "-test.run", "^("+strings.Join(quoted, "|")+")$", "-test.v")
		command := exec.CommandContext(ctx, os.Args[0], arguments...)
		command.Env = append(os.Environ(), shardsVariable+"=1")
		// If this process is killed, for example by the timeout of go test, no shard remains.
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		go func() {
			began := time.Now()
			output, err := command.CombinedOutput()
			fmt.Printf("shard %d: %d tests in %s\n", i+1, len(part), time.Since(began).Round(time.Second))
			results <- result{i, output, err}
		}()
	}
	for range parts {
		r := <-results
		missing := notRun(parts[r.part], r.output)
		if r.err != nil || len(missing) > 0 || testing.Verbose() {
			fmt.Printf("shard %d: %v\n%s", r.part+1, r.err, r.output)
		}
		if len(missing) > 0 {
			fmt.Printf("shard %d did not run %s\n", r.part+1, strings.Join(missing, ", "))
		}
		if r.err != nil || len(missing) > 0 {
			status = 1
		}
	}
	return status
}

// notRun returns the tests that the verbose output of a shard does not report as passed, failed or
// skipped.
func notRun(tests []string, output []byte) (missing []string) {
	reported := map[string]bool{}
	for line := range strings.Lines(string(output)) {
		if words := strings.Fields(line); len(words) >= 3 && words[0] == "---" {
			reported[words[2]] = true
		}
	}
	for _, test := range tests {
		if !reported[test] {
			missing = append(missing, test)
		}
	}
	return missing
}
