package workload_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const capacityType = "karpenter.sh/capacity-type"

// zonal returns a node with the labels of its zone and capacity type.
func zonal(name, zone, capacity string) *v1.Node {
	return clustertest.NewNode(name, "", "m/"+zone, "label="+capacityType+"="+capacity)
}

func TestTopologySpread(t *testing.T) {
	nodes := []*v1.Node{zonal("o", "a", "on-demand"), zonal("s", "a", "spot"), zonal("t", "b", "spot"), zonal("p", "c", "on-demand")}
	hard := func(key string) v1.TopologySpreadConstraint {
		return v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule}
	}
	soft, ignores := hard(capacityType), hard(capacityType)
	soft.WhenUnsatisfiable = v1.ScheduleAnyway
	ignores.NodeAffinityPolicy = ptr.To(v1.NodeInclusionPolicyIgnore)
	for name, test := range map[string]struct {
		nodes                  []*v1.Node
		constraints            []v1.TopologySpreadConstraint
		byAffinity, toOnDemand bool
	}{
		"none":                      {nodes: nodes},
		"a preference":              {nodes: nodes, constraints: []v1.TopologySpreadConstraint{soft}},
		"capacity types":            {nodes: nodes, constraints: []v1.TopologySpreadConstraint{soft, hard(capacityType)}, byAffinity: true, toOnDemand: true},
		"affinity does not count":   {nodes: nodes, constraints: []v1.TopologySpreadConstraint{ignores}, toOnDemand: true},
		"a zone without spot":       {nodes: nodes, constraints: []v1.TopologySpreadConstraint{hard(v1.LabelTopologyZone)}, byAffinity: true, toOnDemand: true},
		"spot in all zones":         {nodes: nodes[:3], constraints: []v1.TopologySpreadConstraint{hard(v1.LabelTopologyZone)}, byAffinity: true},
		"a label that no node has":  {nodes: nodes, constraints: []v1.TopologySpreadConstraint{hard("rack")}, byAffinity: true},
		"spot nodes only, by name":  {nodes: nodes[1:3], constraints: []v1.TopologySpreadConstraint{hard(v1.LabelHostname)}, byAffinity: true},
		"no nodes, capacity types":  {constraints: []v1.TopologySpreadConstraint{hard(capacityType)}, byAffinity: true},
		"on-demand nodes, capacity": {nodes: nodes[:1], constraints: []v1.TopologySpreadConstraint{hard(capacityType)}, byAffinity: true, toOnDemand: true},
	} {
		t.Run(name, func(t *testing.T) {
			factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			owners := ownersIn(t, factory, builtinPolicy)
			for _, node := range test.nodes {
				clustertest.Fill(t, factory, node)
			}
			pod := podOf("p")
			pod.Spec.TopologySpreadConstraints = test.constraints
			for range 2 { // the second answer is remembered
				s, err := owners.Subject(pod)
				if err != nil || s.Pod.SpreadByAffinity != test.byAffinity || s.Pod.SpreadToOnDemand != test.toOnDemand {
					t.Errorf("%+v, %v, want %v, %v", s, err, test.byAffinity, test.toOnDemand)
				}
			}
		})
	}
}

// A change of the nodes changes the answer.
func TestTopologySpreadWithNewNodes(t *testing.T) {
	client := fake.NewClientset(zonal("s", "a", "spot"))
	factory := informers.NewSharedInformerFactory(client, 0)
	owners, err := workload.NewOwners(factory, builtinPolicy)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	pod := podOf("p")
	pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule}}
	expect := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			s, err := owners.Subject(pod)
			switch {
			case err != nil:
				t.Fatal(err)
			case s.Pod.SpreadToOnDemand == want:
				return
			case time.Now().After(deadline):
				t.Fatalf("not %v within 10 s", want)
			}
		}
	}
	expect(false)
	nodes := client.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), zonal("o", "c", "on-demand"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(true)
	if _, err := nodes.Update(t.Context(), zonal("o", "c", "spot"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(false)
}

// Only the controller may write this annotation.
func TestGrantedExemption(t *testing.T) {
	for value, want := range map[string]bool{spot.GrantedExemption: true, spot.GrantedFallback: false} {
		pod := podOf("p")
		pod.Annotations = map[string]string{spot.GrantedAnnotation: value + " " + string(pod.UID)}
		s, err := ownersOf(t).Subject(pod)
		if err != nil || s.Pod.OnlySpot != want || s.Pod.Granted == decision.NotGranted != want {
			t.Errorf("%s: %+v, %v, want an exemption: %v", value, s, err, want)
		}
	}
}

// Any text may be the key of a constraint. Few answers are remembered, and none for a key that is
// too long to be that of a label.
func TestTopologyKeysAreForgotten(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	owners := ownersIn(t, factory, builtinPolicy)
	grown := func(n, length int) int64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			pod := podOf("p")
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: fmt.Sprint(strings.Repeat("k", length), i), WhenUnsatisfiable: v1.DoNotSchedule}}
			if _, err := owners.Subject(pod); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(owners)
		return int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	for n, length := range map[int]int{20_000: 100, 1_000: 100_000} {
		if bytes := grown(n, length); bytes > 1<<20 {
			t.Errorf("%d keys of %d characters: %d bytes are retained", n, length, bytes)
		}
	}
}
