package simulation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

func TestReplace(t *testing.T) {
	const (
		noRoom     = "no node has room for it"
		overBudget = "no node that the policy permits has room for it: spot budget used up: 0 of at most 0 replicas of shop/web-r run on spot (waits for on-demand room)"
	)
	cases := map[string]struct {
		cluster, replace string
		// want contains the node of each replacement, or the reason why it has none.
		want []string
	}{
		"a singleton is placed on on-demand": {
			cluster: "node sp spot m/a\nnode od on-demand m/a\nnode gone spot m/a cordoned\ndeployment web 1 gone",
			replace: "web-0", want: []string{"od"},
		},
		"a singleton is not placed on spot": {
			cluster: "node sp spot m/a\nnode gone spot m/a cordoned\ndeployment web 1 gone",
			replace: "web-0", want: []string{overBudget},
		},
		"beyond the floor: spot first": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\nnode gone spot m/a cordoned\ndeployment web 2 od gone",
			replace: "web-1", want: []string{"sp"},
		},
		"beyond the floor: on-demand if spot is full": {
			cluster: "node od on-demand m/a\nnode sp spot m/a cpu=0\nnode gone spot m/a cordoned\ndeployment web 2 od gone",
			replace: "web-1", want: []string{"od"},
		},
		"floor first": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\nnode gone on-demand m/a cordoned\ndeployment web 2 gone sp",
			replace: "web-0", want: []string{"od"},
		},
		"an assignment does not pass on to a replacement": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\nnode gone spot m/a cordoned\ndeployment web 2 gone assigned=any:x",
			replace: "web-0", want: []string{"od"},
		},
		"a grant does not pass on to a replacement": {
			cluster: "node sp spot m/a\nnode gone spot m/a cordoned\ndeployment web 1 gone granted=fallback",
			replace: "web-0", want: []string{overBudget},
		},
		"replacements count for later replacements": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\nnode gone spot m/a cordoned\ndeployment web 3 gone gone gone",
			replace: "web-0 web-1 web-2", want: []string{"od", "sp", "sp"},
		},
		"a cordon without its taint excludes no domain": {
			cluster: "node od on-demand m/a\nnode gone on-demand m/a cordoned\ndeployment web 2 gone gone min=2 spread=topology.kubernetes.io/zone skew=1 domains=2 taints=Honor",
			replace: "web-0", want: []string{noRoom},
		},
		"a pod does not count for its own replacement": {
			cluster: "node sp spot m/a\nnode gone spot m/a cordoned\nnode od on-demand m/a\ndeployment web 2 od gone",
			replace: "web-1", want: []string{"sp"},
		},
		"a replacement without room changes nothing": {
			cluster: "node sp spot m/a\nnode gone on-demand m/a cordoned\ndeployment web 2 sp gone\ndeployment big 1 gone cpu=9",
			replace: "big-0 web-1 web-0", want: []string{
				"no node that the policy permits has room for it: spot budget used up: 0 of at most 0 replicas of shop/big-r run on spot (waits for on-demand room)",
				"no node that the policy permits has room for it: spot budget used up: 1 of at most 1 replicas of shop/web-r run on spot (waits for on-demand room)",
				"sp",
			},
		},
		"repeated calls reserve room once": {
			cluster: "node od on-demand m/a cpu=2\nnode gone spot m/a cordoned\ndeployment web 1 gone\ndeployment app 1 gone",
			replace: "web-0 web-0 app-0", want: []string{"od", "od", "od"},
		},
		"the pod itself still occupies its room": {
			cluster: "node od on-demand m/a cpu=1\ndeployment web 1 od",
			replace: "web-0", want: []string{"no node has room for it"},
		},
		"terminating pods still occupy their room": {
			cluster: "node od on-demand m/a cpu=1\nnode gone on-demand m/a cordoned\ndeployment web 1 gone\ndeployment app 1 !od",
			replace: "web-0", want: []string{noRoom},
		},
		"the replacement of a terminating pod": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\ndeployment web 1 !sp",
			replace: "web-0", want: []string{"od"},
		},
		"the replacement of a released pod is one of its ReplicaSet": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\ndeployment web 2 ~sp od",
			replace: "web-0", want: []string{"sp"},
		},
		"the replacement of a released singleton": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\ndeployment web 1 ~sp",
			replace: "web-0", want: []string{"od"},
		},
		"closed nodes": {
			cluster: `
				node a1 on-demand m/a cordoned
				node a2 on-demand m/a notready
				node a3 on-demand m/a taint=spot-aware-scheduler.io/interruption
				node a4 on-demand m/a taint=karpenter.sh/disrupted
				node a5 on-demand m/a taint=example.com/own
				node b on-demand m/a
				deployment web 1 a1 tolerates=spot-aware-scheduler.io/interruption`,
			replace: "web-0", want: []string{"b"},
		},
		"a tolerated taint": {
			cluster: `
				node a on-demand m/a taint=example.com/own
				node gone spot m/a cordoned
				deployment web 1 gone tolerates=example.com/own`,
			replace: "web-0", want: []string{"a"},
		},
		"an advisory signal is the last resort": {
			cluster: `
				node a on-demand m/a taint=DeletionCandidateOfClusterAutoscaler
				node b on-demand m/a cpu=1
				node gone spot m/a cordoned
				deployment web 1 gone tolerates=DeletionCandidateOfClusterAutoscaler
				deployment app 1 gone tolerates=DeletionCandidateOfClusterAutoscaler`,
			replace: "web-0 app-0", want: []string{"b", "a"},
		},
		"fewest siblings first: node, zone, then name": {
			cluster: `
				node a spot m/x
				node b spot m/x
				node c spot m/y
				node d spot m/y
				node od on-demand m/x
				node gone spot m/z cordoned
				deployment web 5 od a gone gone gone`,
			replace: "web-2 web-3 web-4", want: []string{"c", "d", "b"},
		},
		"requests, CPU and number of pods": {
			cluster: `
				node a on-demand m/a cpu=3
				node b on-demand m/a pods=1
				node c on-demand m/a
				node gone spot m/a cordoned
				deployment app 1 a cpu=1500m
				deployment web 1 gone cpu=2
				deployment one 1 gone cpu=0
				deployment two 1 b cpu=0`,
			replace: "web-0 one-0", want: []string{"c", "a"},
		},
		"pods of one revision with different requests": {
			cluster: `
				node a on-demand m/a cpu=2
				node gone spot m/a cordoned
				deployment web 2 gone gone min=2
				deployment web 2 gone cpu=3 min=2`,
			replace: "web-0 web-1", want: []string{noRoom, "a"},
		},
		"equal pools: the first node without a sibling": {
			cluster: `
				node n0 on-demand m/a cpu=0
				node n1 on-demand c/a
				node n2 on-demand c/a
				node n5 on-demand m/a
				node gone on-demand m/a cordoned
				deployment web 2 n1 gone min=2`,
			replace: "web-1", want: []string{"n2"},
		},
		"node selector": {
			cluster: "node a on-demand m/a\nnode b on-demand m/b\nnode gone spot m/b cordoned\ndeployment web 1 gone zone=b",
			replace: "web-0", want: []string{"b"},
		},
		"a volume's zone": {
			cluster: "node a on-demand m/a\nnode b on-demand m/b\nnode gone on-demand m/b cordoned\nstatefulset db 1 gone volume=b",
			replace: "db-0", want: []string{"b"},
		},
		"an unbound volume": {
			cluster: "node a on-demand m/a\nnode gone on-demand m/b cordoned\nstatefulset db 1 gone volume=unbound",
			replace: "db-0", want: []string{"a"},
		},
		"host ports": {
			cluster: `
				node a on-demand m/a
				node b on-demand m/a
				node gone spot m/b cordoned
				deployment app 1 a port=80
				deployment web 1 gone port=80
				deployment api 1 gone port=80
				deployment dns 1 gone port=53`,
			replace: "dns-0 web-0 api-0", want: []string{"a", "b", noRoom},
		},
		"ordinals of the floor are not placed on spot": {
			cluster: "node sp spot m/a\nnode gone on-demand m/b cordoned\nstatefulset db 2 gone gone",
			replace: "db-0 db-1", want: []string{
				"no node that the policy permits has room for it: ordinal belongs to the floor: the first 1 ordinals of shop/db must run on on-demand, " +
					"and later ordinals wait for this one (waits for on-demand room)", "sp"},
		},
		"pods of other profiles are placed anywhere": {
			cluster: "node sp spot m/a\nnode gone on-demand m/b cordoned\ndeployment web 1 gone profile=default-scheduler",
			replace: "web-0", want: []string{"sp"},
		},
		"pending pods are placed first": {
			cluster: "node od on-demand m/a cpu=1\nnode gone on-demand m/b cordoned\ndeployment web 1 gone\ndeployment zzz 1 -",
			replace: "web-0 zzz-0", want: []string{noRoom, "od"},
		},
		"pending pods with gates do not count": {
			cluster: "node od on-demand m/a cpu=1\nnode gone on-demand m/b cordoned\ndeployment web 1 gone\ndeployment zzz 1 - gated",
			replace: "web-0", want: []string{"od"},
		},
		"pending pods with higher priority first": {
			cluster: "node od on-demand m/a cpu=1\ndeployment app 1 -\ndeployment web 1 - priority=7",
			replace: "app-0 web-0", want: []string{noRoom, "od"},
		},
		"a pending pod of the floor does not reserve spot": {
			cluster: "node sp spot m/a cpu=1\nnode od on-demand m/a cordoned\ndeployment app 1 -\ndeployment web 2 od od",
			replace: "web-0", want: []string{"sp"},
		},
		"a nominated pod reserves room that victims still occupy": {
			cluster: `
				node od on-demand m/a cpu=2
				node gone on-demand m/b cordoned
				deployment old 1 !od
				deployment app 1 - cpu=2 nominated=od
				deployment web 1 gone`,
			replace: "web-0", want: []string{noRoom},
		},
		"anti-affinity by host": {
			cluster: `
				node a on-demand m/a
				node b on-demand m/a
				node gone on-demand m/b cordoned
				deployment web 3 a gone gone anti=kubernetes.io/hostname min=3`,
			replace: "web-1 web-2", want: []string{"b", noRoom},
		},
		"anti-affinity by zone: the moved pod does not count": {
			cluster: `
				node a on-demand m/a
				node b on-demand m/b
				node gone on-demand m/b cordoned
				deployment web 2 a gone anti=topology.kubernetes.io/zone min=2`,
			replace: "web-1", want: []string{"b"},
		},
		"anti-affinity by zone: a released pod counts": {
			cluster: `
				node a on-demand m/a
				node b on-demand m/b
				node gone on-demand m/b cordoned
				deployment web 2 a ~gone anti=topology.kubernetes.io/zone min=2`,
			replace: "web-1", want: []string{noRoom},
		},
		"hard spread over zones": {
			cluster: `
				node a on-demand m/a
				node b on-demand m/b cpu=1
				node gone on-demand m/b cordoned
				deployment web 4 a gone gone gone spread=topology.kubernetes.io/zone min=4`,
			// Without web-3, zone a has one pod and b two; without web-2, a has two and b one. Then
			// b is full, and a third pod in a would result in three to one.
			replace: "web-3 web-2 web-1", want: []string{"a", "b", noRoom},
		},
		"hard spread, as the zone with the fewest fills": {
			cluster: `
				node a on-demand m/a
				node gone on-demand m/b cordoned
				deployment web 4 gone gone gone gone spread=topology.kubernetes.io/zone min=4`,
			replace: "web-0 web-1 web-2", want: []string{"a", "a", noRoom},
		},
		"hard spread over the zones whose taints are tolerated": {
			cluster: `
				node a on-demand m/a taint=x
				node b on-demand m/b
				node gone on-demand m/b cordoned
				deployment web 2 b gone spread=topology.kubernetes.io/zone taints=Honor min=2 tolerates=x
				deployment app 2 b gone spread=topology.kubernetes.io/zone taints=Honor min=2`,
			replace: "web-1 app-1", want: []string{"a", "b"},
		},
		"affinity to another workload": {
			cluster: `
				node a on-demand m/a
				node b on-demand m/b
				node gone on-demand m/b cordoned
				deployment app 1 b
				deployment web 1 gone near=app/topology.kubernetes.io/zone`,
			replace: "web-0", want: []string{"b"},
		},
		"affinity to a workload without pods": {
			cluster: `
				node a on-demand m/a
				node gone on-demand m/b cordoned
				deployment web 1 gone near=app/topology.kubernetes.io/zone`,
			replace: "web-0", want: []string{noRoom},
		},
		"affinity to itself, first pod": {
			cluster: `
				node a on-demand m/a
				node gone on-demand m/b cordoned
				deployment web 1 gone near=web/topology.kubernetes.io/zone`,
			replace: "web-0", want: []string{"a"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			s := w.Snapshot()
			room := simulation.NewRoom(s)
			var got []string
			for _, name := range strings.Fields(test.replace) {
				to, why := room.Replace(clustertest.Find(t, s, name), decision.Unassigned)
				if to != nil {
					why = to.Name
				}
				got = append(got, why)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("placed (-want +got):\n%s", diff)
			}
		})
	}
}

