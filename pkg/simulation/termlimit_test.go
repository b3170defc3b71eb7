package simulation_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// A pod with thousands of terms uses neither the time nor the room of other pods.
func TestReplaceExcessivePods(t *testing.T) {
	one := func(i int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprint("k", i): "v"}}
	}
	node := func(a *v1.Affinity, i int) {
		if a.NodeAffinity == nil {
			a.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{}}
		}
		terms := &a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		*terms = append(*terms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: fmt.Sprint("k", i), Operator: v1.NodeSelectorOpDoesNotExist}}})
	}
	apart := func(a *v1.Affinity, i int) {
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &v1.PodAntiAffinity{}
		}
		terms := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, v1.PodAffinityTerm{LabelSelector: one(i), TopologyKey: v1.LabelHostname})
	}
	for name, add := range map[string]func(*v1.PodSpec, int){
		"node affinity":     func(s *v1.PodSpec, i int) { node(s.Affinity, i) },
		"pod anti-affinity": func(s *v1.PodSpec, i int) { apart(s.Affinity, i) },
		"topology spread": func(s *v1.PodSpec, i int) {
			s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, v1.TopologySpreadConstraint{
				MaxSkew: 1000, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: one(i)})
		},
	} {
		for terms, want := range map[int]bool{20: true, 1000: false} {
			for state, where := range map[string]string{"pending": "", "nominated": "a", "on a cordoned node": "gone"} {
				t.Run(fmt.Sprintf("%d terms of %s, %s", terms, name, state), func(t *testing.T) {
					w := clustertest.NewWorld(t)
					w.Build("node a on-demand m/a cpu=1\nnode gone on-demand m/a cordoned")
					pod := &v1.Pod{ObjectMeta: clustertest.Meta("bad"), Spec: v1.PodSpec{Affinity: &v1.Affinity{}}}
					if where == "gone" {
						pod.Spec.NodeName = where
					} else {
						pod.Status.NominatedNodeName = where
					}
					for i := range terms {
						add(&pod.Spec, i)
					}
					w.Put(pod)
					s := w.Snapshot()
					if to, why := simulation.NewRoom(s).Replace(clustertest.Find(t, s, "bad"), decision.Unassigned); (to != nil) != want {
						t.Errorf("%s (%s), want room: %t", nameOf(to), why, want)
					}
				})
			}
		}
	}
}
