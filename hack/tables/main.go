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

// metric returns the row of the metric that a call of a function of package metrics creates; ""
// if the call creates none.
func metric(call *ast.CallExpr) string {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !constructor.MatchString(function.Sel.Name) {
		return ""
	}
	if _, named := call.Args[0].(*ast.BasicLit); !named {
		return "" // another function of this name
	}
	kind := strings.ToLower(constructor.FindStringSubmatch(function.Sel.Name)[1])
	if kind == "desc" {
		kind = "gauge" // the collectors of this project have only gauges
	}
	var labels []string
	for _, argument := range call.Args[2:] {
		switch argument := argument.(type) {
		case *ast.BasicLit:
			labels = append(labels, "`"+text(argument)+"`")
		case *ast.CompositeLit: // buckets, or labels with their values
			for _, element := range argument.Elts {
				if label, ok := element.(*ast.KeyValueExpr); ok {
					labels = append(labels, "`"+text(label.Key)+"`")
				}
			}
		}
	}
	help := quoted.ReplaceAllString(strings.TrimSuffix(text(call.Args[1]), "."), "`$1`")
	return fmt.Sprintf("| `spot_aware_scheduler_%s` | %s | %s | %s |\n", text(call.Args[0]), kind, strings.Join(labels, ", "), help)
}

// text returns the value of an expression of literal strings.
func text(expression ast.Expr) string {
	if sum, ok := expression.(*ast.BinaryExpr); ok {
		return text(sum.X) + text(sum.Y)
	}
	value, _ := strconv.Unquote(expression.(*ast.BasicLit).Value) // the compiler accepts it
	return value
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
