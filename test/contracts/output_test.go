package contracts

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const outputPage = "../../docs/reference/kubectl-spot.md"

// answers lists the types of the output of each command, the outermost first.
var answers = []struct {
	command, kind string
	types         []string
	// more has keys that are not in a type.
	more [][2]string
}{
	{"status", "SpotStatus", []string{"Status"}, [][2]string{
		{"`items`", "The workloads, see Status."}, {"`otherWorkloads`", "Number of workloads with another scheduler."},
	}},
	{"nodes", "SpotNodes", []string{"Node"}, [][2]string{{"`items`", "The nodes, see Node."}}},
	{"explain", "SpotExplanation", []string{"Explanation", "Setting", "NodeGroup"}, nil},
	{"what-if", "SpotWhatIf", []string{"WhatIf", "AffectedWorkload", "Change"}, nil},
	{"savings", "SpotSavings", []string{"Savings", "NodePrices", "NamespaceCost", "WorkloadCost"}, nil},
	{"assess", "SpotAssessment", []string{"Assessment", "AssessedWorkload", "WorkloadChange", "Patch"}, nil},
	{"cleanup", "SpotCleanup", []string{"Cleanup", "CleanupItem", "LeftMark"}, nil},
}

// TestOutput compares the page about the output of kubectl spot with the types that it prints. If
// you change a type on purpose, run go test ./test/contracts -update.
func TestOutput(t *testing.T) {
	types := outputTypes(t)
	var page strings.Builder
	page.WriteString("# Output of kubectl spot\n\nThe keys of `kubectl spot -o json`. `go test ./test/contracts -update` generates this page from Go types.\n" +
		"Keys with an empty value may be missing. A column of a table has the name of its key.\n\n## Every answer\n")
	writeTable(&page, types, "source", [][2]string{{"`apiVersion`, `kind`", "Version and kind of the answer."}})
	for _, name := range []string{"policySource", "Ref"} {
		fmt.Fprintf(&page, "\n### %s\n", name)
		writeTable(&page, types, name, nil)
	}
	for _, answer := range answers {
		fmt.Fprintf(&page, "\n## %s\nThe kind is `%s`.\n", answer.command, answer.kind)
		if answer.more != nil {
			writeTable(&page, types, "", answer.more)
		}
		for _, name := range answer.types {
			fmt.Fprintf(&page, "\n### %s\n", name)
			writeTable(&page, types, name, nil)
		}
	}
	got := page.String()
	if *update {
		must(t, os.WriteFile(outputPage, []byte(got), 0o600))
	}
	want, err := os.ReadFile(outputPage)
	must(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestColumns requires that each column of a table has the name of a key.
func TestColumns(t *testing.T) {
	types := outputTypes(t)
	for _, answer := range answers {
		keys := map[string]bool{"workload": true} // the kind, name and role of a Ref
		for _, name := range append(answer.types, "Ref") {
			for _, row := range types[name] {
				for _, key := range row.keys {
					keys[key] = true
				}
			}
		}
		file := filepath.Join("../../cmd/kubectl-spot", strings.ReplaceAll(answer.command, "-", "")+".go")
		names := columns(t, file)
		if len(names) == 0 {
			t.Errorf("%s has no columns", file)
		}
		for _, name := range names {
			if !keys[keyOf(name)] {
				t.Errorf("%s: column %s: no type of %q has the key %s", answer.command, strings.ToUpper(name), answer.types, keyOf(name))
			}
		}
	}
}

// row has fields of a type that share a comment.
type row struct{ keys, fields, comment []string }

// outputTypes returns the fields of the types that kubectl spot prints, by type.
func outputTypes(t *testing.T) map[string][]row {
	t.Helper()
	types := map[string][]row{}
	for _, pattern := range []string{"../../pkg/kubectl/report/*.go", "../../cmd/kubectl-spot/*.go"} {
		for _, file := range parseFiles(t, pattern) {
			ast.Inspect(file, func(node ast.Node) bool {
				if spec, ok := node.(*ast.TypeSpec); ok {
					if structure, ok := spec.Type.(*ast.StructType); ok {
						types[spec.Name.Name] = rowsOf(structure)
					}
				}
				return true
			})
		}
	}
	return types
}

func parseFiles(t *testing.T, pattern string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.FromSlash(pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files: %v", pattern, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		must(t, err)
		files = append(files, file)
	}
	return files
}

// rowsOf returns the fields with a JSON key. A field without a comment belongs to the field before.
func rowsOf(structure *ast.StructType) (rows []row) {
	for _, field := range structure.Fields.List {
		if field.Tag == nil {
			continue
		}
		key, _, _ := strings.Cut(reflect.StructTag(text(field.Tag)).Get("json"), ",")
		if key == "-" { // not in the output
			continue
		}
		name := "inline" // an embedded type
		if len(field.Names) > 0 {
			name = field.Names[0].Name
		}
		comment := strings.Fields(field.Doc.Text())
		if len(comment) > 0 || len(rows) == 0 || name == "inline" || len(rows[len(rows)-1].comment) == 0 {
			rows = append(rows, row{comment: comment})
		}
		last := &rows[len(rows)-1]
		if name == "inline" {
			last.comment = []string{"The", "keys", "of", types.ExprString(field.Type) + "."}
			rows = append(rows, row{})
			continue
		}
		last.keys, last.fields = append(last.keys, key), append(last.fields, name)
	}
	return slices.DeleteFunc(rows, func(r row) bool { return len(r.keys)+len(r.comment) == 0 })
}

// writeTable writes a table of keys. In the comments it replaces names of fields by keys.
func writeTable(page *strings.Builder, types map[string][]row, name string, more [][2]string) {
	page.WriteString("| key | meaning |\n|---|---|\n")
	for _, pair := range more {
		fmt.Fprintf(page, "| %s | %s |\n", pair[0], pair[1])
	}
	keys := map[string]string{}
	for _, r := range types[name] {
		for i, field := range r.fields {
			keys[field] = "`" + r.keys[i] + "`"
		}
	}
	for _, r := range types[name] {
		words := strings.NewReplacer("; see workload.OwnerKey", "", "nil and", "null and", " nil ", " null ")
		comment := strings.TrimSpace(regexp.MustCompile(` ?The caller sets it\.`).ReplaceAllString(words.Replace(strings.Join(r.comment, " ")), ""))
		for _, field := range slices.Sorted(maps.Keys(keys)) {
			comment = regexp.MustCompile("(^|[^`.\\w])"+field+`\b`).ReplaceAllString(comment, "${1}"+keys[field])
		}
		quoted := make([]string, len(r.fields))
		for i, field := range r.fields {
			quoted[i] = keys[field]
		}
		fmt.Fprintf(page, "| %s | %s |\n", strings.Join(quoted, ", "), comment)
	}
}

// columns returns the names of the columns that a file declares.
func columns(t *testing.T, pattern string) (names []string) {
	t.Helper()
	for _, file := range parseFiles(t, pattern) {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, isMethod := call.Fun.(*ast.SelectorExpr)
			if isMethod && selector.Sel.Name == "columns" || isNamed(call.Fun, "newWorkloadTable") {
				for _, argument := range call.Args[1:] {
					names = append(names, text(argument))
				}
			}
			return true
		})
	}
	return names
}

// keyOf returns the key for a column: withoutSpot for "without spot".
func keyOf(column string) string {
	words := strings.FieldsFunc(strings.ReplaceAll(column, "/", " per "), func(r rune) bool { return r == ' ' || r == '-' })
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}
