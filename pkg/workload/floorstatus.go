package workload

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// FloorStatus counts the replicas of one workload by capacity type.
type FloorStatus struct {
	decision.FloorStatus
	// OnlyOnDemand counts the on-demand replicas whose own node selector or affinity excludes spot.
	OnlyOnDemand int
	// Exempt counts the spot replicas that the policy exempts.
	Exempt int
}

type countedWorkload struct {
	desired, floor int
	ordered        bool
	direct         bool // OwnerKey.Direct: a pod that is not included counts too
	revisions      [][]decision.Replica
	onlyOnDemand   int
	exempt         int
}

type countedRevision struct {
	*countedWorkload
	index    int // index in revisions
	settings decision.WorkloadSettings
}

// FloorStatuses counts the live pods that are included by workload, over all its revisions.
// FloorStatuses omits released pods, because their replacements count, and pods with an unknown
// owner.
func (o *Owners) FloorStatuses(pods []*v1.Pod, includes func(*v1.Pod) bool, nodes *NodeEvidence,
	volumesOf func(*v1.Pod) []*v1.PersistentVolume) map[OwnerKey]FloorStatus {
	workloads := map[OwnerKey]*countedWorkload{}
	revisions := map[OwnerKey]*countedRevision{} // looks up the owner once per revision
	subjectOf := o.Subjects()
	// Collect all revisions first: a pod with a wrong owner reference then does not affect the
	// others, regardless of its position in the list.
	for _, pod := range pods {
		key := RevisionOf(pod)
		known := revisions[key]
		if known != nil && !HasUnsupportedController(pod) || !Counts(pod) || !includes(pod) {
			continue
		}
		subject, err := subjectOf(pod)
		if err != nil {
			continue
		}
		if known != nil { // without a common template, rules may give the pods other settings
			settings, _ := o.policy.Settings(&subject.Pod)
			known.settings = known.settings.Stricter(settings, known.desired)
			continue
		}
		w := workloads[subject.WorkloadKey]
		if w == nil {
			w = &countedWorkload{ordered: subject.Pod.Workload.Ordered, direct: key.Direct()}
			workloads[subject.WorkloadKey] = w
		}
		w.desired = max(w.desired, subject.Pod.Workload.Desired) // revisions may differ: see snapshot.Workload
		r := &countedRevision{countedWorkload: w, index: len(w.revisions)}
		r.settings, _ = o.policy.Settings(&subject.Pod)
		w.revisions = append(w.revisions, nil)
		revisions[key] = r
	}
	for _, r := range revisions {
		r.floor = max(r.floor, r.settings.Floor(r.desired))
	}
	for _, pod := range pods {
		if r := revisions[RevisionOf(pod)]; r != nil && Counts(pod) && (r.direct || includes(pod)) {
			o.addReplica(r, pod, nodes, volumesOf)
		}
	}
	statuses := make(map[OwnerKey]FloorStatus, len(workloads))
	for key, w := range workloads {
		statuses[key] = FloorStatus{decision.NewFloorStatus(w.desired, w.floor, w.ordered, w.revisions), w.onlyOnDemand, w.exempt}
	}
	return statuses
}

func (o *Owners) addReplica(r *countedRevision, pod *v1.Pod, nodes *NodeEvidence, volumesOf func(*v1.Pod) []*v1.PersistentVolume) {
	var replica decision.Replica
	if pod.Spec.NodeName != "" {
		replica.Capacity, replica.Bound = nodes.capacityOf(pod.Spec.NodeName)
	}
	onDemand := replica.Bound && replica.Capacity == decision.OnDemand
	only := onlySpot(pod, o.policy) || r.floor > 0 && !onDemand && nodes.AdmitsOnly(pod, volumesOf(pod), decision.Spot)
	admits := decision.Pod{OnlySpot: only, Assigned: AssignedCapacityOf(pod)}
	replica.OnlySpot, replica.Exempt = admits.OnlySpot, r.settings.Exempts(&admits)
	if r.ordered { // every pod has its own ordinal
		subject, err := o.Subject(pod)
		if err != nil {
			return
		}
		replica.Ordinal = subject.Pod.Workload.Ordinal
	}
	switch {
	case !replica.Bound:
	case onDemand && OnlyOnDemand(pod, o.policy):
		r.onlyOnDemand++
	case replica.Capacity == decision.Spot && replica.Exempt:
		r.exempt++
	}
	r.revisions[r.index] = append(r.revisions[r.index], replica)
}

// Deficits records since when the floors of workloads have not been met. The zero value is empty.
// It is not safe for concurrent use.
type Deficits map[OwnerKey]time.Time

// Update records the statuses at now. It returns the number of unmet floors, the number of
// replicas that they lack in total, and how long the oldest has been unmet at every Update.
func (d *Deficits) Update(statuses map[OwnerKey]FloorStatus, now time.Time) (floors, replicas int, longest time.Duration) {
	unmet := map[OwnerKey]time.Time{}
	for key, s := range statuses {
		if s.FloorDeficit == 0 {
			continue
		}
		since, wasUnmet := (*d)[key]
		if !wasUnmet {
			since = now
		}
		unmet[key] = since
		floors++
		replicas += s.FloorDeficit
		longest = max(longest, now.Sub(since))
	}
	*d = unmet
	return floors, replicas, longest
}
