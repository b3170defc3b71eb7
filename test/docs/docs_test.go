// Package docs checks the documentation against the code: it must contain the names that users look
// up.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
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
		"settings": {"pkg/apis/controller/types.go", "docs/tuning.md", regexp.MustCompile("`json:\"(\\w+),omitempty\"`"), "%", 20},
		"outcomes": {"pkg/decision/admit.go", "docs/metrics.md", regexp.MustCompile(`Outcome += "([\w-]+)"`), "`%`", 7},
		"args":     {"pkg/apis/config/types.go", "docs/tuning.md", regexp.MustCompile("`json:\"(\\w+),omitempty\"`"), "%", 12},
	} {
		t.Run(name, func(t *testing.T) {
			code, doc := read(t, test.code), read(t, test.doc)
			names := test.names.FindAllStringSubmatch(code, -1)
			if len(names) < test.atLeast {
				t.Fatalf("%s: found %d names, expected at least %d: the expression matches too little", test.code, len(names), test.atLeast)
			}
			for _, match := range names {
				if slices.ContainsFunc(decision.Settings, func(s decision.Setting) bool { return s.Name == match[1] }) {
					continue // TestSettingsAreDocumented
				}
				if want := strings.ReplaceAll(test.as, "%", match[1]); !strings.Contains(doc, want) {
					t.Errorf("%s does not mention %s of %s", test.doc, want, test.code)
				}
			}
		})
	}
}

// TestSettingsAreDocumented checks that the reference of the configuration has every setting of
// workloads, and that the page about tuning has its annotation, or its name if it has none.
func TestSettingsAreDocumented(t *testing.T) {
	reference := read(t, "docs/reference/configuration.md")
	tuning := parse("docs/tuning.md", read(t, "docs/tuning.md"))
	annotations := tuning.firstColumn("annotation")
	known := []string{spot.SurgeAnnotation}
	for _, setting := range decision.Settings {
		if !strings.Contains(reference, "\n| `"+setting.Name+"` |") {
			t.Errorf("docs/reference/configuration.md has no row for %s: make generate adds it", setting.Name)
		}
		switch {
		case setting.Annotation == "":
			if !strings.Contains(read(t, tuning.file), "`"+setting.Name+"`") {
				t.Errorf("%s does not mention %s", tuning.file, setting.Name)
			}
		case !slices.Contains(annotations, setting.Annotation):
			t.Errorf("%s has no row for %s", tuning.file, setting.Annotation)
		}
		known = append(known, setting.Annotation)
	}
	for _, annotation := range annotations {
		if !slices.Contains(known, annotation) {
			t.Errorf("%s describes the annotation %s, which is no setting", tuning.file, annotation)
		}
	}
}

// TestMessagesAreReal checks that the code contains each message that a page explains, or a part of
// it, because the code joins some messages.
func TestMessagesAreReal(t *testing.T) {
	literal, verb := regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`), regexp.MustCompile(`%[dsq]`)
	twoWords := regexp.MustCompile(`[a-z]+ .*[a-z]+`)
	var made []*regexp.Regexp
	for _, file := range []string{
		"pkg/decision/admit.go", "pkg/workload/owners.go", "pkg/plugins/gang/plugin.go", "pkg/controller/rebalance/obstacle.go",
	} {
		for _, quoted := range literal.FindAllString(read(t, file), -1) {
			words, err := strconv.Unquote(quoted)
			// Without two words of its own, such as in "%d %s", the text would match every message.
			if err == nil && twoWords.MatchString(verb.ReplaceAllString(words, "")) {
				parts := verb.Split(words, -1)
				for i := range parts {
					parts[i] = regexp.QuoteMeta(parts[i])
				}
				made = append(made, regexp.MustCompile(strings.Join(parts, ".*")))
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
	must(t, err)
	return string(data)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
