package replay

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	first, second := sampleReport(t), sampleReport(t)
	second.Seed = 2
	second.Arms[0].Outages = 4
	text := Summary([]*Report{first, second})
	for _, want := range []string{"seed 1: ", "seed 2: ", "PARTIAL", "A partial arm does not count", "| controller |", " (1 to 4) "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the summary:\n%s", want, text)
		}
	}
	if strings.Contains(text, "| on-demand |") {
		t.Errorf("a partial arm has figures:\n%s", text)
	}
}

// TestSavedNodes checks the cost of nodes compared with all on-demand, which needs that arm.
func TestSavedNodes(t *testing.T) {
	r := sampleReport(t)
	all := &r.Arms[1]
	all.Partial, all.NodeHoursCost, r.Arms[0].NodeHoursCost = false, 8, 6
	text := Summary([]*Report{r})
	for _, want := range []string{"| below all on-demand by nodes, % | node-hours, $ |", " | 25 | 6.00 | ", " | 0 | 8.00 | "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the summary:\n%s", want, text)
		}
	}
	all.Partial = true
	if text := Summary([]*Report{r}); !strings.Contains(text, " |  | 6.00 | ") {
		t.Errorf("a figure without an arm to compare with:\n%s", text)
	}
}

func TestSpread(t *testing.T) {
	for want, values := range map[string][]float64{"": nil, "2": {2, 2}, "2 (1 to 3)": {1, 2, 3}, "0": {-0.01}} {
		if got := spread("%.0f", values); got != want {
			t.Errorf("the spread of %v is %q, want %q", values, got, want)
		}
	}
}
