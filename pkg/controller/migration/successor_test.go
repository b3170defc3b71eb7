package migration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// A pod that cannot surge, and whose template requests more than the pod, is not evicted
// voluntarily. The room of a successor is sought for what it requests.
func TestLargerSuccessor(t *testing.T) {
	const larger = "its owner's template requests more than the pod uses, and no surge is possible: it does not belong to a ReplicaSet"
	for name, test := range map[string]struct {
		template string // CPUs; the pod requests 1
		reason   migration.Reason
		deadline time.Duration // 0: none
		lower    string        // another workload
		want     []string
		wantWhy  string
	}{
		"equal": {template: "1", reason: migration.Heal, want: []string{"evict db-0 by evict"},
			wantWhy: "a replacement fits on node od; no surge: it does not belong to a ReplicaSet"},
		"larger":                 {template: "2", reason: migration.Heal, want: []string{"stay db-0 by evict"}, wantWhy: larger},
		"smaller":                {template: "500m", reason: migration.Heal, want: []string{"evict db-0 by evict"}, wantWhy: "a replacement fits on node od; no surge: it does not belong to a ReplicaSet"},
		"larger, advice":         {template: "2", reason: migration.Advice, want: []string{"stay db-0 by evict"}, wantWhy: larger},
		"larger, with a request": {template: "2", reason: migration.Requested, want: []string{"evict db-0 by evict"}, wantWhy: "a replacement fits on node od; no surge: it does not belong to a ReplicaSet"},
		"larger, with a deadline": {template: "2", reason: migration.Interruption, deadline: 2 * time.Minute, want: []string{"evict db-0 by evict"},
			wantWhy: "a replacement fits on node od; no surge: it does not belong to a ReplicaSet"},
		"after preemption": {template: "1", reason: migration.Heal, lower: "deployment room 1 od profile=other priority=-1 cpu=4", want: []string{"evict db-0 by evict"},
			wantWhy: "a replacement fits on node od " + simulation.AfterPlaceholders + "; no surge: it does not belong to a ReplicaSet"},
		"an assignment preempts no working pod": {template: "1", reason: migration.Assign, lower: "deployment app 1 od profile=other priority=1 cpu=4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("node od on-demand\nnode sp spot\nstatefulset db 1 sp priority=5\n" + test.lower)
			w.Pods["db-0"].Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(clustertest.Now.Add(-time.Hour))}}
			s := w.Snapshot()
			set := clustertest.Find(t, s, "db-0").Workload.StatefulSet.DeepCopy()
			set.Spec.Template.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(test.template)
			w.Put(set)
			s = w.Snapshot()
			var deadline time.Time
			if test.deadline > 0 {
				deadline = s.Now.Add(test.deadline)
			}
			actions := migration.Plan(s, simulation.NewRoom(s), moves(s, test.reason, deadline, "db-0"), settings, nil)
			if diff := cmp.Diff(test.want, describe(actions)); diff != "" {
				t.Fatalf("actions (-want +got):\n%s", diff)
			}
			if len(actions) > 0 && actions[0].Why != test.wantWhy {
				t.Errorf("why %q, want %q", actions[0].Why, test.wantWhy)
			}
		})
	}
}
