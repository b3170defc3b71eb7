package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// spotZone is a zone with only spot nodes. A pod that selects this zone admits only spot, as far as
// on-demand nodes exist elsewhere.
const spotZone = "zone-spot"

func selectZone(zone string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: zone}
	}
}

func podAnnotated(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{key: value}
	}
}

func TestPlacementAnnotations(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(3, 20), live.Spot(3, 20), []lab.NodeSpec{
		{Name: "lone", Capacity: lab.Spot, InstanceType: "c5.xlarge", Zone: spotZone, CPU: "20"},
		{Name: "poolless", Capacity: lab.Spot, CPU: "20", Taints: []v1.Taint{{Key: "poolless", Effect: v1.TaintEffectNoSchedule}}},
	}))

	s.run("ScheduleAnyway", func(s *scenario) {
		s.Deploy("anyway", 3, live.Annotated(whenUnsatisfiable, "ScheduleAnyway"))
		s.Eventually(soon, s.HasSplit("anyway", split{OnDemand: 1, Spot: 2}))
	})

	s.run("maxPerPool", func(s *scenario) {
		s.Deploy("cap-1", 6, live.Annotated(maxPerPool, "1"), live.Annotated(minOnDemand, "1"))
		s.Deploy("cap-half", 4, live.Annotated(maxPerPool, "50%"), live.Annotated(minOnDemand, "0"), selectZone(spotZone))
		// A node without instance type and zone belongs to no pool, so no cap applies.
		s.Deploy("cap-poolless", 3, live.Annotated(maxPerPool, "1"), live.Annotated(minOnDemand, "0"), func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{v1.LabelHostname: "poolless"}
			d.Spec.Template.Spec.Tolerations = []v1.Toleration{{Key: "poolless", Operator: v1.TolerationOpExists}}
		})
		// Each of the four pools accepts one pod. The floor and the pods beyond the cap run on
		// on-demand.
		s.Eventually(soon, s.HasSplit("cap-1", split{OnDemand: 2, Spot: 4}))
		s.Eventually(soon, s.HasSplit("cap-poolless", split{Spot: 3}))
		s.Eventually(soon, s.HasSplit("cap-half", split{Spot: 2, Waiting: 2}))
		s.Eventually(soon, s.pendingReason("cap-half", 2, "spot pool full: at most 2 replicas"))
		s.Eventually(soon, s.onePerNode("cap-1"))
		s.Scale("cap-half", 6) // this also raises the cap, which admits one of the waiting pods
		s.Eventually(soon, s.pendingReason("cap-half", 3, "spot pool full: at most 3 replicas"))
		s.Scale("cap-half", 0)
	})

	s.run("pod requires spot itself", func(s *scenario) {
		s.Deploy("own-selector", 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{lab.CapacityLabel: lab.Spot}
		})
		s.Deploy("own-affinity", 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: lab.CapacityLabel, Operator: v1.NodeSelectorOpIn, Values: []string{lab.Spot}}},
				}}},
			}}
		})
		s.Deploy("own-zone", 1, selectZone(spotZone))
		s.Eventually(soon, s.HasSplit("own-selector", split{Spot: 1}))
		s.Eventually(soon, s.HasSplit("own-affinity", split{Spot: 1}))
		s.Eventually(soon, s.HasSplit("own-zone", split{Spot: 1}))
		s.Eventually(soon, s.reported(1, "ExemptFromFloor", "own-selector-"))
		s.Eventually(soon, s.reported(1, "ExemptFromFloor", "own-affinity-"))
		s.Eventually(soon, s.reported(1, "ExemptFromFloor", "own-zone-"))
		s.Eventually(soon, s.hasMetric(3, "spot_aware_scheduler_placements_total", map[string]string{"reason": "exempt"}))
	})

	s.run("invalid annotation", func(s *scenario) {
		s.Deploy("bad", 4, live.Annotated(minOnDemand, "lots"), podAnnotated(minOnDemand, "2"))
		s.Deploy("bad-everywhere", 3, live.Annotated(minOnDemand, "130%"), podAnnotated(minOnDemand, "-1"))
		s.Eventually(soon, s.HasSplit("bad", split{OnDemand: 2, Spot: 2}))
		s.Eventually(soon, s.HasSplit("bad-everywhere", split{OnDemand: 1, Spot: 2}))
		s.Eventually(soon, s.reported(4, "InvalidSpotPolicy", "bad-", `"lots"`, minOnDemand, "Deployment"))
		s.Eventually(soon, s.reported(3, "InvalidSpotPolicy", "bad-everywhere-", `"130%"`, `"-1"`))
		s.Eventually(soon, s.hasMetric(4+2*3, "spot_aware_scheduler_invalid_annotations_total", nil))
	})

	s.run("levels and numbers", func(s *scenario) {
		s.Deploy("on-pod", 4, podAnnotated(minOnDemand, "3"))
		s.Deploy("owner-wins", 4, live.Annotated(minOnDemand, "2"), podAnnotated(minOnDemand, "3"))
		s.Deploy("percent-of-0", 3, live.Annotated(minOnDemand, "0%"))
		s.Deploy("all", 3, live.Annotated(minOnDemand, "100%"))
		s.Deploy("more-than-all", 3, live.Annotated(minOnDemand, "20"))
		s.Deploy("rounded-up", 4, live.Annotated(minOnDemand, "26%"))
		s.Deploy("unset", 1, func(d *appsv1.Deployment) { d.Spec.Replicas = nil })
		s.Deploy("none", 0, live.Annotated(minOnDemand, "50%"))
		for app, want := range map[string]split{
			"on-pod": {OnDemand: 3, Spot: 1}, "owner-wins": {OnDemand: 2, Spot: 2}, "percent-of-0": {Spot: 3}, "all": {OnDemand: 3},
			"more-than-all": {OnDemand: 3}, "rounded-up": {OnDemand: 2, Spot: 2}, "unset": {OnDemand: 1}, "none": {},
		} {
			s.Eventually(soon, s.HasSplit(app, want))
		}
		s.Scale("none", 2)
		s.Eventually(soon, s.HasSplit("none", split{OnDemand: 1, Spot: 1}))
	})
}

