package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFindings checks that each rule finds a violation, and that allowed text has none.
func TestFindings(t *testing.T) {
	long := strings.Repeat("word ", 36)
	for name, test := range map[string]struct {
		file, text string
		want       []string
	}{
		"plain": {"pkg/a/a.go", "// Package a evicts pods.\npackage a\n", nil},
		"banned word in a comment": {
			"pkg/a/a.go", "// Package a zorps pods.\npackage a\n",
			[]string{`1: "zorps" is not the field's English: // Package a zorps pods.`},
		},
		"banned word in a message": {
			"pkg/a/a.go", "// Package a evicts pods.\npackage a\n\nvar text = \"the node zorps nothing\"\n",
			[]string{`4: "zorps" is not the field's English: the node zorps nothing`},
		},
		"allowed phrase":          {"pkg/a/a.go", "// Package a evicts pods after a zorp event.\npackage a\n", nil},
		"long comment":            {"pkg/a/a.go", "// Package a " + long[:100] + "\npackage a\n", []string{"1: comment of 113 columns, at most 100"}},
		"long sentence":           {"docs/a.md", "# A\n\n" + long + ".\n", []string{"3: sentence of 36 words, at most 35: " + long[:60] + "…"}},
		"banned word in a page":   {"docs/a.md", "Pods ZORP.\n", []string{`1: "ZORP" is not the field's English: Pods ZORP.`}},
		"banned word in a script": {"hack/a.sh", "true # pods zorp\n", []string{`1: "zorp" is not the field's English: pods zorp`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, bannedFile, "# no real word\nzorps?\nallow zorp events?\n")
			write(t, test.file, test.text)
			c, err := newChecker()
			if err == nil {
				err = c.check([]string{"."})
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range c.findings {
				got = append(got, fmt.Sprintf("%d: %s", f.line, f.text))
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
