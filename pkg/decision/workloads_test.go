package decision_test

import (
	"fmt"
	"slices"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// workload is what owns pods. Its controller, reconcile, does what Kubernetes' own does, as far as placement can tell.
type workload struct {
	kind, namespace, name string
	family                string // the name it was created under, with others like it
	replicas              int
	revisions             []*revision

	annotations, podAnnotations, labels map[string]string
	priorityClass, qosClass, zone       string
	priority                            int32
	onlySpot, onlyOnDemand, gated       bool

	// of Deployments: negative means Kubernetes' default of 25 %.
	maxSurge, maxUnavailable int
	paused                   bool
	// of StatefulSets
	start    int
	parallel bool
	// of Jobs; replicas is the parallelism
	completions, succeeded, backoffLimit int
	ignoresDisruption                    bool
}

// revision is what a pod's siblings are counted by: a Deployment has one per ReplicaSet, everything else has one.
type revision struct {
	workload *workload
	name     string
	number   int
	size     int
	pods     []*pod
	made     int // pods made so far
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

// newest is the revision that a rollout goes to.
func (w *workload) newest() *revision {
	return slices.MaxFunc(w.revisions, func(a, b *revision) int { return a.number - b.number })
}

// undo makes the revision before the newest the newest.
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

// desired is the replica count that the policy speaks of.
func (w *workload) desired() int {
	switch w.kind {
	case "Job":
		return max(0, min(w.replicas, w.completions-w.succeeded))
	case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Pod":
		return w.replicas
	}
	return len(w.revisions[0].pods) // of an unknown kind: its live pods
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

// pods are the live pods of all revisions.
func (w *workload) pods() (pods []*pod) {
	for _, r := range w.revisions {
		pods = append(pods, r.pods...)
	}
	return pods
}

// reconcile makes and deletes the pods that w's controller would, and reports whether there were any.
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
	case "Pod": // nobody makes it anew
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

// resize makes pods up to the revision's size, or deletes what is over it: pods that wait first, then the newest.
func (r *revision) resize() bool {
	before := len(r.pods)
	for len(r.pods) < r.size {
		r.add(r.made+1, r.made)
	}
	for len(r.pods) > r.size {
		victim := r.pods[len(r.pods)-1]
		if i := slices.IndexFunc(r.pods, func(p *pod) bool { return p.node == nil }); i >= 0 {
			victim = r.pods[i]
		}
		victim.leave()
	}
	return len(r.pods) != before
}

func (r *revision) add(suffix, ordinal int) {
	r.made++
	name := fmt.Sprintf("%s-%d", r.name, suffix)
	if r.workload.kind == "Pod" {
		name = r.name
	}
	r.pods = append(r.pods, &pod{name: name, revision: r, ordinal: ordinal, unschedulable: -1})
}

// roll sizes a Deployment's revisions for one round of a rolling update.
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
		return // the others shrink in the next round
	}
	placed := newest.placed()
	pendingNewest := newest.size - placed.Spot - placed.OnDemand
	unready := total - (w.replicas - unavailable) - pendingNewest // how many that are not ready may go
	ready := available - (w.replicas - unavailable)               // how many that are ready may go
	for _, r := range w.revisions {
		if r == newest {
			continue
		}
		placed := r.placed()
		goPending := max(0, min(len(r.pods)-placed.Spot-placed.OnDemand, unready))
		goReady := max(0, min(len(r.pods)-goPending, ready))
		r.size = len(r.pods) - goPending - goReady
		unready, ready = unready-goPending, ready-goReady
	}
}

// reconcileSet makes a StatefulSet's ordinals in their order, one when the one before it is ready unless the set is parallel.
func (w *workload) reconcileSet() (changed bool) {
	r := w.revisions[0]
	for _, p := range slices.Clone(r.pods) {
		if p.ordinal >= w.replicas {
			p.leave()
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
