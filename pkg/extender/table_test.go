package extender

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A table returns the same kinds as a map, whatever nodes are added, changed and deleted.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, want := newTable(), map[string]int32{}
		nodes := rapid.IntRange(1, 500).Draw(t, "nodes")
		for range rapid.IntRange(0, 2000).Draw(t, "changes") {
			name := fmt.Sprintf("node-%d", rapid.IntRange(0, nodes-1).Draw(t, "node"))
			kind := rapid.Int32Range(noKind, 3).Draw(t, "kind")
			table.set(name, kind)
			want[name] = kind
		}
		c := &candidates{}
		var kinds []int32
		for i := range nodes + 1 { // includes one unknown node
			c.names.add(fmt.Sprintf("node-%d", i))
			kind, known := want[c.names.at(i)]
			if !known {
				kind = noKind
			}
			kinds = append(kinds, kind)
		}
		table.lookUp(c)
		if diff := cmp.Diff(kinds, c.kinds); diff != "" {
			t.Errorf("kinds (-want +got):\n%s", diff)
		}
	})
}

// The size of a table does not grow when nodes with new names are added and deleted.
func TestTableSize(t *testing.T) {
	table := newTable()
	for i := range 100_000 {
		table.set(fmt.Sprintf("node-%d", i), 1)
		table.set(fmt.Sprintf("node-%d", i-10), noKind)
	}
	if len(table.hashes) > 64 {
		t.Errorf("%d slots for 10 nodes", len(table.hashes))
	}
}
