package simulation_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// In a large cluster the search ends early, but placeholders are found wherever they are.
func TestPlaceholdersFirst(t *testing.T) {
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, "node n%03d on-demand m/a\ndeployment low%d 3 n%03d n%03d n%03d profile=other priority=1 cpu=1\n", i, i, i, i, i)
	}
	lines.WriteString("node z on-demand m/a\ndeployment room 1 z profile=other priority=-10 cpu=4\nnode gone spot m/a cordoned\ndeployment web 3 gone gone gone cpu=3 min=3 priority=5")
	w := clustertest.NewWorld(t)
	w.Build(lines.String())
	s := w.Snapshot()
	room := simulation.NewRoom(s)
	for i, want := range []string{"z " + simulation.AfterPlaceholders, "n000 " + simulation.AfterPreemption, "n001 " + simulation.AfterPreemption} {
		name := fmt.Sprintf("web-%d", i)
		if to, why := room.Replace(clustertest.Find(t, s, name), decision.Unassigned); nameOf(to)+" "+why != want {
			t.Errorf("%s: %s %s, want %s", name, nameOf(to), why, want)
		}
	}
}

// The successor of a pod that was shrunk in place needs what the template requests, and the pod
// itself occupies only what it requests. If the template names a node, no other node counts.
func TestReplaceBySuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		template func(*v1.PodSpec)
		want     string
	}{
		"equal":                     {func(*v1.PodSpec) {}, "exact"},
		"larger":                    {func(s *v1.PodSpec) { s.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("3") }, "large"},
		"larger than every node":    {func(s *v1.PodSpec) { s.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("9") }, "no node has room for it"},
		"smaller":                   {func(s *v1.PodSpec) { s.Containers[0].Resources.Requests = nil }, "exact"},
		"names another node":        {func(s *v1.PodSpec) { s.NodeName = "large" }, "large"},
		"names the node to leave":   {func(s *v1.PodSpec) { s.NodeName = "from" }, "its template names node from"},
		"names a closed node":       {func(s *v1.PodSpec) { s.NodeName = "closed" }, "its template names node closed"},
		"names a node without room": {func(s *v1.PodSpec) { s.NodeName = "full" }, "its template names node full"},
		"names no existing node":    {func(s *v1.PodSpec) { s.NodeName = "lost" }, "its template names node lost"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(`
				node closed on-demand m/a cordoned
				node from on-demand m/a
				node full on-demand m/a cpu=0
				node large on-demand m/a cpu=4
				node exact on-demand m/a cpu=1
				statefulset db 1 from`)
			s := w.Snapshot()
			set := clustertest.Find(t, s, "db-0").Workload.StatefulSet.DeepCopy()
			test.template(&set.Spec.Template.Spec)
			w.Put(set)
			// Only nodes exact and large have room besides the pod's own node.
			w.Put(clustertest.Objects("daemonset agent from cpu=2500m")...)
			s = w.Snapshot()
			to, why := simulation.NewRoom(s).Replace(clustertest.Find(t, s, "db-0"), decision.Unassigned)
			if to != nil {
				why = to.Name
			}
			if why != test.want {
				t.Errorf("%q, want %q", why, test.want)
			}
		})
	}
}
