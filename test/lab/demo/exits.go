package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// exit is a pod that no longer exists.
type exit struct {
	Workload, Pod, Node string
	// Method is the method by which the pod left its node, as far as the pod shows it. Every
	// deletion counts as the controller's deletion at a deadline.
	Method migration.Method
	At     time.Time
}

// exits records the nodes of pods and the ways they leave, from a watch. It is safe for
// concurrent use.
type exits struct {
	mu      sync.Mutex
	present map[types.UID]exit // pods that exist
	gone    []exit             // deleted pods, in the order of their deletion
}

func newExits() *exits { return &exits{present: map[types.UID]exit{}} }

// observe records a change or the deletion of a pod at the time now. Times do not decrease.
func (e *exits) observe(now time.Time, pod *corev1.Pod, gone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	record := exit{Workload: pod.Labels[workloadLabel], Pod: pod.Name, Node: pod.Spec.NodeName, Method: methodOf(pod)}
	if !gone {
		e.present[pod.UID] = record
		return
	}
	record.At = now
	delete(e.present, pod.UID)
	e.gone = append(e.gone, record)
}

// on returns the number of pods on these nodes, by workload.
func (e *exits) on(nodes map[string]bool) map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	pods := map[string]int{}
	for _, record := range e.present {
		if nodes[record.Node] {
			pods[record.Workload]++
		}
	}
	return pods
}

// from returns the pods that have left these nodes since a time.
func (e *exits) from(nodes map[string]bool, since time.Time) []exit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.gone), func(at exit) bool { return !nodes[at.Node] || at.At.Before(since) })
}

// methodOf returns the method by which the pod leaves its node if it is deleted now.
func methodOf(pod *corev1.Pod) migration.Method {
	evicted := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	})
	_, released := pod.Annotations[spot.ReleasedAnnotation]
	switch {
	case evicted && released:
		return migration.Surge
	case evicted:
		return migration.Evict
	}
	return migration.Delete
}

// awaitEmpty waits until the doomed nodes are empty, until the deadline at the latest. On-demand is
// uncordoned during that time. It reports whether the nodes are empty.
func (d *demo) awaitEmpty(ctx context.Context, r *reclaimed, doomed map[string]bool, total int) (isEmpty bool, err error) {
	check := func() (bool, string) {
		n := count(d.exits.on(doomed))
		return n == 0, fmt.Sprintf("%d of %d pods have left", total-n, total)
	}
	if isEmpty, err = d.until(ctx, time.Until(r.Notice.Add(upgrade)), check); err != nil {
		return false, err
	}
	if !isEmpty {
		_, progress := check()
		d.progress("%s; the upgrade ends, and the on-demand nodes are uncordoned", progress)
	}
	if err := d.cordon(ctx, false); err != nil {
		return false, err
	}
	if !isEmpty {
		return d.until(ctx, time.Until(r.Notice.Add(notice)), check)
	}
	return true, nil
}
