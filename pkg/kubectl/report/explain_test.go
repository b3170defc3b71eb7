package report_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// explanationLines returns an explanation as lines, without its settings.
func explanationLines(e *report.Explanation) []string {
	lines := []string{fmt.Sprintf("%s: %s", e.Pod, e.Answer)}
	if e.Workload != nil {
		line := fmt.Sprintf("%s %s: floor %d of %d, budget %d", e.Workload, e.Revision, e.Floor, e.Desired, e.Budget)
		if e.OnSpot != nil {
			line += fmt.Sprintf(", %d on spot, %d on on-demand", *e.OnSpot, *e.OnOnDemand)
		}
		lines = append(lines, line)
	}
	if e.Assigned+e.Granted != "" {
		lines = append(lines, fmt.Sprintf("assigned %q, granted %q", e.Assigned, e.Granted))
	}
	for _, g := range e.Nodes {
		lines = append(lines, fmt.Sprintf("%s %s %v %t %q", g.Capacity, g.Pool, g.Names, g.Accepts, g.Reasons))
	}
	for _, thing := range e.Remedies {
		lines = append(lines, "- "+thing)
	}
	return lines
}

func TestExplain(t *testing.T) {
	const usedUp = "spot budget used up: 2 of at most 2 replicas of shop/web-r run on spot (waits for on-demand room, may run on any spot node after 5m)"
	half := decision.Percent(50)
	noOverflow := basic()
	noOverflow.Defaults.Overflow = decision.NeverOverflow
	gateTimeout := basic()
	gateTimeout.GateTimeout = 30 * time.Second
	capped := basic()
	capped.Defaults.MaxPerPool, capped.Defaults.MinOnDemand = &half, decision.Count(0)
	for name, test := range map[string]struct {
		policy  *decision.Policy
		cluster string
		of      string
		want    []string
	}{
		"a pod in the floor waits for on-demand": {
			cluster: `
				node od on-demand m/a cpu=1
				node sp spot m/a
				deployment other 1 od
				deployment web 3 sp sp - waits=30s`,
			of: "pod/web-2",
			want: []string{
				"web-2: it waits: 0/2 nodes are available: 2 Insufficient cpu",
				"deployment/web shop/web-r: floor 1 of 3, budget 2, 2 on spot, 0 on on-demand",
				`on-demand m/a [od] false ["insufficient cpu"]`,
				`spot m/a [sp] false ["` + usedUp + `"]`,
				"- 1 on-demand nodes: insufficient cpu is the only obstacle",
				"- 1 node is refused only by the policy: " + usedUp,
				"- a lower floor: annotation spot-aware-scheduler.io/min-on-demand on the Deployment",
				"- time: in 4m31s it may use any spot node (it has waited for 29s)",
			},
		},
		"a pod that has waited long enough for spot": {
			cluster: "node sp spot m/a\ndeployment web 3 sp sp - waits=6m",
			of:      "deployment/web",
			want: []string{
				"web-2: it waits: 0/2 nodes are available: 2 Insufficient cpu",
				"deployment/web shop/web-r: floor 1 of 3, budget 2, 2 on spot, 0 on on-demand",
				`spot m/a [sp] true []`,
				"- 1 node would accept it: the scheduler has not retried it yet, or a constraint prevents it that this command does not check " +
					"(volume limits, resource claims, gangs, the anti-affinity of other pods)",
			},
		},
		"a zone without on-demand": {
			cluster: "node od on-demand m/b\nnode sp spot m/a cpu=2\ndeployment web 3 sp sp - zone=a",
			of:      "pod/web-2",
			want: []string{
				"web-2: it waits: no scheduler has reported a reason",
				"deployment/web shop/web-r: floor 1 of 3, budget 2, 2 on spot, 0 on on-demand",
				`on-demand m/b [od] false ["not in the pod's node selector or affinity"]`,
				`spot m/a [sp] false ["insufficient cpu"]`,
				"- 1 on-demand nodes: not in the pod's node selector or affinity is the only obstacle",
				"- 1 spot nodes: insufficient cpu is the only obstacle",
			},
		},
		"a zone without spot, overflow Never": {
			policy:  noOverflow,
			cluster: "node od on-demand m/b\nnode sp spot m/a\ndeployment web 2 od od zone=b",
			of:      "pod/web-1",
			want: []string{
				"web-1: it runs on od (on-demand): beyond the floor: its own constraints admit only on-demand " +
					"(node sp: not in the pod's node selector or affinity). To use spot, change them, or add a node that they admit",
				"deployment/web shop/web-r: floor 1 of 2, budget 1, 0 on spot, 1 on on-demand",
				`on-demand m/b [od] true []`,
				`spot m/a [sp] false ["not in the pod's node selector or affinity"]`,
			},
		},
		"one more replica in a zone without on-demand": {
			cluster: "node od on-demand m/b\nnode sp spot m/a\ndeployment web 2 sp sp zone=a",
			of:      "deployment/web",
			want: []string{
				": 2 of 2 replicas are bound to nodes, 0 on on-demand and 2 on spot; none is waiting. " +
					"One more would prefer spot, because its own constraints admit only spot " +
					"(node od: not in the pod's node selector or affinity). To use on-demand, change them, or add a node that they admit",
				"deployment/web shop/web-r: floor 1 of 2, budget 1, 2 on spot, 0 on on-demand",
				`spot m/a [sp] true []`,
				`on-demand m/b [od] false ["not in the pod's node selector or affinity"]`,
			},
		},
		"its own requirements": {
			cluster: `
				node od on-demand m/a taint=example.com/mine
				node od-b on-demand m/b cordoned
				node sp spot m/b
				deployment web 4 sp - min=0 zone=b anti=kubernetes.io/hostname`,
			of: "pod/web-1",
			want: []string{
				"web-1: it waits: no scheduler has reported a reason",
				"deployment/web shop/web-r: floor 0 of 4, budget 4, 1 on spot, 0 on on-demand",
				`on-demand m/a [od] false ["not in the pod's node selector or affinity" "taint example.com/mine"]`,
				`on-demand m/b [od-b] false ["taint node.kubernetes.io/unschedulable"]`,
				`spot m/b [sp] false ["the pod's anti-affinity to other pods"]`,
				"- 1 on-demand nodes: taint node.kubernetes.io/unschedulable is the only obstacle",
				"- 1 spot nodes: the pod's anti-affinity to other pods is the only obstacle",
			},
		},
		"a bound pod does not count itself": {
			cluster: "node od on-demand m/a cpu=1\nnode sp spot m/a\ndeployment web 2 od sp",
			of:      "pod/web-0",
			want: []string{
				"web-0: it runs on od (on-demand): part of the floor",
				"deployment/web shop/web-r: floor 1 of 2, budget 1, 1 on spot, 0 on on-demand",
				`on-demand m/a [od] true []`,
				`spot m/a [sp] false ["spot budget used up: 1 of at most 1 replicas of shop/web-r run on spot (waits for on-demand room, may run on any spot node after 5m)"]`,
			},
		},
		"over its budget": {
			cluster: "node sp spot m/a\ndeployment web 1 sp",
			of:      "pod/web-0",
			want: []string{
				"web-0: it runs on sp (spot): over its budget: it fell back to spot, or the floor or the replica count has changed since",
				"deployment/web shop/web-r: floor 1 of 1, budget 0, 0 on spot, 0 on on-demand",
				`spot m/a [sp] false ["spot budget used up: 0 of at most 0 replicas of shop/web-r run on spot (waits for on-demand room, may run on any spot node after 5m)"]`,
			},
		},
		"one more replica": {
			cluster: "node od on-demand m/a\nnode sp spot m/a\ndeployment web 3 od sp sp",
			of:      "deployment/web",
			want: []string{
				": 3 of 3 replicas are bound to nodes, 1 on on-demand and 2 on spot; none is waiting. One more would prefer on-demand",
				"deployment/web shop/web-r: floor 1 of 3, budget 2, 2 on spot, 1 on on-demand",
				`on-demand m/a [od] true []`,
				`spot m/a [sp] false ["` + usedUp + `"]`,
			},
		},
		"an ordinal in the floor": {
			cluster: "node sp spot m/a\nstatefulset db 2 - waits=1m",
			of:      "statefulset/db",
			want: []string{
				"db-0: it waits: 0/2 nodes are available: 2 Insufficient cpu",
				"statefulset/db shop/db: floor 1 of 2, budget 1, 0 on spot, 0 on on-demand",
				`spot m/a [sp] false ["ordinal belongs to the floor: the first 1 ordinals of shop/db must run on on-demand, and later ordinals wait for this one ` +
					`(waits for on-demand room, may run on any spot node after 5m)"]`,
				"- 1 node is refused only by the policy: ordinal belongs to the floor: the first 1 ordinals of shop/db must run on on-demand, " +
					"and later ordinals wait for this one (waits for on-demand room, may run on any spot node after 5m)",
				"- a lower floor: annotation spot-aware-scheduler.io/min-on-demand on the StatefulSet",
				"- time: in 4m1s it may use any spot node (it has waited for 59s)",
			},
		},
		"a full pool and a reclaimed node": {
			policy: capped,
			cluster: `
				node sp-1 spot m/a
				node sp-2 spot m/b taint=aws-node-termination-handler/spot-itn
				deployment web 2 sp-1 -`,
			of: "pod/web-1",
			want: []string{
				"web-1: it waits: no scheduler has reported a reason",
				"deployment/web shop/web-r: floor 0 of 2, budget 2, 1 on spot, 0 on on-demand",
				`spot m/a [sp-1] false ["spot pool full: at most 1 replicas of shop/web-r may run in one pool (waits for room in another spot pool or on on-demand, may run on any spot node after 5m)"]`,
				`spot m/b [sp-2] false ["node is being reclaimed" "taint aws-node-termination-handler/spot-itn"]`,
				"- 1 node is refused only by the policy: spot pool full: at most 1 replicas of shop/web-r may run in one pool " +
					"(waits for room in another spot pool or on on-demand, may run on any spot node after 5m)",
			},
		},
		"a rollout that waits for its older revision": {
			cluster: "node od on-demand m/a cpu=1\nnode sp spot m/a\ndeployment web 1 od - old=1 waits=10s",
			of:      "deployment/web",
			want: []string{
				"web-1: it waits: 0/2 nodes are available: 2 Insufficient cpu",
				"deployment/web shop/web-r: floor 1 of 1, budget 0, 0 on spot, 0 on on-demand",
				`on-demand m/a [od] false ["insufficient cpu"]`,
				`spot m/a [sp] false ["spot budget used up: 0 of at most 0 replicas of shop/web-r run on spot (waits for on-demand room, may run on any spot node after 5m)"]`,
				"- 1 on-demand nodes: insufficient cpu is the only obstacle",
				"- 1 node is refused only by the policy: spot budget used up: 0 of at most 0 replicas of shop/web-r run on spot " +
					"(waits for on-demand room, may run on any spot node after 5m)",
				"- a lower floor: annotation spot-aware-scheduler.io/min-on-demand on the Deployment",
				"- time: in 21s it may use any spot node (it has waited for 9s)",
			},
		},
		"beyond the floor, overflow Never": {
			policy:  noOverflow,
			cluster: "node od on-demand m/a\nnode sp spot m/a cpu=0\ndeployment web 2 od - waits=1m",
			of:      "deployment/web",
			want: []string{
				"web-1: it waits: 0/2 nodes are available: 2 Insufficient cpu",
				"deployment/web shop/web-r: floor 1 of 2, budget 1, 0 on spot, 1 on on-demand",
				`on-demand m/a [od] false ["overflow Never: the floor of 1 of shop/web-r is met (waits for room on spot)"]`,
				`spot m/a [sp] false ["insufficient cpu"]`,
				"- 1 spot nodes: insufficient cpu is the only obstacle",
				"- 1 node is refused only by the policy: overflow Never: the floor of 1 of shop/web-r is met (waits for room on spot)",
				"- overflow Allow: annotation spot-aware-scheduler.io/overflow on the Deployment",
			},
		},
		"nodes with several obstacles": {
			cluster: "node sp spot m/a cpu=0 cordoned\ndeployment web 1 - min=0",
			of:      "pod/web-0",
			want: []string{
				"web-0: it waits: no scheduler has reported a reason",
				"deployment/web shop/web-r: floor 0 of 1, budget 1, 0 on spot, 0 on on-demand",
				`spot m/a [sp] false ["taint node.kubernetes.io/unschedulable" "insufficient cpu"]`,
				"- another node: each existing node has more than one obstacle",
			},
		},
		"gates": {
			cluster: "node od on-demand m/a\ndeployment web 1 - gated",
			of:      "pod/web-0",
			want: []string{
				"web-0: it waits: no scheduler has reported a reason",
				"deployment/web shop/web-r: floor 1 of 1, budget 0, 0 on spot, 0 on on-demand",
				`on-demand m/a [od] true []`,
				"- its scheduling gates: example.com/gate",
			},
		},
		"the capacity gate": {
			policy:  gateTimeout,
			cluster: "node od on-demand m/a\ndeployment web 1 - gated=spot-aware-scheduler.io/capacity born=10s",
			of:      "pod/web-0",
			want: []string{
				"web-0: it has the scheduling gate spot-aware-scheduler.io/capacity until the controller assigns a capacity type to it",
				"deployment/web shop/web-r: floor 1 of 1, budget 0, 0 on spot, 0 on on-demand",
				`on-demand m/a [od] true []`,
				"- the controller, with gating.enabled, removes the scheduling gate spot-aware-scheduler.io/capacity; " +
					"otherwise the scheduler removes it in 20s (gateTimeout)",
			},
		},
		"assigned to the floor": {
			cluster: "node sp spot m/a\ndeployment web 2 sp - waits=30s assigned=on-demand:floor only=on-demand",
			of:      "pod/web-1",
			want: []string{
				"web-1: it waits: 0/2 nodes are available: 2 Insufficient cpu",
				"deployment/web shop/web-r: floor 1 of 2, budget 1, 1 on spot, 0 on on-demand",
				`assigned "on-demand:floor", granted ""`,
				`spot m/a [sp] false ["spot budget used up: 1 of at most 1 replicas of shop/web-r run on spot (waits for on-demand room)" "not in the pod's node selector or affinity"]`,
				"- another node: each existing node has more than one obstacle",
			},
		},
		"assigned beyond the floor": {
			policy:  noOverflow,
			cluster: "node od on-demand m/a\ndeployment web 2 - assigned=any:beyond",
			of:      "pod/web-0",
			want: []string{
				"web-0: it waits: no scheduler has reported a reason",
				"deployment/web shop/web-r: floor 1 of 2, budget 1, 0 on spot, 0 on on-demand",
				`assigned "any:beyond", granted ""`,
				`on-demand m/a [od] false ["overflow Never: the pod was assigned beyond the floor of 1 of shop/web-r (waits for room on spot)"]`,
				"- 1 node is refused only by the policy: overflow Never: the pod was assigned beyond the floor of 1 of shop/web-r (waits for room on spot)",
				"- overflow Allow: annotation spot-aware-scheduler.io/overflow on the Deployment",
			},
		},
		"a pod beyond the floor": {
			cluster: "node od on-demand m/a\ndeployment web 4 od assigned=any:beyond min=2",
			of:      "pod/web-0",
			want: []string{
				"web-0: it runs on od (on-demand): beyond the floor: no spot node had room, or the budget was used up",
				"deployment/web shop/web-r: floor 2 of 4, budget 2, 0 on spot, 0 on on-demand",
				`assigned "any:beyond", granted ""`,
				`on-demand m/a [od] true []`,
			},
		},
		"a fallback was granted": {
			cluster: "node sp spot m/a\ndeployment web 1 - granted=fallback",
			of:      "pod/web-0",
			want: []string{
				"web-0: it waits: no scheduler has reported a reason",
				"deployment/web shop/web-r: floor 1 of 1, budget 0, 0 on spot, 0 on on-demand",
				`assigned "", granted "fallback"`,
				`spot m/a [sp] true []`,
				"- 1 node would accept it: the scheduler has not retried it yet, or a constraint prevents it that this command does not check " +
					"(volume limits, resource claims, gangs, the anti-affinity of other pods)",
			},
		},
		"no pods": {
			cluster: "node od on-demand m/a\ndeployment web 1",
			of:      "deployment/web",
			want: []string{
				": its controller has created none of its pods: see the events of its ReplicaSet or StatefulSet",
				"deployment/web shop/web-r: floor 1 of 1, budget 0, 0 on spot, 0 on on-demand",
				`on-demand m/a [od] true []`,
			},
		},
		"scaled to 0": {
			cluster: "node od on-demand m/a\ndeployment web 0",
			of:      "deployment/web",
			want: []string{
				": it is scaled to 0 and has no pods",
				"deployment/web shop/web-r: floor 0 of 0, budget 0, 0 on spot, 0 on on-demand",
			},
		},
		"pod of another scheduler": {
			cluster: "deployment web 1 - profile=other",
			of:      "deployment/web",
			want:    []string{`web-0: the policy does not apply to it: its schedulerName is "other", not "spot-aware-scheduler"`},
		},
		"pod of a DaemonSet": {
			cluster: "node od on-demand m/a\ndaemonset log od",
			of:      "pod/log",
			want:    []string{"log: the policy does not apply to it: pods of DaemonSets and static pods are bound to their nodes"},
		},
		"a missing owner": {
			cluster: "pod orphan - owner=ReplicaSet/missing",
			of:      "pod/orphan",
			want:    []string{"orphan: owner not known yet: waits for ReplicaSet shop/missing to appear in the cache"},
		},
		"a pod without an owner": {
			cluster: "pod lone -",
			of:      "pod/lone",
			want: []string{
				"lone: it waits: no scheduler has reported a reason",
				"pod/lone shop/lone: floor 1 of 1, budget 0, 0 on spot, 0 on on-demand",
				"- time: in 5m0s it may use any spot node (it has waited for 0s)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.policy == nil {
				test.policy = basic()
			}
			kind, name, _ := strings.Cut(test.of, "/")
			e, err := newView(t, test.policy, test.cluster).Explain(kind, "shop", name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, explanationLines(e)); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}

// A replica beyond the floor may be on on-demand although overflow is Never: the setting applies to
// new pods.
func TestPlacementReasonWithoutOverflow(t *testing.T) {
	policy := basic()
	policy.Defaults.Overflow = decision.NeverOverflow
	e, err := newView(t, policy, "node od on-demand m/a\ndeployment web 2 od od").Explain("pod", "shop", "web-1")
	if err != nil {
		t.Fatal(err)
	}
	want := "it runs on od (on-demand): beyond the floor, although overflow is Never: the setting, the floor or the replica count has changed since"
	if diff := cmp.Diff(want, e.Answer); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// Of equally placed pods, the first by rank are in the floor or within the budget.
func TestPlacementReasons(t *testing.T) {
	const (
		floor, beyond = "part of the floor", "beyond the floor: no spot node had room, or the budget was used up"
		within, over  = "within its budget", "over its budget: it fell back to spot, or the floor or the replica count has changed since"
	)
	const nodes = "node od on-demand m/a\nnode od-2 on-demand m/b\nnode sp spot m/a\nnode sp-2 spot m/b\n"
	for name, test := range map[string]struct {
		cluster string
		want    []string // of web-0, web-1, ...
	}{
		"more than the floor, by name": {"deployment web 5 od od-2 od min=2", []string{floor, floor, beyond}},
		"the oldest pods":              {"deployment web 5 od od-2 min=1\npod web-2 od owner=ReplicaSet/web-r born=2h", []string{beyond, beyond, floor}},
		"the pod with a deletion cost": {"deployment web 5 od od-2 min=1\npod web-2 od owner=ReplicaSet/web-r born=1m kept", []string{beyond, beyond, floor}},
		"as many as the floor":         {"deployment web 5 od od min=2", []string{floor, floor}},
		"two revisions":                {"deployment web 5 od od od old=1", []string{floor, floor, beyond}},
		"ordinals":                     {"statefulset web 3 od od sp", []string{floor, beyond, within}},
		"more than the budget":         {"deployment web 3 sp sp-2 sp", []string{within, within, over}},
	} {
		t.Run(name, func(t *testing.T) {
			view := newView(t, basic(), nodes+test.cluster)
			var got []string
			for i := range test.want {
				e, err := view.Explain("pod", "shop", fmt.Sprintf("web-%d", i))
				if err != nil {
					t.Fatal(err)
				}
				_, as, _ := strings.Cut(e.Answer, "): ")
				got = append(got, as)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("placement reasons (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExplainSettings(t *testing.T) {
	policy := basic()
	policy.Rules = []decision.Rule{{Name: "shop", Namespaces: []string{"shop"}, Overrides: clustertest.Overrides("whenUnsatisfiable", "ScheduleAnyway")}}
	e, err := newView(t, policy, "node od on-demand m/a\ndeployment web 4 od min=50%").Explain("deployment", "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	want := []report.Setting{
		{Name: "minOnDemand", Value: "50%", Source: "annotation spot-aware-scheduler.io/min-on-demand on the Deployment"},
		{Name: "maxPerPool", Value: "no cap", Source: "the profile"},
		{Name: "whenUnsatisfiable", Value: "ScheduleAnyway", Source: `rule "shop"`},
		{Name: "fallbackAfter", Value: "5m0s", Source: "the profile"},
		{Name: "rolloutRelief", Value: "30s", Source: "the profile"},
		{Name: "overflow", Value: "Allow", Source: "the profile"},
		{Name: "exemptions", Value: "Allow", Source: "the profile"},
		{Name: "protect", Value: "false", Source: "the default"},
	}
	for _, setting := range want {
		if !slices.Contains(e.Settings, setting) {
			t.Errorf("settings %v, want %v in them", e.Settings, setting)
		}
	}
	if slices.ContainsFunc(e.Settings, func(s report.Setting) bool { return s.Name == "disruptionLimit" }) {
		t.Errorf("settings %v, want no setting of Jobs", e.Settings)
	}
}

// Rules by QoS class and by priority also apply to workloads without pods, by their pod templates.
func TestRulesWithoutPods(t *testing.T) {
	policy := basic()
	policy.Rules = []decision.Rule{
		{Name: "important", MinPriority: ptr.To[int32](100), Overrides: clustertest.Overrides("minOnDemand", "3")},
		{Name: "burstable", QOSClasses: []string{"Burstable"}, Overrides: clustertest.Overrides("minOnDemand", "2")},
	}
	const workloads = "class high 100\ndeployment web 5 class=high\nstatefulset db 5\ndeployment idle 0 class=high"
	view := newView(t, policy, workloads)
	got := map[string]string{}
	for _, object := range []string{"Deployment/web", "StatefulSet/db", "Deployment/idle"} {
		kind, name, _ := strings.Cut(object, "/")
		e, err := view.Explain(kind, "shop", name)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = fmt.Sprintf("%d, %s from %s", e.Floor, e.Settings[0].Value, e.Settings[0].Source)
	}
	want := map[string]string{"web": `3, 3 from rule "important"`, "db": `2, 2 from rule "burstable"`, "idle": `0, 3 from rule "important"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explained (-want +got):\n%s", diff)
	}
	all, _ := view.Statuses()
	if len(all) != 2 || all[0].Floor != 3 || all[1].Floor != 2 {
		t.Errorf("statuses %v, want the floors 3 and 2", statusLines(all))
	}
}

func TestExplainWithoutNodes(t *testing.T) {
	const unread = "nodes cannot be read, so it is unknown which nodes have room"
	view := newView(t, basic(), "deployment web 2 somewhere -\ndeployment api 1 somewhere")
	view.NodesUnknown = true
	for object, want := range map[string]string{
		"deployment/web": "web-1: it waits: no scheduler has reported a reason; " + unread,
		"pod/web-0":      "web-0: it is bound to node somewhere; " + unread,
		"deployment/api": ": 1 replica of 1; none is waiting; " + unread,
	} {
		kind, name, _ := strings.Cut(object, "/")
		e, err := view.Explain(kind, "shop", name)
		if err != nil {
			t.Fatal(err)
		}
		if got := explanationLines(e); got[0] != want || len(got) != 2 || strings.Contains(got[1], "on spot") {
			t.Errorf("%s: %q, want %q and the policy without counts", object, got, want)
		}
	}
}

// The first pod of a StatefulSet without pods is explained by its ordinal in the floor, regardless
// of its start ordinal.
func TestExplainFirstOrdinal(t *testing.T) {
	e, err := newView(t, basic(), "statefulset db 1 start=5").Explain("statefulset", "shop", "db")
	if err != nil || e.Ordinal == nil || *e.Ordinal != 0 {
		t.Errorf("%+v, %v, want ordinal 0", e, err)
	}
}

// For a Job the explanation shows the disruptions, their limit and the effect.
func TestExplainDisruptions(t *testing.T) {
	limited, preferring := basic(), basic()
	limited.Defaults.DisruptionLimit, preferring.Defaults.DisruptionLimit = 3, 1
	preferring.Defaults.OnDisruptionLimit = decision.PreferOnDemand
	for name, test := range map[string]struct {
		policy                *decision.Policy
		job, disruptions, why string
		limits                []report.Setting
	}{
		"no limit": {
			policy: basic(), job: "job sum 1 sp disruptions=3", why: "it runs on sp (spot): within its budget",
			limits: []report.Setting{{Name: "disruptionLimit", Value: "never", Source: "the profile"}},
		},
		"below the limit": {
			policy: limited, job: "job sum 1 sp disruptions=2", disruptions: "2 of 3: at the limit, its pods run on on-demand",
			why: "it runs on sp (spot): within its budget",
			limits: []report.Setting{
				{Name: "disruptionLimit", Value: "3", Source: "the profile"}, {Name: "onDisruptionLimit", Value: "RequireOnDemand", Source: "the profile"},
			},
		},
		"at the limit, on on-demand": {
			policy: limited, job: "job sum 1 od disruptions=3", disruptions: "3 of 3: after 3 disruptions, its pods run on on-demand",
			why: "it runs on od (on-demand): after 3 disruptions, its pods run on on-demand",
		},
		"at the limit, on spot": {
			policy: limited, job: "job sum 1 sp disruptions=3", disruptions: "3 of 3: after 3 disruptions, its pods run on on-demand",
			why: "it runs on sp (spot): placed before its Job reached the disruption limit, or it fell back to spot",
		},
		"preferred on-demand": {
			policy: preferring, job: "job sum 1 od disruptions=2", disruptions: "2 of 1: after 1 disruption, its pods prefer on-demand",
			why: "it runs on od (on-demand): after 1 disruption, its pods prefer on-demand",
		},
		"a Deployment": {policy: limited, job: "deployment sum 2 od sp disruptions=3", why: "it runs on od (on-demand): part of the floor"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := newView(t, test.policy, "node od on-demand m/a\nnode sp spot m/a\n"+test.job).Explain("pod", "shop", "sum-0")
			if err != nil {
				t.Fatal(err)
			}
			if e.Answer != test.why || e.Disruptions != test.disruptions {
				t.Errorf("answer %q, disruptions %q, want %q, %q", e.Answer, e.Disruptions, test.why, test.disruptions)
			}
			limits := slices.DeleteFunc(slices.Clone(e.Settings), func(s report.Setting) bool { return !strings.Contains(s.Name, "isruption") })
			if diff := cmp.Diff(test.limits, limits); test.limits != nil && diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if strings.HasPrefix(test.job, "deployment") && len(limits) > 0 {
				t.Errorf("settings of a Deployment contain %v", limits)
			}
		})
	}
}

func TestExplainNotFound(t *testing.T) {
	view := newView(t, basic(), "node od on-demand m/a\ndeployment web 1 od")
	for _, object := range []string{"pod/web", "deployment/web-0", "statefulset/web", "job/web"} {
		kind, name, _ := strings.Cut(object, "/")
		if _, err := view.Explain(kind, "shop", name); !errors.Is(err, report.ErrNotFound) {
			t.Errorf("%s: %v, want %v", object, err, report.ErrNotFound)
		}
	}
}
