package replicasafety

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
)

// Pods that their controller did not create wait for no owner. The first is the floor of its group,
// which does not count the pods of the controller itself.
func TestPodsOfOthersDoNotWait(t *testing.T) {
	for name, owner := range map[string]metav1.OwnerReference{
		"Deployment": by("Deployment", "web"), "Pod": by("v1/Pod", "driver"), "StatefulSet": by("StatefulSet", "db"), "Job": by("Job", "j"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.nodes(onDemand("on-demand"), spotNode("spot"))
			first, second := podOf("task-a", owner), podOf("task-b", owner)
			w.seen(second)
			w.addPods("spot", podOf("driver"), podOf("db-0", by("StatefulSet", "db")), podOf("j-x", by("Job", "j")))
			if diff := cmp.Diff([]string{"on-demand", "spot"}, w.try(first).feasible); diff != "" {
				t.Errorf("feasible for the first pod (-want +got):\n%s", diff)
			}
			w.addPods("spot", first)
			if diff := cmp.Diff([]string{"on-demand"}, w.try(second).feasible); diff != "" {
				t.Errorf("feasible for the second pod (-want +got):\n%s", diff)
			}
		})
	}
}

// A canary of one pod of ten starts on spot at once, although on-demand is full to the floor: the
// spot budget of its revision depends on the replica count of the whole workload.
func TestCanaryStartsAtOnce(t *testing.T) {
	w := newWorld(t, nil, clustertest.AsRollout(clustertest.NewDeployment("web", 10, "stable", "canary"))...)
	w.nodes(onDemand("on-demand"), spotNode("spot"))
	w.addPods("on-demand", podOf("a", by("ReplicaSet", "web-stable")), podOf("b", by("ReplicaSet", "web-stable")))
	canary := annotate(podOf("canary", by("ReplicaSet", "web-canary")), spot.MinOnDemandAnnotation, "2")
	if diff := cmp.Diff([]string{"on-demand", "spot"}, w.try(canary).feasible); diff != "" {
		t.Errorf("feasible for the first pod (-want +got):\n%s", diff)
	}
	for i := range 8 {
		w.addPods("spot", podOf(fmt.Sprintf("c-%d", i), by("ReplicaSet", "web-canary")))
	}
	if diff := cmp.Diff([]string{"on-demand"}, w.try(canary).feasible); diff != "" {
		t.Errorf("feasible for the floor of the new revision (-want +got):\n%s", diff)
	}
	w.plugin.waiting.AddUnschedulable(canary, placement.Wait{})
	w.clock.Step(30 * time.Second)
	if diff := cmp.Diff([]string{"on-demand", "spot"}, w.try(canary).feasible); diff != "" {
		t.Errorf("feasible after rolloutRelief (-want +got):\n%s", diff)
	}
}
