package decision_test

import (
	"fmt"
	"slices"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// workload owns pods. Its controller, reconcile, behaves like the Kubernetes controllers as far as
// placement depends on it.
type workload struct {
	kind, namespace, name string
	family                string // the name in the create directive, shared by all workloads of the directive
	replicas              int
	revisions             []*revision

	annotations, podAnnotations, labels map[string]string
	priorityClass, qosClass, zone       string
	priority                            int32
	onlySpot, onlyOnDemand, gated       bool

	// For Deployments: a negative value means the Kubernetes default of 25 %.
	maxSurge, maxUnavailable int
	paused                   bool
	// For StatefulSets.
	start    int
	parallel bool
	// For Jobs; replicas is the parallelism.
	completions, succeeded, backoffLimit int
	ignoresDisruption                    bool
}

// revision is the group in which siblings are counted. A Deployment has one per ReplicaSet, any
// other workload has one.
type revision struct {
	workload *workload
	name     string
	number   int
	size     int
	pods     []*pod
	created  int // number of pods created so far
}

func (w *workload) addRevision() {
	n := 1
	for _, r := range w.revisions {
		n = max(n, r.number+1)
	}
	r := &revision{workload: w, name: w.name, number: n}
	if w.kind == "Deployment" {
		r.name = fmt.Sprintf("%s-%d", w.name, n)
	}
	w.revisions = append(w.revisions, r)
}

// newest returns the target revision of a rollout.
func (w *workload) newest() *revision {
	return slices.MaxFunc(w.revisions, func(a, b *revision) int { return a.number - b.number })
}

// undo rolls back to the revision before the newest.
func (w *workload) undo() {
	newest := w.newest()
	var previous *revision
	for _, r := range w.revisions {
		if r != newest && (previous == nil || r.number > previous.number) {
			previous = r
		}
	}
	if previous != nil {
		previous.number = newest.number + 1
	}
}

// desired returns the replica count for the policy.
func (w *workload) desired() int {
	switch w.kind {
	case "Job":
		return max(0, min(w.replicas, w.completions-w.succeeded))
	case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Pod":
		return w.replicas
	}
	return len(w.revisions[0].pods) // unknown kind: the number of live pods
}

func (w *workload) batch() decision.Batch {
	switch {
	case w.kind != "Job":
		return decision.NotBatch
	case w.backoffLimit == 0 && !w.ignoresDisruption:
		return decision.NotRetriable
	}
	return decision.Retriable
}

// pods returns the live pods of all revisions.
func (w *workload) pods() (pods []*pod) {
	for _, r := range w.revisions {
		pods = append(pods, r.pods...)
	}
	return pods
}

// reconcile creates and deletes pods as the controller of w does, and reports whether anything
// changed.
func (c *cluster) reconcile(w *workload) bool {
	switch w.kind {
	case "StatefulSet":
		return w.reconcileSet()
	case "Deployment":
		if !w.paused {
			w.roll()
		}
	case "Job":
		w.revisions[0].size = w.desired()
	case "Pod": // no controller recreates it
		return false
	default:
		w.revisions[0].size = w.replicas
	}
	changed := false
	for _, r := range w.revisions {
		changed = r.resize() || changed
	}
	return changed
}

// resize creates or deletes pods until the revision has its size. It deletes pending pods first,
// then the newest.
func (r *revision) resize() bool {
	before := len(r.pods)
	for len(r.pods) < r.size {
		r.add(r.created+1, r.created)
	}
	for len(r.pods) > r.size {
		victim := r.pods[len(r.pods)-1]
		if i := slices.IndexFunc(r.pods, func(p *pod) bool { return p.node == nil }); i >= 0 {
			victim = r.pods[i]
		}
		victim.remove()
	}
	return len(r.pods) != before
}

func (r *revision) add(suffix, ordinal int) {
	r.created++
	name := fmt.Sprintf("%s-%d", r.name, suffix)
	if r.workload.kind == "Pod" {
		name = r.name
	}
	r.pods = append(r.pods, &pod{name: name, revision: r, ordinal: ordinal, unschedulable: -1})
}

// roll sets the sizes of a Deployment's revisions for one round of a rolling update.
func (w *workload) roll() {
	surge, unavailable := w.maxSurge, w.maxUnavailable
	if surge < 0 {
		surge = (w.replicas + 3) / 4
	}
	if unavailable < 0 {
		unavailable = w.replicas / 4
	}
	newest, available := w.newest(), 0
	for _, p := range w.pods() {
		available += count(p.node != nil)
	}
	total := len(w.pods())
	room := max(0, w.replicas+surge-total)
	newest.size = min(w.replicas, len(newest.pods)+room)
	if newest.size > len(newest.pods) {
		return // the other revisions shrink in the next round
	}
	placed := newest.placed()
	pendingNewest := newest.size - placed.Spot - placed.OnDemand
	unready := total - (w.replicas - unavailable) - pendingNewest // how many pods that are not ready may be removed
	ready := available - (w.replicas - unavailable)               // how many ready pods may be removed
	for _, r := range w.revisions {
		if r == newest {
			continue
		}
		placed := r.placed()
		removePending := max(0, min(len(r.pods)-placed.Spot-placed.OnDemand, unready))
		removeReady := max(0, min(len(r.pods)-removePending, ready))
		r.size = len(r.pods) - removePending - removeReady
		unready, ready = unready-removePending, ready-removeReady
	}
}

// reconcileSet creates the ordinals of a StatefulSet in order. Unless the set is parallel, it
// creates an ordinal only after the previous one is ready.
func (w *workload) reconcileSet() (changed bool) {
	r := w.revisions[0]
	for _, p := range slices.Clone(r.pods) {
		if p.ordinal >= w.replicas {
			p.remove()
			changed = true
		}
	}
	for ordinal := range w.replicas {
		i := slices.IndexFunc(r.pods, func(p *pod) bool { return p.ordinal == ordinal })
		if i < 0 {
			r.add(w.start+ordinal, ordinal)
			i, changed = len(r.pods)-1, true
		}
		if !w.parallel && r.pods[i].node == nil {
			break
		}
	}
	return changed
}
