package main

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// Numbers are sorted as numbers, and equal items keep their order.
func TestSorted(t *testing.T) {
	items := []report.Status{{Ref: report.Ref{Name: "b"}, Desired: 10}, {Ref: report.Ref{Name: "c"}, Desired: 9}, {Ref: report.Ref{Name: "a"}, Desired: 10}}
	for by, want := range map[string]string{"": "b c a", ".desired": "c b a", "{.name}": "a b c"} {
		all := slices.Clone(items)
		if err := sorted(&printing{sortBy: by}, all); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range all {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %q: %q, want %q", by, got, want)
		}
	}
}

// With -w, only rows that are new or changed are printed again. An age is no change.
func TestChanged(t *testing.T) {
	p := &printing{seen: map[string]bool{}}
	for _, round := range []struct {
		rows [][]any
		want []string
	}{
		{[][]any{{"a", "1s", 1}, {"b", "1s", 1}}, []string{"a", "b"}},
		{[][]any{{"a", "6s", 1}, {"b", "6s", 2}}, []string{"b"}},
		{[][]any{{"b", "11s", 2}, {"c", "1s", 1}}, []string{"c"}},
		{[][]any{{"a", "16s", 1}}, []string{"a"}},
	} {
		table := &table{Table: metav1.Table{}}
		table.columns(always, "name", "age", "count")
		for _, cells := range round.rows {
			table.row(cells...)
		}
		p.changed(table)
		var got []string
		for _, row := range table.Rows {
			got = append(got, row.Cells[0].(string))
		}
		if !slices.Equal(got, round.want) {
			t.Errorf("%v: %q, want %q", round.rows, got, round.want)
		}
	}
}
