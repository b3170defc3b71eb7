package decision_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPure holds what keeps the core pure: it imports the standard library only (whose import paths have no dot in their first
// element), nothing of it that does I/O, and reads no clock.
func TestPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		looked++
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			switch first, _, _ := strings.Cut(path, "/"); {
			case strings.Contains(first, "."):
				t.Errorf("%s imports %s, which is not of the standard library", file, path)
			case path == "C" || first == "os" || first == "net" || first == "syscall" || path == "log" || path == "log/slog" || strings.HasPrefix(path, "math/rand"):
				t.Errorf("%s imports %s: decisions do no I/O, log nothing and are not random", file, path)
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := call.X.(*ast.Ident); ok && from.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep"}, call.Sel.Name) {
					t.Errorf("%s calls time.%s: time comes in as a value", file, call.Sel.Name)
				}
			}
			return true
		})
	}
	if looked == 0 {
		t.Error("found no file to look at")
	}
}
