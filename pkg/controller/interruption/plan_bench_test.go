package interruption_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// BenchmarkPlan plans for 1,000 spot nodes with one pod each, as in most rounds: every mark is
// already written.
func BenchmarkPlan(b *testing.B) {
	reclaimed := func(n *v1.Node) {
		n.Annotations[spot.InterruptionDeadlineAnnotation] = deadline(2 * time.Minute)
		n.Annotations[spot.InterruptionStateAnnotation] = `{"class":"reclaim","taint":"spot-itn","deadline":"` + deadline(2*time.Minute) +
			`","starts":{"taint ` + awsReclaim + `":"` + deadline(0) + `"}}`
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: awsReclaim, Effect: v1.TaintEffectNoSchedule},
			v1.Taint{Key: own, Value: "spot-itn", Effect: v1.TaintEffectNoSchedule})
	}
	for name, change := range map[string]func(*v1.Node){"no signal": func(*v1.Node) {}, "reclaim": reclaimed} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(nil)
			s := &snapshot.Snapshot{Now: start}
			for i := range 1000 {
				n := newSpotNode(fmt.Sprint("n-", i), v1.ConditionTrue)
				n.Spec.Taints = []v1.Taint{{Key: "example.com/dedicated", Effect: v1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: start}}}
				change(n.Node)
				p := w.pod(fmt.Sprint("p-", i), "Deployment")
				p.Node, n.Pods = n, []*snapshot.Pod{p}
				s.Nodes, s.Pods, s.Workloads = append(s.Nodes, n), append(s.Pods, p), append(s.Workloads, p.Workload)
			}
			if marks, _, _ := interruption.Plan(s, settings); len(marks) > 0 {
				b.Fatalf("%d marks are written, want none: %+v", len(marks), marks[0])
			}
			settings := settings
			settings.Memory = interruption.NewMemory(nil)
			b.ReportAllocs()
			for b.Loop() {
				interruption.Plan(s, settings)
			}
		})
	}
}

// Planning for a node without a signal allocates nothing. Nearly all nodes of a large cluster have
// none.
func TestNodesWithoutSignalAllocateNothing(t *testing.T) {
	s := &snapshot.Snapshot{Now: start}
	for i := range 100 {
		n := newSpotNode(fmt.Sprint("n-", i), v1.ConditionTrue)
		n.Spec.Taints = []v1.Taint{{Key: "example.com/dedicated", Effect: v1.TaintEffectNoSchedule}}
		s.Nodes = append(s.Nodes, n)
	}
	settings := settings
	settings.Memory = interruption.NewMemory(nil)
	if got := testing.AllocsPerRun(10, func() { s.Now = s.Now.Add(time.Second); interruption.Plan(s, settings) }); got >= 10 {
		t.Errorf("%v allocations for %d nodes, want fewer than 10", got, len(s.Nodes))
	}
}
