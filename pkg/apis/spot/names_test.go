package spot_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// Annotations lists every constant of an annotation: kubectl spot calls all others unknown.
func TestAnnotations(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasSuffix(spec.Names[0].Name, "Annotation") {
			return true
		}
		count++
		value, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if !slices.Contains(spot.Annotations, value) {
			t.Errorf("Annotations in names.go does not list %s", spec.Names[0].Name)
		}
		return true
	})
	if count != len(spot.Annotations) {
		t.Errorf("names.go has %d constants of annotations, but Annotations lists %d", count, len(spot.Annotations))
	}
}
