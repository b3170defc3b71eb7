package snapshot_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// A pod has a deleted Node if the Reader has seen the Node, and then has seen the pod without it. A
// Node that the cache does not contain yet is not deleted.
func TestNodeDeleted(t *testing.T) {
	type world = clustertest.World
	node := func() *v1.Node { return clustertest.NewNode("n", "spot", "m/a") }
	put := func(lines string) func(*world) { return func(w *world) { w.Build(lines) } }
	remove := func(w *world) { w.Remove(node()) }
	recreate := func(w *world) {
		second := node()
		second.UID = "second"
		w.Put(second)
	}
	both := put("node n spot m/a\npod a n")
	for name, test := range map[string]struct {
		steps []func(*world) // each before a Snapshot
		want  []string
	}{
		"not deleted":                     {steps: []func(*world){both}},
		"deleted":                         {steps: []func(*world){both, remove}, want: []string{"a"}},
		"deleted two Snapshots before":    {steps: []func(*world){both, remove, put("node o spot m/a")}, want: []string{"a"}},
		"bound and deleted in between":    {steps: []func(*world){put("node n spot m/a"), func(w *world) { remove(w); w.Build("pod a n") }}, want: []string{"a"}},
		"a pod that appears later":        {steps: []func(*world){both, remove, put("pod b n")}, want: []string{"a"}},
		"never seen":                      {steps: []func(*world){put("pod a n"), put("pod b n")}},
		"late in the cache":               {steps: []func(*world){put("pod a n"), put("node n spot m/a")}},
		"deleted and recreated":           {steps: []func(*world){both, remove, recreate}},
		"recreated between two Snapshots": {steps: []func(*world){both, func(w *world) { remove(w); recreate(w) }}},
		"deleted again":                   {steps: []func(*world){both, remove, recreate, remove}, want: []string{"a"}},
		"another pod with the same name": {want: nil, steps: []func(*world){both, remove, func(w *world) {
			another := w.Pods["a"].DeepCopy()
			another.UID = "another"
			w.Put(another)
		}}},
		"a pod that is not bound": {steps: []func(*world){put("node n spot m/a\npod a -"), remove}},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			var got []string
			for _, step := range test.steps {
				step(w)
				got = nil
				for _, p := range w.Snapshot().Pods {
					if p.NodeDeleted {
						got = append(got, p.Name)
					}
				}
			}
			clustertest.Equal(t, "pods", test.want, got)
		})
	}
}
