package turns

import (
	"strings"
	"testing"
)

func TestRoundRobin(t *testing.T) {
	for name, test := range map[string]struct {
		items string // each item is a namespace and a number
		n     int
		want  string
	}{
		"empty":                  {"", 1, ""},
		"one namespace":          {"a1 a2 a3", 1, "a1 a2 a3"},
		"many of one namespace":  {"a1 a2 a3 a4 b1 c1 c2", 1, "a1 b1 c1 a2 c2 a3 a4"},
		"in order within a turn": {"b1 a1 a2 b2", 1, "b1 a1 a2 b2"},
		"two at a time":          {"a1 a2 a3 a4 a5 b1 b2 b3", 2, "a1 a2 b1 b2 a3 a4 b3 a5"},
	} {
		t.Run(name, func(t *testing.T) {
			items := strings.Fields(test.items)
			RoundRobin(items, test.n, func(item string) string { return item[:1] })
			if got := strings.Join(items, " "); got != test.want {
				t.Errorf("order %s, want %s", got, test.want)
			}
		})
	}
}
