package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// WorkloadStanding is where the pods of one workload are.
type WorkloadStanding struct {
	decision.Standing
	// OnlyOnDemand counts the replicas of OnDemand whose own node selector or affinity keeps them off spot.
	OnlyOnDemand int
	// Exempt counts the replicas of Spot that the policy exempts.
	Exempt int
}

// Standings returns where the live pods of the profile of that name are, by workload and over all its revisions. capacityOf returns the
// capacity type of a node; false if there is no such node. Left out are released pods, because their replacements count, and pods whose owner
// is not known.
func (o *Owners) Standings(pods []*v1.Pod, profile string, capacityOf func(node string) (decision.CapacityType, bool)) map[OwnerKey]WorkloadStanding {
	type workload struct {
		desired, floor int
		ordered        bool
		revisions      [][]decision.Replica
		onlyOnDemand   int
		exempt         int
	}
	type revision struct {
		*workload
		at       int // in workload.revisions
		settings decision.Settings
	}
	workloads := map[OwnerKey]*workload{}
	revisions := map[OwnerKey]*revision{} // the owner is looked up once a revision
	concerns := func(pod *v1.Pod) bool {
		return pod.Spec.SchedulerName == profile && Live(pod) && !Released(pod) && HasOpinion(pod)
	}
	// All revisions first: a pod that names its owner wrongly says nothing about the others, wherever it is in the list.
	for _, pod := range pods {
		key := RevisionOf(pod)
		if revisions[key] != nil || !concerns(pod) {
			continue
		}
		subject, err := o.Subject(pod)
		if err != nil {
			continue
		}
		w := workloads[subject.WorkloadKey]
		if w == nil {
			w = &workload{desired: subject.Pod.Workload.Desired, ordered: subject.Pod.Workload.Ordered}
			workloads[subject.WorkloadKey] = w
		}
		r := &revision{workload: w, at: len(w.revisions)}
		r.settings, _ = o.policy.Settings(&subject.Pod)
		w.floor = max(w.floor, r.settings.Floor(w.desired))
		w.revisions = append(w.revisions, nil)
		revisions[key] = r
	}
	for _, pod := range pods {
		r := revisions[RevisionOf(pod)]
		if r == nil || !concerns(pod) {
			continue
		}
		admits := decision.Pod{OnlySpot: onlySpot(pod, o.policy), Assigned: AssignmentOf(pod)}
		replica := decision.Replica{OnlySpot: admits.OnlySpot, Exempt: r.settings.Exempts(&admits)}
		if r.ordered { // every pod has an ordinal of its own
			subject, err := o.Subject(pod)
			if err != nil {
				continue
			}
			replica.Ordinal = subject.Pod.Workload.Ordinal
		}
		if pod.Spec.NodeName != "" {
			replica.Capacity, replica.Bound = capacityOf(pod.Spec.NodeName)
		}
		switch {
		case !replica.Bound:
		case replica.Capacity == decision.OnDemand && OnlyOnDemand(pod, o.policy):
			r.onlyOnDemand++
		case replica.Capacity == decision.Spot && replica.Exempt:
			r.exempt++
		}
		r.revisions[r.at] = append(r.revisions[r.at], replica)
	}
	standings := make(map[OwnerKey]WorkloadStanding, len(workloads))
	for key, w := range workloads {
		standings[key] = WorkloadStanding{decision.StandingOf(w.desired, w.floor, w.ordered, w.revisions), w.onlyOnDemand, w.exempt}
	}
	return standings
}

// Deficits remembers since when the floors of workloads have not been met. The zero value remembers nothing. It is not for concurrent use.
type Deficits struct {
	since map[OwnerKey]time.Time
}

// Update takes over standings as they are at now. It returns how many floors are not met, how many replicas they lack together, and how long
// one of them has not been met at any Update, the longest.
func (d *Deficits) Update(standings map[OwnerKey]WorkloadStanding, now time.Time) (floors, replicas int, longest time.Duration) {
	still := map[OwnerKey]time.Time{}
	for key, s := range standings {
		if s.FloorDeficit == 0 {
			continue
		}
		since, before := d.since[key]
		if !before {
			since = now
		}
		still[key] = since
		floors++
		replicas += s.FloorDeficit
		longest = max(longest, now.Sub(since))
	}
	d.since = still
	return floors, replicas, longest
}
