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

// TestPure checks that the package is pure. It imports only the standard library, whose import
// paths have no dot in their first element, and the names in pkg/apis/spot. It imports no package
// that performs I/O, and reads no clock.
func TestPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		checked++
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
			case strings.HasSuffix(path, "/pkg/apis/spot"): // constants; it imports nothing
			case strings.Contains(first, "."):
				t.Errorf("%s imports %s, which is not in the standard library", file, path)
			case path == "C" || first == "os" || first == "net" || first == "syscall" || path == "log" || path == "log/slog" || strings.HasPrefix(path, "math/rand"):
				t.Errorf("%s imports %s: decisions must not do I/O, log or be random", file, path)
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := call.X.(*ast.Ident); ok && from.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep"}, call.Sel.Name) {
					t.Errorf("%s calls time.%s: pass the time as a value", file, call.Sel.Name)
				}
			}
			return true
		})
	}
	if checked == 0 {
		t.Error("no files checked")
	}
}
