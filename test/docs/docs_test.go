// Package docs holds the documentation to the code: what users look up by name is there.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestNamesAreDocumented(t *testing.T) {
	for name, test := range map[string]struct {
		code, doc string
		// names finds the names in the code; as makes of one what the documentation must hold.
		names *regexp.Regexp
		as    string
		// atLeast guards against an expression that finds nothing.
		atLeast int
	}{
		"event reasons": {"pkg/kube/events.go", "docs/events.md", regexp.MustCompile(`Reason\w+ = "(\w+)"`), "`%`", 6},
		"metrics":       {"pkg/plugins/placement/metrics.go", "docs/metrics.md", regexp.MustCompile(`(?:Name: +"|subsystem\+"_)(\w+)"`), "`spot_aware_scheduler_%`", 7},
		"annotations":   {"pkg/decision/annotations.go", "README.md", regexp.MustCompile(`Annotation += "([\w./-]+)"`), "`%`", 4},
		"outcomes":      {"pkg/decision/admit.go", "docs/metrics.md", regexp.MustCompile(`Outcome += "([\w-]+)"`), "`%`", 7},
		"args":          {"pkg/apis/config/types.go", "README.md", regexp.MustCompile("`json:\"(\\w+),omitempty\"`"), "%", 12},
	} {
		t.Run(name, func(t *testing.T) {
			code, doc := read(t, test.code), read(t, test.doc)
			names := test.names.FindAllStringSubmatch(code, -1)
			if len(names) < test.atLeast {
				t.Fatalf("%s: found %d names, expected at least %d: this test looks for the wrong thing", test.code, len(names), test.atLeast)
			}
			for _, match := range names {
				if want := strings.ReplaceAll(test.as, "%", match[1]); !strings.Contains(doc, want) {
					t.Errorf("%s does not mention %s of %s", test.doc, want, test.code)
				}
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
