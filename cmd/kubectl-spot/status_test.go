package main

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// A cell has whole reasons until it is long, and counts the others. The second reason may be why.
func TestReasons(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, test := range map[string]struct {
		format  string
		reasons []string
		want    string
	}{
		"none":          {"", nil, "<none>"},
		"short reasons": {"", []string{"one", "two", "three"}, "one; two; three"},
		"a long one":    {"", []string{long}, long},
		"a long first":  {"", []string{long, "two", "three"}, long + "; 2 more (-o wide)"},
		"a long second": {"", []string{"one", long, "three"}, "one; " + long + "; 1 more (-o wide)"},
		"wide":          {"wide", []string{long, "two"}, long + "; two"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &printing{flags: genericclioptions.NewPrintFlags("")}
			*p.flags.OutputFormat = test.format
			if got := p.reasons(test.reasons); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
