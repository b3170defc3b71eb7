package workload

import "k8s.io/apimachinery/pkg/types"

// Groups contains values by group and by the UID of a pod, such as the pods of each owner. It
// contains no empty group.
type Groups[K comparable, V any] map[K]map[types.UID]V

// Put adds or replaces the value of a pod in a group.
func (g Groups[K, V]) Put(group K, pod types.UID, value V) {
	if g[group] == nil {
		g[group] = map[types.UID]V{}
	}
	g[group][pod] = value
}

// Delete removes the value of a pod from a group. It does nothing if there is none.
func (g Groups[K, V]) Delete(group K, pod types.UID) {
	delete(g[group], pod)
	if len(g[group]) == 0 {
		delete(g, group)
	}
}
