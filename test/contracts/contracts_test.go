// Package contracts holds the names that users and other programs depend on: metrics with their
// labels, event reasons, annotations, labels and taints, configuration fields, chart values, flags,
// log keys, keys and columns of kubectl spot, exit statuses, make targets and binaries. A change of
// such a name breaks its users, so it must be a decision and not a side effect.
package contracts

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden file")

const golden = "testdata/names.txt"

// TestNames compares the names with the golden file. If you change a name on purpose, run
// go test ./test/contracts -update, and add the old and the new name to CHANGELOG.md.
func TestNames(t *testing.T) {
	names := collect(t, filepath.Join("..", ".."))
	kinds := []string{
		"metric", "metric label", "event reason", "key", "field", "chart value", "flag", "log key", "output key", "column", "exit status", "make target", "binary",
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, kind+" ") }) {
			t.Errorf("found no %s", kind)
		}
	}
	got := strings.Join(names, "\n") + "\n"
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// collect returns all names in the repository at root, sorted.
func collect(t *testing.T, root string) []string {
	t.Helper()
	var names []string
	add := func(kind, name string) { names = append(names, kind+" "+name) }
	for _, folder := range []string{"pkg", "cmd", "test/lab", "test/spot-lab"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			slashed := filepath.ToSlash(path)
			ast.Inspect(file, func(node ast.Node) bool {
				inspect(node, slashed, add)
				return true
			})
			return nil
		})
		must(t, err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	for _, target := range regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(string(makefile), -1) {
		add("make target", target[1])
	}
	binaries, err := os.ReadDir(filepath.Join(root, "cmd"))
	must(t, err)
	for _, binary := range binaries {
		add("binary", binary.Name())
	}
	add("binary", "spot-lab")
	for _, value := range chartValues(t, filepath.Join(root, "manifests/charts/spot-aware-scheduler/values.yaml")) {
		add("chart value", value)
	}
	types := outputTypes(t)
	for _, answer := range answers {
		for _, name := range append(answer.types, "source", "policySource", "Ref") {
			for _, row := range types[name] {
				for _, key := range row.keys {
					add("output key", key)
				}
			}
		}
	}
	for _, column := range columns(t, "../../cmd/kubectl-spot/*.go") {
		if column != "" { // of a helper with parameters
			add("column", strings.ToUpper(column))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// chartValues returns the paths of the values in a file.
func chartValues(t *testing.T, file string) (paths []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	var values map[string]any
	must(t, yaml.Unmarshal(data, &values))
	var walk func(prefix string, value any)
	walk = func(prefix string, value any) {
		fields, ok := value.(map[string]any)
		if !ok || len(fields) == 0 {
			paths = append(paths, prefix)
		}
		for name, field := range fields {
			walk(strings.TrimPrefix(prefix+"."+name, "."), field)
		}
	}
	walk("", values)
	return paths
}

var key = regexp.MustCompile(`^spot-aware-scheduler\.io/[a-z0-9-]+$`)

// inspect adds the names that a node of a file declares.
func inspect(node ast.Node, path string, add func(kind, name string)) {
	switch node := node.(type) {
	case *ast.BasicLit:
		if value := text(node); key.MatchString(value) {
			add("key", value)
		}
	case *ast.ValueSpec:
		for i, name := range node.Names {
			if value, ok := constant(node, i); ok && strings.HasPrefix(name.Name, "exit") && ofProgram(path) {
				add("exit status", filepath.Base(filepath.Dir(path))+" "+value)
			}
			if strings.HasPrefix(name.Name, "Reason") && i < len(node.Values) && strings.HasSuffix(path, "pkg/apis/spot/events.go") {
				add("event reason", text(node.Values[i]))
			}
		}
	case *ast.Field:
		if node.Tag != nil && strings.Contains(path, "pkg/apis/") {
			tag, _, _ := strings.Cut(reflect.StructTag(text(node.Tag)).Get("json"), ",")
			if tag != "" {
				add("field", tag)
			}
		}
	case *ast.CompositeLit:
		if array, ok := node.Type.(*ast.ArrayType); ok && isNamed(array.Elt, "any") {
			addLogKeys(node.Elts, add)
		}
	case *ast.CallExpr:
		inspectCall(node, path, add)
	}
}

// inspectCall adds the names that a call declares.
func inspectCall(node *ast.CallExpr, path string, add func(kind, name string)) {
	if isNamed(node.Fun, "append") && len(node.Args) > 2 {
		addLogKeys(node.Args[1:], add)
	}
	selector, ok := node.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	// metrics.NewGaugeVec("name", "help", "label", …) and the like.
	if isNamed(selector.X, "metrics") && strings.HasPrefix(selector.Sel.Name, "New") && len(node.Args) > 1 && text(node.Args[0]) != "" {
		add("metric", text(node.Args[0]))
		for _, argument := range node.Args[2:] {
			if label := text(argument); label != "" {
				add("metric label", label)
			}
		}
	}
	if first, ok := map[string]int{"Info": 1, "Error": 2, "WithValues": 0}[selector.Sel.Name]; ok && len(node.Args) > first {
		addLogKeys(node.Args[first:], add)
	}
	if !ofProgram(path) && !strings.Contains(path, "pkg/app/") { // pkg/app has the flags that programs share
		return
	}
	// StringVar(&variable, "name", …), StringVarP, String("name", …) and the like.
	if at := flagArgument(selector.Sel.Name); at >= 0 && at < len(node.Args) {
		if name := text(node.Args[at]); regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(name) {
			add("flag", name)
		}
	}
}

// ofProgram reports whether a file belongs to the main package of a program.
func ofProgram(path string) bool {
	return strings.Contains(path, "cmd/") || strings.Contains(path, "test/spot-lab/")
}

// addLogKeys adds the keys of a list of keys and values.
func addLogKeys(pairs []ast.Expr, add func(kind, name string)) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if key := text(pairs[i]); regexp.MustCompile(`^[a-z][A-Za-z]*$`).MatchString(key) {
			add("log key", key)
		}
	}
}

// constant returns the number that the name at index i has.
func constant(spec *ast.ValueSpec, i int) (string, bool) {
	if i >= len(spec.Values) {
		return "", false
	}
	if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
		return literal.Value, literal.Kind == token.INT
	}
	return "", false
}

// flagArgument returns the index of the flag's name in the arguments of a method; -1 if the method
// declares no flag.
func flagArgument(method string) int {
	kinds := "(String|Bool|Int|Int32|Int64|Float64|Duration|StringArray|StringSlice)"
	switch {
	case regexp.MustCompile("^" + kinds + "Var(P)?$").MatchString(method), method == "Var", method == "VarP":
		return 1
	case regexp.MustCompile("^" + kinds + "(P)?$").MatchString(method):
		return 0
	}
	return -1
}

func isNamed(expression ast.Expr, name string) bool {
	identifier, ok := expression.(*ast.Ident)
	return ok && identifier.Name == name
}

// text returns the value of a string literal; "" for every other expression.
func text(expression ast.Expr) string {
	literal, ok := expression.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return value
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
