package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// TestRulesAreDocumented checks that the table in docs/operations.md has the rule of each cause.
func TestRulesAreDocumented(t *testing.T) {
	want := map[string]string{}
	for cause, rule := range safety.Rules {
		var bounds []string
		for _, bound := range []struct {
			applies bool
			text    string
		}{
			{rule.Limited, "limits"},
			{rule.SavesCost, "schedules"},
			// Package migration decides this, not a rule.
			{cause == safety.Reclaim, "breaker (ready replacement)"},
			{rule.Confirmed, "breaker"},
			{rule.Checked, "live read"},
			{true, "pause"},
		} {
			if bound.applies {
				bounds = append(bounds, bound.text)
			}
		}
		want["`"+string(cause)+"`"] = strings.Join(bounds, ", ")
	}
	got := map[string]string{}
	for _, line := range strings.Split(read(t, "docs/operations.md"), "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| `") {
			got[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(cells[2], " |")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/operations.md differs from safety.Rules (-want +got):\n%s", diff)
	}
}
