package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// customColumns is the prefix of the output format with the user's own columns, as in kubectl get.
const customColumns = "custom-columns="

// path returns the JSON path of a text such as .desired, desired or {.desired}.
func path(text string) (*jsonpath.JSONPath, error) {
	text = strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"), ".")
	if text == "" {
		return nil, errors.New("expected a JSON path such as .desired")
	}
	p := jsonpath.New("").AllowMissingKeys(true)
	return p, p.Parse("{." + text + "}")
}

// valueOf returns the value of a path in an object; "" if it is missing.
func valueOf(p *jsonpath.JSONPath, object any) (string, error) {
	var out bytes.Buffer
	err := p.Execute(&out, object)
	return out.String(), err
}

// sorted sorts the items of an answer by the flag --sort-by: by number if all values are numbers.
func sorted[T any](p *printing, items []T) error {
	if p.sortBy == "" || len(items) == 0 {
		return nil
	}
	by, err := path(p.sortBy)
	if err != nil {
		return fmt.Errorf("--sort-by: invalid value %q: %w; %w", p.sortBy, err, errUsage)
	}
	type keyed struct {
		item   T
		text   string
		number float64
	}
	all, numbers, found := make([]keyed, len(items)), true, false
	for i := range items {
		object, err := objectOf(&items[i])
		if err != nil {
			return err
		}
		text, err := valueOf(by, object)
		if err != nil {
			return fmt.Errorf("--sort-by: invalid value %q: %w; %w", p.sortBy, err, errUsage)
		}
		number, notNumber := strconv.ParseFloat(text, 64)
		numbers, found = numbers && (notNumber == nil || text == ""), found || text != ""
		all[i] = keyed{items[i], text, number}
	}
	if !found {
		return fmt.Errorf("--sort-by: invalid value %q: no item has this field; -o json shows the fields; %w", p.sortBy, errUsage)
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if numbers {
			return cmp.Compare(a.number, b.number)
		}
		return strings.Compare(a.text, b.text)
	})
	for i := range all {
		items[i] = all[i].item
	}
	return nil
}

// printCustom prints the items of an object in the columns that the user chose: HEADER:PATH,...
func (p *printing) printCustom(out io.Writer, object *unstructured.Unstructured) error {
	items := []any{object.Object} // of explain
	for _, list := range []string{"items", "workloads"} {
		if found, ok, _ := unstructured.NestedSlice(object.Object, list); ok {
			items = found
		}
	}
	for _, item := range items {
		cells := make([]any, len(p.paths))
		for i, by := range p.paths {
			text, err := valueOf(by, item)
			if err != nil {
				return err
			}
			cells[i] = cell(text)
		}
		p.custom.row(cells...)
	}
	return p.table(out, &p.custom)
}

// parseColumns reads the user's columns and their paths.
func (p *printing) parseColumns() error {
	for column := range strings.SplitSeq(strings.TrimPrefix(p.format(), customColumns), ",") {
		header, text, given := strings.Cut(column, ":")
		by, err := path(text)
		if !given || header == "" || err != nil {
			return fmt.Errorf("--output: invalid value %q: expected %sHEADER:PATH,..., such as NAME:.name; %w",
				p.format(), customColumns, errUsage)
		}
		p.custom.columns(always, header)
		p.paths = append(p.paths, by)
	}
	return nil
}

// watchInterval is the time between two readings of the cluster with -w.
const watchInterval = 5 * time.Second

// addWatch adds the flag -w to a command, which repeats it and prints the rows that changed.
func addWatch(command *cobra.Command, p *printing) {
	watch := command.Flags().BoolP("watch", "w", false, "Read the cluster every "+watchInterval.String()+", and print the rows that changed.")
	once := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		if !*watch {
			return once(command, args)
		}
		if !p.humanReadable() {
			return fmt.Errorf("--watch prints a table, not the format %q; %w", p.format(), errUsage)
		}
		for p.seen = map[string]bool{}; ; p.noHeaders = true {
			if err := once(command, args); err != nil {
				return err
			}
			select {
			case <-command.Context().Done():
				return nil
			case <-time.After(watchInterval):
			}
		}
	}
}

// changed removes the rows that were printed before. The columns AGE and DEADLINE always change.
func (p *printing) changed(t *table) {
	seen := map[string]bool{}
	var rows []metav1.TableRow
	for i := range t.Rows {
		var key strings.Builder
		for j, column := range t.ColumnDefinitions {
			if column.Name != "age" && column.Name != "deadline" {
				fmt.Fprintf(&key, "%v\x00", t.Rows[i].Cells[j])
			}
		}
		if seen[key.String()] = true; !p.seen[key.String()] {
			rows = append(rows, t.Rows[i])
		}
	}
	p.seen, t.Rows = seen, rows
}
