package migration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// A tenant with thousands of pods to move does not delay the first actions of another namespace,
// whether the pods belong to one workload or to thousands.
func TestNamespacesTakeTurns(t *testing.T) {
	deadline := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, perWorkload := range map[string]int{"one workload": 4000, "many workloads": 1, "workloads of 10": 10} {
		t.Run(name, func(t *testing.T) {
			for _, a := range []Action{{Kind: DeletePod}, {Kind: EvictPod, Move: Move{Deadline: deadline}}, {Kind: Release}} {
				on := func(namespace string, i, perWorkload int) Action {
					a := a
					w := &snapshot.Workload{Key: workload.OwnerKey{Namespace: namespace, UID: types.UID(fmt.Sprint(i / perWorkload))}}
					a.Pod = &snapshot.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(i)}},
						Workload: w, Revision: &snapshot.Revision{Workload: w, Key: w.Key}}
					return a
				}
				var actions []Action
				for i := range 4000 {
					actions = append(actions, on("a", i, perWorkload))
				}
				for i := range 20 {
					actions = append(actions, on("b", i, 10))
				}
				inOrder(actions)
				// of the pods of b that are not the first of a workload, ten have a turn
				last := func(n int) (at int) {
					return slices.IndexFunc(actions, func(a Action) bool {
						if a.Pod.Namespace == "b" {
							n--
						}
						return n == 0
					})
				}
				firsts := min(4000/perWorkload, 2)
				if got, most := last(2), 2*firsts; got > most {
					t.Errorf("%s: the second workload of b is at position %d, want at most %d", a.Kind, got, most)
				}
				if got, most := last(12), 4000/perWorkload+laterPerTurn+12; got > most {
					t.Errorf("%s: the 12th pod of b is at position %d, want at most %d", a.Kind, got, most)
				}
			}
		})
	}
}
