package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// The second act needs a pool that is too large for the other spot pools and that is the only
// spot pool in its zone.
func TestNodesOfSecondAct(t *testing.T) {
	nodes := scarceNodes()
	pool := largestPool(nodes)
	room := map[bool]int64{} // in milli-CPU, by whether it is the pool's
	onDemand := int64(0)
	spotInZone := 0
	for _, n := range nodes {
		cpu := n.Node().Status.Allocatable.Cpu().MilliValue()
		if n.Capacity == lab.OnDemand {
			onDemand += cpu
			continue
		}
		inPool := slices.ContainsFunc(pool, func(p lab.NodeSpec) bool { return p.Name == n.Name })
		room[inPool] += cpu
		if n.Zone == pool[0].Zone && !inPool {
			spotInZone++
		}
	}
	if spotInZone > 0 {
		t.Errorf("%d spot nodes are in %s besides %s: a singleton may fall back to those", spotInZone, pool[0].Zone, poolName(pool))
	}
	if part := float64(room[true]) / float64(room[true]+room[false]); part < 0.4 || part >= 0.5 {
		t.Errorf("%s is %.2f of all spot: expected nearly half", poolName(pool), part)
	}
	var onSpot, floors int64
	for _, w := range workloads {
		requests := w.requests()
		cpu := requests.Cpu().MilliValue()
		floors += int64(w.floor) * cpu
		onSpot += int64(w.replicas-w.floor) * cpu
	}
	if onSpot >= room[true]+room[false] || onSpot <= room[false] || onSpot+floors >= room[false]+onDemand {
		t.Errorf("%d m are to run on spot, and %d m on on-demand; the pool has %d m, other spot %d m, on-demand %d m",
			onSpot, floors, room[true], room[false], onDemand)
	}
	if !slices.ContainsFunc(workloads, func(w workload) bool { return w.replicas == 1 && w.floor == 1 }) {
		t.Error("no singleton falls back")
	}
	announced := slices.ContainsFunc(providers.Signals(), func(s providers.Signal) bool {
		return s.Kind == providers.TaintSignal && s.Key == noticeTaint && s.Class == decision.Reclaim && s.Notice == notice
	})
	if !announced {
		t.Errorf("taint %s does not imply %s", noticeTaint, notice)
	}
}

func TestLargestPool(t *testing.T) {
	node := func(name, capacity, instanceType, zone string) lab.NodeSpec {
		return lab.NodeSpec{Name: name, Capacity: capacity, InstanceType: instanceType, Zone: zone}
	}
	tests := map[string]struct {
		nodes []lab.NodeSpec
		want  []string
	}{
		"no spot": {nodes: []lab.NodeSpec{node("a", lab.OnDemand, "m", "x")}},
		"by type and zone": {
			nodes: []lab.NodeSpec{
				node("a", lab.Spot, "m", "x"), node("b", lab.Spot, "m", "y"), node("c", lab.Spot, "c", "x"), node("d", lab.Spot, "m", "y"),
			},
			want: []string{"b", "d"},
		},
		"the first of equals": {
			nodes: []lab.NodeSpec{node("a", lab.Spot, "m", "x"), node("b", lab.Spot, "m", "y")},
			want:  []string{"a"},
		},
		"on-demand is none": {
			nodes: []lab.NodeSpec{node("a", lab.OnDemand, "m", "x"), node("b", lab.OnDemand, "m", "x"), node("c", lab.Spot, "m", "x")},
			want:  []string{"c"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range largestPool(test.nodes) {
				got = append(got, n.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlacementOfTheSecondAct(t *testing.T) {
	for _, w := range workloads {
		for name, p := range map[string]placement{"anywhere": {}, "in a zone": {zone: "z", fallbackAfter: "1s"}} {
			objects := w.objects(p)
			if got := objects[0].GetAnnotations()[spot.FallbackAfterAnnotation]; got != p.fallbackAfter {
				t.Errorf("%s %s: falls back after %q, want %q", w.name, name, got, p.fallbackAfter)
			}
			if got := objects[0].GetAnnotations()[spot.MinOnDemandAnnotation]; got != w.minOnDemand {
				t.Errorf("%s %s: min-on-demand %q, want %q", w.name, name, got, w.minOnDemand)
			}
			if d, ok := objects[0].(*appsv1.Deployment); ok && d.Spec.Template.Spec.NodeSelector[corev1.LabelTopologyZone] != p.zone {
				t.Errorf("%s %s: selects nodes by %v", w.name, name, d.Spec.Template.Spec.NodeSelector)
			}
		}
	}
}

func TestFloorDifferences(t *testing.T) {
	floors := map[string]int{}
	for _, w := range workloads {
		floors[w.name] = w.floor
	}
	with := func(workload string, n int) map[string]int {
		placed := map[string]int{}
		for name, floor := range floors {
			placed[name] = floor
		}
		placed[workload] += n
		return placed
	}
	tests := map[string]struct {
		onDemand map[string]int
		want     map[string]int
	}{
		"the floors":               {with("admin", 0), map[string]int{}},
		"too many":                 {with("search", 2), map[string]int{"search": 2}},
		"too few":                  {with("kafka", -1), map[string]int{"kafka": 1}},
		"a Job is ignored":         {with("nightly-report", 3), map[string]int{}},
		"a singleton is misplaced": {with("admin", -1), map[string]int{"admin": 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, floorDifferences(test.onDemand)); diff != "" {
				t.Errorf("misplaced (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	event := func(reason, kind, name, note string) eventsv1.Event {
		return eventsv1.Event{Reason: reason, Regarding: corev1.ObjectReference{Kind: kind, Name: name}, Note: note}
	}
	tests := map[string]struct {
		events []eventsv1.Event
		want   []eventSummary
	}{
		"nothing": {},
		"other reasons are ignored": {
			events: []eventsv1.Event{event("Scheduled", "Pod", "a", "to a node"), event(spot.ReasonMoving, "Deployment", "a", "moves")},
		},
		"in the order of shown, with the first object by name": {
			events: []eventsv1.Event{
				event(spot.ReasonEvicted, "Pod", "b", "leaves b"), event(spot.ReasonInterruption, "Node", "n", "reclaimed"),
				event(spot.ReasonEvicted, "Pod", "a", "leaves a"), event(spot.ReasonEvicted, "Pod", "c", "leaves c"),
			},
			want: []eventSummary{{spot.ReasonInterruption, 1, "Node n", "reclaimed"}, {spot.ReasonEvicted, 3, "Pod a", "leaves a"}},
		},
		"two events on one object": {
			events: []eventsv1.Event{event(spot.ReasonNoRoom, "Pod", "a", "first"), event(spot.ReasonNoRoom, "Pod", "a", "again")},
			want:   []eventSummary{{spot.ReasonNoRoom, 1, "Pod a", "first"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, summary(test.events)); diff != "" {
				t.Errorf("summaries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestList(t *testing.T) {
	for want, words := range map[string]string{"": "", "a": "a", "a and b": "a b", "a, b and c": "a b c"} {
		if got := list(strings.Fields(words)); got != want {
			t.Errorf("%q: got %q, want %q", words, got, want)
		}
	}
}
