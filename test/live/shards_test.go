package live

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDivide(t *testing.T) {
	tests := []string{"TestA", "TestB", "TestC", "TestD", "TestE"}
	recorded := map[string]float64{"TestA": 10, "TestB": 100, "TestC": 50, "TestD": 45}
	if diff := cmp.Diff([][]string{{"TestB", "TestA"}, {"TestC", "TestD", "TestE"}}, divide(tests, recorded, 2)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

// Every test is in exactly one part, also if there are more parts than tests or no durations.
func TestDivideLosesNoTest(t *testing.T) {
	for n := 1; n < 8; n++ {
		for size := range 20 {
			tests := make([]string, size)
			recorded := map[string]float64{}
			for i := range tests {
				tests[i] = fmt.Sprintf("Test%02d", i)
				if i%3 == 0 {
					recorded[tests[i]] = float64(i * i)
				}
			}
			got := slices.Concat(divide(tests, recorded, n)...)
			slices.Sort(got)
			if !slices.Equal(got, tests) {
				t.Errorf("%d parts of %d tests contain %v", n, size, got)
			}
		}
	}
}

func TestNotRun(t *testing.T) {
	output := "=== RUN   TestA\n--- PASS: TestA (0.01s)\n=== RUN   TestB\n    --- PASS: TestB/x (0.00s)\npanic: x\n"
	if diff := cmp.Diff([]string{"TestB"}, notRun([]string{"TestA", "TestB"}, []byte(output))); diff != "" {
		t.Errorf("missing tests (-want +got):\n%s", diff)
	}
}
