package main

import (
	"os"
	"strings"
	"testing"
)

// TestMistakes checks that a page with a mistake in its markers is refused. make verify compares
// the tables.
func TestMistakes(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	const marker = "<!-- table: pkg/controller/costs -->\n"
	if !strings.Contains(string(page), marker) {
		t.Fatalf("docs/metrics.md does not contain %q", marker)
	}
	for want, text := range map[string]string{
		"":              marker,
		"no marker has": "",
		"found no":      strings.Replace(marker, "costs", "costs pkg", 1),
		"second marker": marker + "\n" + marker,
	} {
		_, err := fill(strings.Replace(string(page), marker, text, 1), "metrics", "../..")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}