// The controller moves no pods to a node whose capacity label may still arrive.
func TestReplaceAvoidsSettlingNodes(t *testing.T) {
	for name, test := range map[string]struct {
		age  time.Duration
		want string
	}{
		"young":   {29 * time.Second, "no node has room for it"},
		"settled": {30 * time.Second, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("node gone spot m/a cordoned\ndeployment web 3 gone")
			node := clustertest.NewNode("new", "", "m/a")
			node.CreationTimestamp = metav1.NewTime(clustertest.Now.Add(-test.age))
			w.Put(node)
			s := w.Snapshot()
			to, why := simulation.NewRoom(s).Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned)
			if to != nil {
				why = to.Name
			}
			if why != test.want {
				t.Errorf("%q, want %q", why, test.want)
			}
		})
	}
}

// A replacement that requires a capacity type finds room only on that type, regardless of the
// policy.
func TestReplaceRequires(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build(`
		node gone on-demand m/a cordoned
		node o on-demand m/a
		node s spot m/a
		deployment web 3 gone gone gone min=1
		deployment low 3 gone gone gone min=1`)
	never := clustertest.Find(t, w.Snapshot(), "low-0").Workload.Deployment
	never.Annotations["spot-aware-scheduler.io/overflow"] = "Never"
	w.Put(never)
	for name, test := range map[string]struct {
		pod      string
		requires decision.AssignedCapacity
		want     string
	}{
		"unassigned, beyond the floor":   {"web-0", decision.Unassigned, "s"},
		"any":                            {"web-0", decision.AssignedAny, "s"},
		"on-demand":                      {"web-0", decision.AssignedOnDemand, "o"},
		"spot":                           {"web-0", decision.AssignedSpot, "s"},
		"on-demand with overflow Never":  {"low-0", decision.AssignedOnDemand, "o"},
		"unassigned with overflow Never": {"low-0", decision.Unassigned, "s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := w.Snapshot()
			if to, why := simulation.NewRoom(s).Replace(clustertest.Find(t, s, test.pod), test.requires); nameOf(to) != test.want {
				t.Errorf("replacement on %s (%s), want %s", nameOf(to), why, test.want)
			}
		})
	}
}

