package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/kubectl/pkg/cmd/get"
)

// sorted sorts the items of an answer by the flag --sort-by: by number if all values are numbers.
func sorted[T any](p *printing, items []T) error {
	if p.sortBy == "" || len(items) == 0 {
		return nil
	}
	path, err := get.RelaxedJSONPathExpression(p.sortBy)
	by := jsonpath.New("").AllowMissingKeys(true)
	if err := cmp.Or(err, by.Parse(path)); err != nil {
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
		var value strings.Builder
		if err := by.Execute(&value, object); err != nil {
			return fmt.Errorf("--sort-by: invalid value %q: %w; %w", p.sortBy, err, errUsage)
		}
		text := value.String()
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
