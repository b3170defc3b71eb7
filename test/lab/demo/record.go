package demo

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// outage is the worst availability of a workload during a recording.
type outage struct {
	// Lowest is the lowest number of ready replicas at any moment.
	Lowest int
	// Duration is the total time without a ready replica.
	Duration time.Duration
	// Ongoing reports that no replica was ready at the end, so that Duration is a lower bound.
	Ongoing bool
}

// recorder records the ready pods and the worst availability, from a watch. It is safe for
// concurrent use.
type recorder struct {
	mu        sync.Mutex
	ready     map[string]map[types.UID]bool // workload -> its ready pods
	outages   map[string]*outage            // nil between recordings
	downSince map[string]time.Time          // workloads without a ready pod now
}

func newRecorder() *recorder {
	return &recorder{ready: map[string]map[types.UID]bool{}}
}

// observe records whether a pod of the workload is ready at the time now. A deleted pod is not
// ready. Times do not decrease.
func (r *recorder) observe(now time.Time, workload string, pod types.UID, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := r.ready[workload]
	if pods == nil {
		pods = map[types.UID]bool{}
		r.ready[workload] = pods
	}
	if ready {
		pods[pod] = true
	} else {
		delete(pods, pod)
	}
	o, ok := r.outages[workload]
	if !ok {
		return
	}
	o.Lowest = min(o.Lowest, len(pods))
	since, ongoing := r.downSince[workload]
	switch {
	case len(pods) == 0 && !ongoing:
		r.downSince[workload] = now
	case len(pods) > 0 && ongoing:
		o.Duration += now.Sub(since)
		delete(r.downSince, workload)
	}
}

// start begins a recording for the named workloads.
func (r *recorder) start(now time.Time, workloads []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outages, r.downSince = map[string]*outage{}, map[string]time.Time{}
	for _, w := range workloads {
		n := len(r.ready[w])
		r.outages[w] = &outage{Lowest: n}
		if n == 0 {
			r.downSince[w] = now
		}
	}
}

// end ends the recording and returns the outages by workload.
func (r *recorder) end(now time.Time) map[string]outage {
	r.mu.Lock()
	defer r.mu.Unlock()
	outages := map[string]outage{}
	for w, o := range r.outages {
		if since, ongoing := r.downSince[w]; ongoing {
			o.Duration += now.Sub(since)
			o.Ongoing = true
		}
		outages[w] = *o
	}
	r.outages, r.downSince = nil, nil
	return outages
}

// readyReplicas returns how many pods of the workload are ready now.
func (r *recorder) readyReplicas(workload string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ready[workload])
}

// isReady reports whether this pod of the workload is ready now.
func (r *recorder) isReady(workload string, pod types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready[workload][pod]
}

// isReady reports whether a Service would send traffic to the pod.
func isReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
