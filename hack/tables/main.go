// Tables prints a page of docs with the tables that its markers request. It fails if the page lacks
// a metric or an event reason of the code.
//
//	tables metrics docs/metrics.md
//	tables events docs/events.md
//
// A marker is a comment in Markdown, <!-- table: NAME... -->. Its table ends at the next empty
// line. The names are folders that declare metrics, or the first words of the comments of the
// constants in pkg/apis/spot/events.go.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kinds has the heading of a table and the function that returns the rows of all tables by name.
var kinds = map[string]struct {
	heading string
	rows    func(root string) (map[string][]string, error)
}{
	"metrics": {"| metric | type | labels | meaning |\n|---|---|---|---|\n", metrics},
	"events":  {"| reason | on | meaning | what to do |\n|---|---|---|---|\n", events},
}

func main() {
	if len(os.Args) != 3 || kinds[os.Args[1]].rows == nil {
		fmt.Fprintln(os.Stderr, "usage: tables metrics|events PAGE")
		os.Exit(2)
	}
	page, err := os.ReadFile(os.Args[2])
	text := ""
	if err == nil {
		text, err = fill(string(page), os.Args[1], ".")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "tables: %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
	fmt.Print(text)
}

var marker = regexp.MustCompile(`(?m)^<!-- table: (.*) -->\n(?:.+\n)*`)

// fill returns the page with its tables. The code is below root.
func fill(page, kind, root string) (string, error) {
	rows, err := kinds[kind].rows(root)
	if err != nil {
		return "", err
	}
	filled := marker.ReplaceAllStringFunc(page, func(old string) string {
		names := marker.FindStringSubmatch(old)[1]
		table := "<!-- table: " + names + " -->\n" + kinds[kind].heading
		for _, name := range strings.Fields(names) {
			if rows[name] == nil {
				err = errors.Join(err, fmt.Errorf("marker %q: found no %s of %q, or a second marker", names, kind, name))
			}
			table += strings.Join(rows[name], "")
			delete(rows, name)
		}
		return table
	})
	if len(rows) > 0 {
		err = errors.Join(err, fmt.Errorf("no marker has the %s of %q", kind, slices.Sorted(maps.Keys(rows))))
	}
	return filled, err
}

var (
	constructor = regexp.MustCompile(`^New(Desc|Counter|Gauge|Histogram)(Vec|Func)?$`)
	// quoted is a label value in the help text of a metric.
	quoted = regexp.MustCompile(`'([\w./-]+)'`)
)

// metrics returns the rows of metrics by the folder that declares them, in the order of the code.
func metrics(root string) (map[string][]string, error) {
	rows := map[string][]string{}
	visit := func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				if row := metric(call); row != "" {
					rows[folder] = append(rows[folder], row)
				}
			}
			return true
		})
		return nil
	}
	return rows, errors.Join(fs.WalkDir(os.DirFS(root), "cmd", visit), fs.WalkDir(os.DirFS(root), "pkg", visit))
}

// metric returns the row of the metric that a call creates; "" if the call creates none.
func metric(call *ast.CallExpr) string {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !constructor.MatchString(function.Sel.Name) {
		return ""
	}
	kind := strings.ToLower(constructor.FindStringSubmatch(function.Sel.Name)[1])
	var name, help string
	var labels []string
	if kind == "desc" { // the collectors of this project have only gauges
		name, help, kind = text(call.Args[0]), text(call.Args[1]), "gauge"
	}
	ast.Inspect(call, func(node ast.Node) bool {
		if pair, ok := node.(*ast.KeyValueExpr); ok && fmt.Sprint(pair.Key) == "Name" {
			name = "spot_aware_scheduler_" + text(pair.Value)
		} else if ok && fmt.Sprint(pair.Key) == "Help" {
			help = text(pair.Value)
		} else if ok && fmt.Sprint(pair.Key) == "ConstLabels" {
			labels = append(labels, "`"+text(pair.Value.(*ast.CompositeLit).Elts[0].(*ast.KeyValueExpr).Key)+"`")
		}
		return true
	})
	if name == "" {
		return "" // another function of this name
	}
	for _, argument := range call.Args[1:] {
		if list, ok := argument.(*ast.CompositeLit); ok {
			for _, label := range list.Elts {
				labels = append(labels, "`"+text(label)+"`")
			}
		}
	}
	help = quoted.ReplaceAllString(strings.TrimSuffix(help, "."), "`$1`")
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, ", "), help)
}

// text returns the value of an expression of strings. The only constant in them is the subsystem.
func text(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.BinaryExpr:
		return text(expression.X) + text(expression.Y)
	case *ast.BasicLit:
		value, _ := strconv.Unquote(expression.Value) // the compiler accepts it
		return value
	}
	return "spot_aware_scheduler"
}

// reason is the comment of an event reason. The remedy, in a paragraph of its own, is optional.
var reason = regexp.MustCompile(`^\w+ \((Normal|Warning), on (?:the )?([^)]+)\): ([^¶]*?)\.?(?:¶|$)(?:.*?Remedy: ([^¶]*?)\.?(?:¶|$))?`)

// events returns the rows of the event reasons by the first word of the comment of their group.
func events(root string) (map[string][]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "pkg/apis/spot/events.go"), nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	rows := map[string][]string{}
	for _, declaration := range file.Decls {
		group := declaration.(*ast.GenDecl)
		name, _, _ := strings.Cut(group.Doc.Text(), ":")
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			comment := strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(constant.Doc.Text()), "\n\n", "¶"), "\n", " ")
			parts := reason.FindStringSubmatch(comment)
			if parts == nil {
				return nil, fmt.Errorf("comment of %s: expected %q", constant.Names[0], "Reason (Warning, on the pod): meaning")
			}
			title := "`" + text(constant.Values[0]) + "`"
			if parts[1] == "Normal" {
				title += " (Normal)"
			}
			rows[name] = append(rows[name], fmt.Sprintf("| %s | %s | %s | %s |\n", title, parts[2], parts[3], parts[4]))
		}
	}
	return rows, nil
}
