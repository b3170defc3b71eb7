package interruption_test

import (
	"fmt"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// Pods of ReplicaSets and Jobs are moved off a deleted node, whatever its capacity type is. Other
// pods wait for Kubernetes.
func TestDeletedNodes(t *testing.T) {
	const tolerates = "tolerates=node.kubernetes.io/unreachable"
	for name, test := range map[string]struct {
		cluster string
		change  func(*interruption.Settings)
		want    []string
	}{
		"a Deployment":       {cluster: "deployment web 3 n n o", want: []string{"web-0", "web-1"}},
		"an on-demand node":  {cluster: "deployment web 1 od", want: []string{"web-0"}},
		"a Rollout of Argo":  {cluster: "deployment web 1 n by=argoproj.io/v1alpha1/Rollout/web", want: []string{"web-0"}},
		"a Job":              {cluster: "job batch 1 n", want: []string{"batch-0"}},
		"another scheduler":  {cluster: "deployment web 1 n profile=other", want: []string{"web-0"}},
		"a StatefulSet":      {cluster: "statefulset db 1 n"},
		"a bare pod":         {cluster: "pod tool n"},
		"a DaemonSet":        {cluster: "daemonset agent n"},
		"an operator":        {cluster: "pod kafka n owner=example.com/v1/Kafka/kafka"},
		"a foreign Job":      {cluster: "pod train n owner=batch.volcano.sh/v1/Job/train"},
		"an unknown owner":   {cluster: "pod web-0 n owner=ReplicaSet/missing"},
		"a toleration":       {cluster: "deployment web 1 n " + tolerates},
		"terminating":        {cluster: "deployment web 1 !n"},
		"released":           {cluster: "deployment web 1 ~n"},
		"not bound":          {cluster: "deployment web 1 -"},
		"another namespace":  {cluster: "deployment web 1 n", change: func(s *interruption.Settings) { s.Selects = func(string) bool { return false } }},
		"disabled":           {cluster: "deployment web 1 n", change: func(s *interruption.Settings) { s.Interruption.Enabled = false }},
		"without a deletion": {cluster: "deployment web 1 n", change: func(s *interruption.Settings) { s.Interruption.DeleteAtDeadline = false }},
	} {
		t.Run(name, func(t *testing.T) {
			settings := settings
			settings.Interruption.DeleteAtDeadline = true
			if test.change != nil {
				test.change(&settings)
			}
			w := clustertest.NewWorld(t)
			w.Build("node n spot m/a\nnode o spot m/a\nnode od on-demand m/a\n" + test.cluster)
			if _, moves, _ := interruption.Plan(w.Snapshot(), settings); len(moves) > 0 {
				t.Errorf("%d moves before the deletion", len(moves))
			}
			for _, deleted := range clustertest.Objects("node n spot m/a\nnode od on-demand m/a") {
				w.Remove(deleted)
			}
			for range 2 { // a failed deletion is planned again
				_, moves, _ := interruption.Plan(w.Snapshot(), settings)
				var got []string
				for _, m := range moves {
					got = append(got, m.Pod.Name)
					m.Pod = nil
					clustertest.Equal(t, "move", migration.Move{Reason: migration.Interruption, Unreachable: true}, m)
				}
				clustertest.Equal(t, "pods", test.want, got)
			}
		})
	}
}

// No pod is moved because the cache of Nodes is later than that of pods.
func TestNodesLateInCache(t *testing.T) {
	settings := settings
	settings.Interruption.DeleteAtDeadline = true
	w := clustertest.NewWorld(t)
	w.Build("node o spot m/a")
	w.Snapshot()
	for i := range 30 {
		w.Build(fmt.Sprintf("deployment web%d 2 n%d n%d", i, i, i))
	}
	for i := range 40 {
		if i >= 10 {
			w.Build(fmt.Sprintf("node n%d spot m/a", i-10))
		}
		if _, moves, _ := interruption.Plan(w.Snapshot(), settings); len(moves) > 0 {
			t.Fatalf("%d moves with %d of 30 Nodes in the cache", len(moves), max(0, i-9))
		}
	}
}
