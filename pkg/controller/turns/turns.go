// Package turns orders work so that namespaces take turns. Thousands of items of one tenant thus do
// not delay the first items of another.
package turns

import "slices"

// RoundRobin reorders items so that the namespaces take turns: the first n items of each namespace
// precede the next n of any. Within a turn, items remain in order.
func RoundRobin[T any](items []T, n int, namespace func(T) string) {
	var turns [][]T
	counts := map[string]int{}
	for _, item := range items {
		turn := counts[namespace(item)] / n
		counts[namespace(item)]++
		if turn == len(turns) {
			turns = append(turns, nil)
		}
		turns[turn] = append(turns[turn], item)
	}
	copy(items, slices.Concat(turns...))
}