// A node that starts has taints that it loses. They do not show that a pod admits only spot.
func TestStartingNodeIsNoEvidence(t *testing.T) {
	starting := live.OnDemand(2, 10)
	for i, key := range []string{"node.cilium.io/agent-not-ready", "example.com/agent-starts"} {
		starting[i].Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}}
	}
	s := start(t, slices.Concat(starting, live.Spot(3, 10)))
	s.Deploy("single", 1)
	s.Eventually(soon, s.pendingReason("single", 1, "spot budget used up: 0 of at most 0 replicas"))
	s.EditNode(starting[0].Name, func(n *v1.Node) { n.Spec.Taints = nil })
	s.Eventually(soon, s.HasSplit("single", split{OnDemand: 1}))
}

// reported returns a check that events with this reason regard n objects, and that each note
// contains all parts. It counts objects whose names start with prefix, followed by the suffix that
// controllers add.
func (s *scenario) reported(n int, reason, prefix string, parts ...string) func() error {
	return func() error {
		notes, err := s.eventsOf(s.Namespace, reason)
		if err != nil {
			return err
		}
		found := 0
		for name, note := range notes {
			// The name of a Deployment's pod is the Deployment's name and two more words.
			if suffix, ok := strings.CutPrefix(name, prefix); !ok || strings.Count(suffix, "-") != 1 {
				continue
			}
			found++
			for _, part := range parts {
				if !strings.Contains(note, part) {
					return fmt.Errorf("event %s of %s does not contain %q: %s", reason, name, part, note)
				}
			}
		}
		if found != n {
			return fmt.Errorf("%d objects %s… have an event %s, want %d: %v", found, prefix, reason, n, notes)
		}
		return nil
	}
}

// onePerNode returns a check that no two pods of app share a spot node. In this test each spot pool
// is one node.
func (s *scenario) onePerNode(app string) func() error {
	return func() error {
		pods, err := s.Pods(app)
		on := map[string]string{}
		for _, pod := range pods {
			node := pod.Spec.NodeName
			if other := on[node]; other != "" && strings.HasPrefix(node, "spot-") {
				return fmt.Errorf("%s and %s share %s", other, pod.Name, node)
			}
			on[node] = pod.Name
		}
		return err
	}
}
