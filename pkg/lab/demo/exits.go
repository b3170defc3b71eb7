package demo

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
)

// exit is a pod that is gone.
type exit struct {
	Workload, Pod, Node string
	// Way is how it left, as far as a pod shows that: whoever deletes one counts as the controller at a deadline.
	Way migration.Way
	At  time.Time
}

// exits follows where pods stand and how they leave, as a watch tells. It is safe for concurrent use.
type exits struct {
	mu   sync.Mutex
	here map[types.UID]exit // pods that are not gone
	gone []exit             // in the order in which they went
}

func newExits() *exits { return &exits{here: map[types.UID]exit{}} }

// observe notes a change of a pod, or that it is gone, at the time now. Times do not decrease.
func (e *exits) observe(now time.Time, pod *corev1.Pod, gone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := exit{Workload: pod.Labels[workloadLabel], Pod: pod.Name, Node: pod.Spec.NodeName, Way: wayOf(pod)}
	if !gone {
		e.here[pod.UID] = at
		return
	}
	at.At = now
	delete(e.here, pod.UID)
	e.gone = append(e.gone, at)
}

// on returns the pods that are on these nodes, by workload.
func (e *exits) on(nodes map[string]bool) map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	pods := map[string]int{}
	for _, at := range e.here {
		if nodes[at.Node] {
			pods[at.Workload]++
		}
	}
	return pods
}

// from returns the pods that have left these nodes from a time on.
func (e *exits) from(nodes map[string]bool, since time.Time) []exit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.gone), func(at exit) bool { return !nodes[at.Node] || at.At.Before(since) })
}

// wayOf is how a pod leaves, if it leaves now.
func wayOf(pod *corev1.Pod) migration.Way {
	evicted := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	})
	_, released := pod.Annotations[kube.ReleaseAnnotation]
	switch {
	case evicted && released:
		return migration.Surge
	case evicted:
		return migration.Evict
	}
	return migration.Delete
}
