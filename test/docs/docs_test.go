// Package docs checks the documentation against the code: it must contain the names that users look
// up.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestNamesAreDocumented(t *testing.T) {
	for name, test := range map[string]struct {
		code, doc string
		// names matches the names in the code. as is the text that the documentation must contain,
		// with the name for %.
		names *regexp.Regexp
		as    string
		// atLeast detects an expression that matches nothing.
		atLeast int
	}{
		"event reasons": {"pkg/apis/spot/events.go", "docs/events.md", regexp.MustCompile(`Reason\w+ = "(\w+)"`), "`%`", 6},
		"profiles":      {"pkg/profilemetrics/metrics.go", "docs/metrics.md", regexp.MustCompile(`(?:Name: +"|subsystem\+"_)(\w+)"`), "`spot_aware_scheduler_%`", 9},
		"scheduler":     {"pkg/plugins/replicasafety/metrics.go", "docs/metrics.md", regexp.MustCompile(`(?:Name: +"|subsystem\+"_)(\w+)"`), "`spot_aware_scheduler_%`", 2},
		"extender":      {"pkg/extender/metrics.go", "docs/metrics.md", regexp.MustCompile(`(?:Name: +"|subsystem\+"_)(\w+)"`), "%`", 2},
		"certificates":  {"cmd/extender/metrics.go", "docs/metrics.md", regexp.MustCompile(`"spot_aware_scheduler_(\w+)"`), "`spot_aware_scheduler_%`", 1},
		"takeovers":     {"cmd/scheduler/takeover.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 1},
		"rounds":        {"pkg/controller/loop/metrics.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 2},
		"caches":        {"cmd/controller/metrics.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 1},
		"defects":       {"pkg/controller/round/defects.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 1},
		"moves":         {"pkg/controller/execution/metrics.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 4},
		"gating":        {"pkg/controller/gating/metrics.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 4},
		"gates":         {"pkg/failsafe/gates.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 1},
		"panics":        {"pkg/recovery/recovery.go", "docs/metrics.md", regexp.MustCompile(`Name: +"(\w+)"`), "`spot_aware_scheduler_%`", 1},
		"costs":         {"pkg/controller/costs/costs.go", "docs/metrics.md", regexp.MustCompile(`subsystem\+"_(\w+)"`), "`spot_aware_scheduler_%`", 4},
		"settings":      {"pkg/apis/controller/types.go", "docs/tuning.md", regexp.MustCompile("`json:\"(\\w+),omitempty\"`"), "%", 20},
		"annotations":   {"pkg/apis/spot/names.go", "docs/tuning.md", regexp.MustCompile(`(?:Demand|Pool|Unsatisfiable|After|Relief|Overflow|Protect|Surge)Annotation += "([\w./-]+)"`), "`%`", 8},
		"outcomes":      {"pkg/decision/admit.go", "docs/metrics.md", regexp.MustCompile(`Outcome += "([\w-]+)"`), "`%`", 7},
		"args":          {"pkg/apis/config/types.go", "docs/tuning.md", regexp.MustCompile("`json:\"(\\w+),omitempty\"`"), "%", 12},
	} {
		t.Run(name, func(t *testing.T) {
			code, doc := read(t, test.code), read(t, test.doc)
			names := test.names.FindAllStringSubmatch(code, -1)
			if len(names) < test.atLeast {
				t.Fatalf("%s: found %d names, expected at least %d: the expression matches too little", test.code, len(names), test.atLeast)
			}
			for _, match := range names {
				if want := strings.ReplaceAll(test.as, "%", match[1]); !strings.Contains(doc, want) {
					t.Errorf("%s does not mention %s of %s", test.doc, want, test.code)
				}
			}
		})
	}
}

// TestNamesExist checks that the code contains each metric and event reason that has a row in the
// reference.
func TestNamesExist(t *testing.T) {
	for name, test := range map[string]struct {
		doc, heading string
		// code lists the folders and files with the names, as string literals. The prefix may be a
		// constant.
		code   []string
		prefix string
		// atLeast detects an expression that matches nothing.
		atLeast int
	}{
		"metrics": {"docs/metrics.md", "metric", []string{"pkg", "cmd"}, "spot_aware_scheduler_", 25},
		"events":  {"docs/events.md", "reason", []string{"pkg/apis/spot/events.go"}, "", 25},
	} {
		t.Run(name, func(t *testing.T) {
			code := ""
			for _, path := range test.code {
				code += goCode(t, path)
			}
			page := parse(test.doc, read(t, test.doc))
			found := 0
			for _, name := range page.firstColumn(test.heading) {
				name, ok := strings.CutPrefix(name, test.prefix)
				if !ok {
					continue // a name without its prefix, in another table
				}
				found++
				literal := regexp.MustCompile(`"(?:` + test.prefix + `|_)?` + name + `"`)
				if !literal.MatchString(code) {
					t.Errorf("%s describes %s, which %v do not contain", test.doc, test.prefix+name, test.code)
				}
			}
			if found < test.atLeast {
				t.Errorf("%s: found %d names, expected at least %d: this test reads too few tables", test.doc, found, test.atLeast)
			}
		})
	}
}

// goCode returns the content of a Go file, or of all Go files in a folder except tests.
func goCode(t *testing.T, path string) string {
	t.Helper()
	code := ""
	err := filepath.WalkDir(filepath.Join(root, path), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		data, err := os.ReadFile(file)
		code += string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// TestMessagesAreReal checks that the code contains each message that a page explains.
func TestMessagesAreReal(t *testing.T) {
	literal, verb := regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`), regexp.MustCompile(`%[dsq]`)
	var made []*regexp.Regexp
	for _, file := range []string{"pkg/decision/admit.go", "pkg/workload/owners.go", "pkg/plugins/gang/plugin.go"} {
		for _, quoted := range literal.FindAllString(read(t, file), -1) {
			if words, err := strconv.Unquote(quoted); err == nil && strings.Contains(words, " ") {
				parts := verb.Split(words, -1)
				for i := range parts {
					parts[i] = regexp.QuoteMeta(parts[i])
				}
				made = append(made, regexp.MustCompile("^"+strings.Join(parts, ".*")+"$"))
			}
		}
	}
	found := 0
	for _, page := range pages(t) {
		for _, message := range page.firstColumn("message") {
			found++
			if !slices.ContainsFunc(made, func(m *regexp.Regexp) bool { return m.MatchString(message) }) {
				t.Errorf("%s: the code does not contain %q", page.file, message)
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d messages, expected at least 10: the expressions match too little", found)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
