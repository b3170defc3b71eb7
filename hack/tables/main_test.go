package main

import (
	"os"
	"strings"
	"testing"
)

// TestPages checks that the committed pages are current, and that each kind of mistake is found.
func TestPages(t *testing.T) {
	for kind, markers := range map[string]struct{ first, more string }{
		"metrics": {"table: pkg/controller/loop", "pkg"},
		"events":  {"table: Autoscalers", "Others"},
	} {
		data, err := os.ReadFile("../../docs/" + kind + ".md")
		if err != nil {
			t.Fatal(err)
		}
		page := string(data)
		if got, err := fill(page, kind, "../.."); err != nil || got != page {
			t.Errorf("%s: %v, want no error and the same page (make generate):\n%s", kind, err, got)
		}
		for mistake, changed := range map[string]string{
			"no marker has": strings.Replace(page, markers.first, "table:", 1),
			"found no":      strings.Replace(page, markers.first, markers.first+" "+markers.more, 1),
			"second marker": page + "\n<!-- " + markers.first + " -->\n",
		} {
			if _, err := fill(changed, kind, "../.."); err == nil || !strings.Contains(err.Error(), mistake) {
				t.Errorf("%s: %v, want an error with %q", kind, err, mistake)
			}
		}
	}
}
