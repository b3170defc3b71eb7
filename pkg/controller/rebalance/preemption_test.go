package rebalance_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// planned returns the moves that a new planner plans in a cluster in the notation of clustertest,
// with the real Room. All pods are ready.
func planned(t *testing.T, cluster string, settings rebalance.Settings, change func(*clustertest.World)) (got []string) {
	t.Helper()
	w := clustertest.NewWorld(t)
	for _, object := range clustertest.Objects(cluster) {
		if pod, ok := object.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(clustertest.Now.Add(-time.Hour))}}
		}
		w.Put(object)
	}
	change(w)
	s := w.Snapshot()
	for _, m := range rebalance.NewPlanner(settings).Plan(s, simulation.NewRoom(s)) {
		got = append(got, m.Pod.Name+" "+string(m.Reason))
	}
	return got
}

// Heal and make room use the room of any pods of lower priority. A move that only saves money uses
// that of placeholders only, and none is for a successor that fits nowhere.
func TestMovesByPreemption(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		change  func(*clustertest.World)
		want    []string
	}{
		"heal: a placeholder has the room": {cluster: "node od on-demand\nnode sp spot\ndeployment room 1 od profile=other priority=-10 cpu=4\ndeployment web 1 sp cpu=2",
			want: []string{"web-0 heal"}},
		"heal: a pod of lower priority has the room": {cluster: "node od on-demand\nnode sp spot\ndeployment low 1 od profile=other priority=1 cpu=4\ndeployment web 1 sp cpu=2 priority=2",
			want: []string{"web-0 heal"}},
		"heal: a pod of the same priority has the room": {cluster: "node od on-demand\nnode sp spot\ndeployment low 1 od profile=other cpu=4\ndeployment web 1 sp cpu=2"},
		"return: a placeholder has the room": {cluster: "node od on-demand\nnode sp spot\ndeployment room 1 sp profile=other priority=-10 cpu=4\ndeployment web 2 od od cpu=2",
			want: []string{"web-0 return-to-spot"}},
		"return: a pod of lower priority works there": {
			cluster: "node od on-demand\nnode sp spot\ndeployment low 1 sp profile=other priority=1 cpu=4\ndeployment web 2 od od cpu=2 priority=2"},
		"make room: a pod of lower priority has the room on spot": {
			cluster: "node od on-demand\nnode sp spot\ndeployment low 1 sp profile=other priority=1 cpu=4\ndeployment web 2 od od cpu=2 priority=2\ndeployment one 1 - cpu=2 priority=2 waits=1m",
			want:    []string{"web-0 make-room"}},
		"return: shrunk in place, and the successor fits nowhere": {
			cluster: "node od on-demand\nnode sp spot cpu=2\nstatefulset db 2 od od cpu=200m", change: template("3")},
		"return: shrunk in place, and the successor fits": {
			cluster: "node od on-demand\nnode sp spot cpu=4\nstatefulset db 2 od od cpu=200m", change: template("3"), want: []string{"db-1 return-to-spot"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.change == nil {
				test.change = func(*clustertest.World) {}
			}
			settings := rebalance.Settings{Rebalance: controller.Rebalance{
				Heal: true, MakeRoom: true, ReturnToSpot: true, MaxMoves: 5, CalmPeriod: metav1.Duration{Duration: time.Minute},
			}}
			clustertest.Equal(t, "moves", test.want, planned(t, test.cluster, settings, test.change))
		})
	}
}

// template makes the template of StatefulSet db request CPUs.
func template(cpu string) func(*clustertest.World) {
	return func(w *clustertest.World) {
		set := w.Snapshot().Pods[0].Workload.StatefulSet.DeepCopy()
		set.Spec.Template.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
		w.Put(set)
	}
}
