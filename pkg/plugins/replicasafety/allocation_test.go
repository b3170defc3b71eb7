package replicasafety

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
)

// Filter must not allocate when it admits a node, because it runs thousands of times per cycle.
func TestFilterDoesNotAllocate(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 10, "1")...)
	w.nodes(spotNode("spot"))
	o := w.try(web("p"))
	if placement.Read(o.state) == nil {
		t.Fatal("no state")
	}
	info, err := w.snapshot.Get("spot")
	w.must(err)
	var pod *v1.Pod
	if allocs := testing.AllocsPerRun(100, func() { w.plugin.Filter(w.ctx, o.state, pod, info) }); allocs != 0 {
		t.Errorf("Filter allocates %v times for a node that it admits", allocs)
	}
}