// After its time has ended, a Room returns only earlier results and reserves no room.
func TestRoomUntil(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build(`
		node a on-demand m/a cpu=1
		node b on-demand m/b cpu=1
		node gone on-demand m/a cordoned
		deployment web 3 gone gone gone min=3`)
	s := w.Snapshot()
	all := 0
	simulation.NewRoomUntil(s, func() bool { all++; return false }).Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned)
	if all < 2 {
		t.Fatalf("checked the time %d times for one pod, want more than once", all)
	}
	for left := range all {
		room := simulation.NewRoomUntil(s, func() bool { left--; return left < 0 })
		for range 2 {
			if to, why := room.Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned); to != nil || why != simulation.NotExamined {
				t.Errorf("%s, %q, want %q", nameOf(to), why, simulation.NotExamined)
			}
		}
	}
	over := false
	room := simulation.NewRoomUntil(s, func() bool { return over })
	first, _ := room.Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned)
	over = true
	if again, _ := room.Replace(clustertest.Find(t, s, "web-0"), decision.Unassigned); again == nil || again != first {
		t.Errorf("%s, want the earlier result: %s", nameOf(again), nameOf(first))
	}
	if to, why := room.Replace(clustertest.Find(t, s, "web-1"), decision.Unassigned); to != nil || why != simulation.NotExamined {
		t.Errorf("%s, %q, want %q", nameOf(to), why, simulation.NotExamined)
	}
}
