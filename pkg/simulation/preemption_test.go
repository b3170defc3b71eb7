package simulation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// Room finds the room of pods of lower priority as the scheduler does.
func TestReplaceByPreemption(t *testing.T) {
	const gone = "node gone spot m/a cordoned\n"
	placeholder := func(places string) string {
		return "deployment room 1 " + places + " profile=other priority=-10 cpu=3\n"
	}
	lower := func(name, places, priority string) string {
		return "deployment " + name + " 1 " + places + " profile=other priority=" + priority + " cpu=3\n"
	}
	cases := map[string]struct {
		cluster, replace string
		want             []string
	}{
		"a replica of the floor preempts a placeholder on on-demand": {
			"node od on-demand m/a\n" + placeholder("od") + gone + "deployment web 1 gone cpu=2", "web-0", []string{"od " + simulation.AfterPlaceholders}},
		"free room first": {
			"node a on-demand m/a\nnode b on-demand m/a\n" + placeholder("a") + gone + "deployment web 1 gone cpu=2", "web-0", []string{"b"}},
		"a replica beyond the floor preempts nothing on on-demand": {
			"node od on-demand m/a\n" + placeholder("od") + gone + "deployment web 2 gone od cpu=1", "web-0", []string{"no node has room for it"}},
		"a replica beyond the floor preempts on spot": {
			"node od on-demand m/a\nnode sp spot m/a\n" + placeholder("sp") + gone + "deployment web 2 gone od cpu=4", "web-0", []string{"sp " + simulation.AfterPlaceholders}},
		"a replica of the floor preempts nothing on spot": {
			"node sp spot m/a\n" + placeholder("sp") + gone + "deployment web 1 gone cpu=2", "web-0",
			[]string{"no node that the policy permits has room for it: spot budget used up: 0 of at most 0 replicas of shop/web-r run on spot (waits for on-demand room)"}},
		"not pods of the same priority": {
			"node od on-demand m/a\n" + lower("app", "od", "5") + gone + "deployment web 1 gone cpu=2 priority=5", "web-0", []string{"no node has room for it"}},
		"the lowest priority, although more pods end": {
			"node a on-demand m/a\nnode b on-demand m/a\n" + lower("app", "a", "5") + "deployment low 3 b b b profile=other priority=4 cpu=1\n" + gone +
				"deployment web 1 gone cpu=4 priority=9", "web-0", []string{"b " + simulation.AfterPreemption}},
		"the fewest pods": {
			"node a on-demand m/a\nnode b on-demand m/a\ndeployment low 3 a a a profile=other priority=4 cpu=1\n" + lower("app", "b", "4") + gone +
				"deployment web 1 gone cpu=4 priority=9", "web-0", []string{"b " + simulation.AfterPreemption}},
		"no more pods than necessary": {
			"node od on-demand m/a\ndeployment low 4 od od od od profile=other priority=4 cpu=1\n" + gone + "deployment web 2 gone gone cpu=2 min=2 priority=9",
			"web-0 web-1", []string{"od " + simulation.AfterPreemption, "od " + simulation.AfterPreemption}},
		"no pod is preempted twice": {
			"node od on-demand m/a\n" + placeholder("od") + gone + "deployment web 2 gone gone cpu=3 min=2", "web-0 web-1",
			[]string{"od " + simulation.AfterPlaceholders, "no node has room for it"}},
		"the rest of a preempted pod's room is free": {
			"node od on-demand m/a\n" + placeholder("od") + gone + "deployment web 1 gone cpu=2\ndeployment app 2 gone gone cpu=2 min=2", "app-0 web-0 app-1",
			[]string{"od " + simulation.AfterPlaceholders, "od", "no node has room for it"}},
		"a preempted pod leaves its host port": {
			"node od on-demand m/a\ndeployment low 1 od profile=other priority=-1 port=80 cpu=1\n" + gone + "deployment web 1 gone cpu=1 port=80", "web-0",
			[]string{"od " + simulation.AfterPlaceholders}},
		"a terminating placeholder is gone already": {
			"node od on-demand m/a\n" + placeholder("!od") + gone + "deployment web 1 gone cpu=2", "web-0", []string{"od"}},
		"a nominated pod has the placeholder's room": {
			"node od on-demand m/a\n" + placeholder("!od") + "deployment first 1 - nominated=od cpu=3\n" + gone + "deployment web 1 gone cpu=2", "web-0",
			[]string{"no node has room for it"}},
		"a budget is violated last": {
			"node a on-demand m/a\nnode b on-demand m/a\n" + lower("guarded", "a", "-7") + lower("app", "b", "-2") + gone + "deployment web 1 gone cpu=2", "web-0",
			[]string{"b " + simulation.AfterPlaceholders}},
		"a preemption uses up a budget": {
			"node a on-demand m/a\nnode b on-demand m/a\nnode c on-demand m/a\ndeployment counted 2 a b profile=other priority=-7 cpu=3\n" +
				lower("app", "c", "-2") + gone + "deployment web 2 gone gone cpu=3 min=2", "web-0 web-1",
			[]string{"a " + simulation.AfterPlaceholders, "c " + simulation.AfterPlaceholders}},
		"a terminating pod costs less than a placeholder": {
			"node a on-demand m/a\nnode b on-demand m/a\n" + placeholder("a") + lower("app", "!b", "5") + gone + "deployment web 1 gone cpu=2 priority=9", "web-0",
			[]string{"b"}},
		"preemptionPolicy Never": {
			"node od on-demand m/a\n" + placeholder("od") + gone + "deployment never 1 gone cpu=2", "never-0", []string{"no node has room for it"}},
		"an untolerated taint": {
			"node od on-demand m/a taint=x\n" + placeholder("od") + gone + "deployment web 1 gone cpu=2", "web-0", []string{"no node has room for it"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			for app, allowed := range map[string]int32{"guarded": 0, "counted": 1} {
				w.Put(&policyv1.PodDisruptionBudget{
					ObjectMeta: clustertest.Meta(app),
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
					Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
				})
			}
			if p := w.Pods["never-0"]; p != nil {
				p.Spec.PreemptionPolicy = new(v1.PreemptNever)
			}
			s := w.Snapshot()
			room := simulation.NewRoom(s)
			var got []string
			for _, name := range strings.Fields(test.replace) {
				to, why := room.Replace(clustertest.Find(t, s, name), decision.Unassigned)
				if to != nil {
					why = strings.TrimSpace(to.Name + " " + why)
				}
				got = append(got, why)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("placed (-want +got):\n%s", diff)
			}
		})
	}
}

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
