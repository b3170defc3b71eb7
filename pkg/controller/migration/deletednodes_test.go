package migration_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// offDeletedNodes plans the moves of the named pods off deleted nodes, performs the actions and
// waits for them. change changes the pods of the snapshot.
func (b *bench) offDeletedNodes(with migration.Settings, change func(*snapshot.Pod), names ...string) {
	s := b.snapshot()
	requested := moves(s, migration.Interruption, time.Time{}, names...)
	for i := range requested {
		requested[i].Unreachable = true
		change(requested[i].Pod)
	}
	b.executor.Do(quiet, migration.Plan(s, &room{}, requested, with, b.executor.Observe(s)))
	b.executor.Wait()
}

// Pods on a deleted node are deleted with their own grace period, in spite of a PodDisruptionBudget
// and also without room for replacements, if the API server confirms that the Node does not exist.
// A plan costs one read for each node.
func TestPodsOfDeletedNodes(t *testing.T) {
	exists := func() (bool, error) { return false, nil }
	fails := func() (bool, error) { return false, errors.New("busy") }
	deleted := func() (bool, error) { return true, nil }
	all := []string{"delete a-0", "delete a-1", "delete b-0"}
	for name, test := range map[string]struct {
		answers   []func() (bool, error) // of the API server, one for each round
		paused    safety.Cause
		dryRun    bool
		singular  bool // the Job fails with the loss of the pod
		want      []string
		wantReads map[string]int
	}{
		"deleted":                            {answers: []func() (bool, error){deleted}, want: all, wantReads: map[string]int{"n1": 1, "n2": 1}},
		"not deleted, or recreated":          {answers: []func() (bool, error){exists, exists}, wantReads: map[string]int{"n1": 2, "n2": 2}},
		"no answer":                          {answers: []func() (bool, error){fails, fails}, wantReads: map[string]int{"n1": 2, "n2": 2}},
		"a late answer":                      {answers: []func() (bool, error){fails, exists, deleted}, want: all, wantReads: map[string]int{"n1": 3, "n2": 3}},
		"planned again before the cache has": {answers: []func() (bool, error){deleted, deleted}, want: all, wantReads: map[string]int{"n1": 1, "n2": 1}},
		"paused":                             {answers: []func() (bool, error){deleted}, paused: safety.Unreachable},
		"another cause is paused": {
			answers: []func() (bool, error){deleted}, paused: safety.Deadline, want: all, wantReads: map[string]int{"n1": 1, "n2": 1},
		},
		"dry run":                  {answers: []func() (bool, error){deleted}, dryRun: true},
		"the loss fails their Job": {answers: []func() (bool, error){deleted}, singular: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("a", 2)
			w.deployment("b", 1)
			w.budget("a", 2)
			for pod, node := range map[string]string{"a-0": "n1", "a-1": "n2", "b-0": "n2"} {
				w.pod(pod, w.replicaSets[pod[:1]+"-1"], node)
			}
			w.sync()
			b := newBench(w, test.dryRun)
			var mu sync.Mutex
			round, reads := 0, map[string]int{}
			b.executor = execution.New(w.client(), b.recorder, b.clock, execution.Settings{
				Concurrency: 1, RequestTimeout: time.Second, DryRun: test.dryRun,
				Unchanged: func(_ context.Context, planned *v1.Node, _ bool) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					reads[planned.Name]++
					clustertest.Equal(t, "UID of the planned Node", "", string(planned.UID))
					return test.answers[round]()
				},
			})
			settings := settings
			settings.Paused = clustertest.Paused(func(c safety.Cause) bool { return c == test.paused })
			for round = range test.answers {
				b.offDeletedNodes(settings, func(pod *snapshot.Pod) {
					if test.singular {
						pod.Subject = &workload.Subject{Pod: decision.Pod{Workload: decision.Workload{Batch: decision.NotRetriable}}}
					}
				}, "a-0", "a-1", "b-0")
				b.pass(maxBackOff)
			}
			clustertest.Equal(t, "requests", test.want, slices.Sorted(slices.Values(b.log)))
			if !maps.Equal(reads, test.wantReads) {
				t.Errorf("reads %v, want %v", reads, test.wantReads)
			}
		})
	}
}

// maxBackOff is longer than the pause after a few failures.
const maxBackOff = 5 * time.Second

// The pods of a deleted node count as lost, although the controller deletes them in the same round.
// The records name the deletion.
func TestRecordsOfDeletedNodes(t *testing.T) {
	before := counted(t)
	w := newWorld(t)
	w.deployment("a", 1)
	w.pod("a-0", w.replicaSets["a-1"], "reclaimed").Spec.TerminationGracePeriodSeconds = ptr.To[int64](7)
	w.sync()
	b := newBench(w, false)
	b.round(0)
	delete(w.nodes, "reclaimed")
	w.sync()
	for range 2 {
		b.offDeletedNodes(settings, func(*snapshot.Pod) {}, "a-0")
	}
	b.want(t, []string{"delete a-0"}, []string{"PodsLostWithNode Node", "DeletedAtDeadline Pod", "DeletedAtDeadline Deployment"})
	clustertest.Equal(t, "notes", []string{
		"Vanished with 1 pods on it (kubelet silent: false): shop/Deployment/a, replacement not created",
		"Deleted (unreachable): its node was deleted; ready pods before: 0; replacement: not created",
		"Deleted pods (unreachable): its node was deleted",
	}, b.notes)
	w.endPods()
	w.sync()
	b.round(0)
	clustertest.Equal(t, "counts", map[string]float64{
		"pods_lost_with_node_total not-created": 1, "delete interruption moved": 1, "deletions_total unreachable false not-created": 1,
	}, since(t, before))
}

// The podFailurePolicy of a Job reads the condition DisruptionTarget. For other pods on a deleted
// node it would only be one more request before the replacement.
func TestConditionOnDeletedNodes(t *testing.T) {
	w := newWorld(t)
	w.deployment("a", 1)
	w.pod("a-0", w.replicaSets["a-1"], "n1")
	w.pod("job-0", nil, "n1").OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("Job", "job")}
	w.sync()
	b := newBench(w, false)
	b.offDeletedNodes(settings, func(*snapshot.Pod) {}, "a-0", "job-0")
	got := map[string]bool{}
	for name, pod := range w.pods {
		got[name] = pod.DeletionTimestamp != nil && workload.Disrupted(pod)
	}
	clustertest.Equal(t, "pods with the condition", map[string]bool{"a-0": false, "job-0": true}, got)
}
