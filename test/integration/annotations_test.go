package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
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
	s := start(t, slices.Concat(onDemand(3, 20), spotNodes(3, 20), []lab.NodeSpec{
		{Name: "lone", Capacity: lab.Spot, InstanceType: "c5.xlarge", Zone: spotZone, CPU: "20"},
		{Name: "poolless", Capacity: lab.Spot, CPU: "20", Taints: []v1.Taint{{Key: "poolless", Effect: v1.TaintEffectNoSchedule}}},
	}))

	s.run("ScheduleAnyway", func(s *scenario) {
		s.deploy("anyway", 3, annotated(whenUnsatisfiable, "ScheduleAnyway"))
		s.eventually(soon, s.hasSplit("anyway", split{onDemand: 1, spot: 2}))
	})

	s.run("maxPerPool", func(s *scenario) {
		s.deploy("cap-1", 6, annotated(maxPerPool, "1"), annotated(minOnDemand, "1"))
		s.deploy("cap-half", 4, annotated(maxPerPool, "50%"), annotated(minOnDemand, "0"), selectZone(spotZone))
		// A node without instance type and zone belongs to no pool, so no cap applies.
		s.deploy("cap-poolless", 3, annotated(maxPerPool, "1"), annotated(minOnDemand, "0"), func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{v1.LabelHostname: "poolless"}
			d.Spec.Template.Spec.Tolerations = []v1.Toleration{{Key: "poolless", Operator: v1.TolerationOpExists}}
		})
		// Each of the four pools accepts one pod. The floor and the pods beyond the cap run on
		// on-demand.
		s.eventually(soon, s.hasSplit("cap-1", split{onDemand: 2, spot: 4}))
		s.eventually(soon, s.hasSplit("cap-poolless", split{spot: 3}))
		s.eventually(soon, s.hasSplit("cap-half", split{spot: 2, waiting: 2}))
		s.eventually(soon, s.pendingReason("cap-half", 2, "spot pool full: at most 2 replicas"))
		s.eventually(soon, s.onePerNode("cap-1"))
		s.scale("cap-half", 6) // this also raises the cap, which admits one of the waiting pods
		s.eventually(soon, s.pendingReason("cap-half", 3, "spot pool full: at most 3 replicas"))
		s.scale("cap-half", 0)
	})

	s.run("pod requires spot itself", func(s *scenario) {
		s.deploy("own-selector", 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{lab.CapacityLabel: lab.Spot}
		})
		s.deploy("own-affinity", 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: lab.CapacityLabel, Operator: v1.NodeSelectorOpIn, Values: []string{lab.Spot}}},
				}}},
			}}
		})
		s.deploy("own-zone", 1, selectZone(spotZone))
		s.eventually(soon, s.hasSplit("own-selector", split{spot: 1}))
		s.eventually(soon, s.hasSplit("own-affinity", split{spot: 1}))
		s.eventually(soon, s.hasSplit("own-zone", split{spot: 1}))
		s.eventually(soon, s.reported(1, "ExemptFromFloor", "own-selector-"))
		s.eventually(soon, s.reported(1, "ExemptFromFloor", "own-affinity-"))
		s.eventually(soon, s.reported(1, "ExemptFromFloor", "own-zone-"))
		s.eventually(soon, s.hasMetric(3, "spot_aware_scheduler_placements_total", map[string]string{"reason": "exempt"}))
	})

	s.run("invalid annotation", func(s *scenario) {
		s.deploy("bad", 4, annotated(minOnDemand, "lots"), podAnnotated(minOnDemand, "2"))
		s.deploy("bad-everywhere", 3, annotated(minOnDemand, "130%"), podAnnotated(minOnDemand, "-1"))
		s.eventually(soon, s.hasSplit("bad", split{onDemand: 2, spot: 2}))
		s.eventually(soon, s.hasSplit("bad-everywhere", split{onDemand: 1, spot: 2}))
		s.eventually(soon, s.reported(4, "InvalidSpotPolicy", "bad-", `"lots"`, minOnDemand, "Deployment"))
		s.eventually(soon, s.reported(3, "InvalidSpotPolicy", "bad-everywhere-", `"130%"`, `"-1"`))
		s.eventually(soon, s.hasMetric(4+2*3, "spot_aware_scheduler_invalid_annotations_total", nil))
	})

	s.run("levels and numbers", func(s *scenario) {
		s.deploy("on-pod", 4, podAnnotated(minOnDemand, "3"))
		s.deploy("owner-wins", 4, annotated(minOnDemand, "2"), podAnnotated(minOnDemand, "3"))
		s.deploy("percent-of-0", 3, annotated(minOnDemand, "0%"))
		s.deploy("all", 3, annotated(minOnDemand, "100%"))
		s.deploy("more-than-all", 3, annotated(minOnDemand, "20"))
		s.deploy("rounded-up", 4, annotated(minOnDemand, "26%"))
		s.deploy("unset", 1, func(d *appsv1.Deployment) { d.Spec.Replicas = nil })
		s.deploy("none", 0, annotated(minOnDemand, "50%"))
		for app, want := range map[string]split{
			"on-pod": {3, 1, 0}, "owner-wins": {2, 2, 0}, "percent-of-0": {0, 3, 0}, "all": {3, 0, 0},
			"more-than-all": {3, 0, 0}, "rounded-up": {2, 2, 0}, "unset": {1, 0, 0}, "none": {0, 0, 0},
		} {
			s.eventually(soon, s.hasSplit(app, want))
		}
		s.scale("none", 2)
		s.eventually(soon, s.hasSplit("none", split{onDemand: 1, spot: 1}))
	})
}

// A node that starts has taints that it loses. They do not show that a pod admits only spot.
func TestStartingNodeIsNoEvidence(t *testing.T) {
	starting := onDemand(2, 10)
	for i, key := range []string{"node.cilium.io/agent-not-ready", "example.com/agent-starts"} {
		starting[i].Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}}
	}
	s := start(t, slices.Concat(starting, spotNodes(3, 10)))
	s.deploy("single", 1)
	s.eventually(soon, s.pendingReason("single", 1, "spot budget used up: 0 of at most 0 replicas"))
	s.editNode(starting[0].Name, func(n *v1.Node) { n.Spec.Taints = nil })
	s.eventually(soon, s.hasSplit("single", split{onDemand: 1}))
}

// reported returns a check that events with this reason regard n objects, and that each note
// contains all parts. It counts objects whose names start with prefix, followed by the suffix that
// controllers add.
func (s *scenario) reported(n int, reason, prefix string, parts ...string) func() error {
	return func() error {
		notes, err := s.eventsOf(s.namespace, reason)
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
		pods, err := s.pods(app)
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
