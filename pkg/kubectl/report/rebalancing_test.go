package report_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// edited lists a cluster whose objects are changed by edit.
func edited(t *testing.T, cluster string, edit func(*v1.Pod)) *lister.Objects {
	t.Helper()
	objects := clustertest.Objects(cluster)
	for _, object := range objects {
		editPods(edit)(object)
	}
	listed, err := lister.List(t.Context(), listertest.Start(t, objects...).Client(), lister.Scope{Volumes: true, DisruptionBudgets: true})
	if err != nil {
		t.Fatal(err)
	}
	return listed
}

// readyView returns a cluster whose pods are ready.
func readyView(t *testing.T, cluster string) *report.View {
	return viewOf(t, edited(t, cluster, func(pod *v1.Pod) {
		if pod.Spec.NodeName != "" {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}
		if pod.Labels["app"] == "pinned" {
			pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}
	}), basic())
}

// rebalancerOf sets View.Rebalancer, and returns the other arguments:
//
//	inactive=TEXT             why no controller moves pods
//	interrupted=WORKLOAD:AGO  an interruption of a Deployment in its memory
//	early=WORKLOAD:AGO        a move to a pool that had not been calm for long
//	failed=WORKLOAD:FOR       a back-off
//	lost=POOL:AGO             the loss of a node
//	off=STEP  select=NAMESPACE
//	maxMoves=TALLY            a stroke for each move
func rebalancerOf(t *testing.T, d *datadriven.TestData, view *report.View, args []string) (others []string) {
	config := controller.Default()
	c := &lister.Controller{Settings: rebalance.Settings{Rebalance: config.Rebalance, Gating: config.Gating}}
	memory := map[string]map[string]any{"BackOffs": {}, "Interrupted": {}, "Disrupted": {}, "EarlyMoves": {}}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		name, duration, _ := strings.Cut(value, ":")
		age, _ := time.ParseDuration(duration)
		workload := "shop/apps/Deployment/" + name + "-uid/"
		switch key {
		case "inactive":
			c.Inactive = value
		case "interrupted":
			memory["Interrupted"][workload] = clustertest.Now.Add(-age)
		case "early":
			memory["EarlyMoves"][workload] = clustertest.Now.Add(-age)
		case "lost":
			memory["Disrupted"][name] = clustertest.Now.Add(-age)
		case "failed":
			memory["BackOffs"][workload] = map[string]any{"Until": clustertest.Now.Add(age), "Template": name + "-r-uid"}
		case "off":
			c.Settings.Rebalance.Heal = value != "heal" && c.Settings.Rebalance.Heal
			c.Settings.Rebalance.ReturnToSpot = value != "returnToSpot" && c.Settings.Rebalance.ReturnToSpot
		case "maxMoves":
			c.Settings.Rebalance.MaxMoves = int32(len(value)) // as a tally: |
		case "select":
			c.Settings.Selects = func(namespace string) bool { return namespace == value }
		default:
			others = append(others, arg)
		}
	}
	text, err := json.Marshal(memory)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	c.Settings.Memory = leader.ReadMemory(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{spot.MemoryAnnotation: string(text)}}})
	view.Rebalancer = c
	return others
}
