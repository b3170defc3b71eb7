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
}

// Standings returns where the live pods of the profile of that name are, by workload and over all its revisions. capacityOf returns the
// capacity type of a node; false if there is no such node. Left out are released pods, because their replacements count, pods whose owner is
// not known, and those that the policy exempts.
func (o *Owners) Standings(pods []*v1.Pod, profile string, capacityOf func(node string) (decision.CapacityType, bool)) map[OwnerKey]WorkloadStanding {
	type workload struct {
		desired, floor int
		ordered        bool
		revisions      [][]decision.Replica
		onlyOnDemand   int
	}
	type revision struct {
		*workload
		at       int // in workload.revisions
		onlySpot bool
	}
	workloads := map[OwnerKey]*workload{}
	revisions := map[OwnerKey]*revision{} // the owner is looked up once a revision; nil: left out
	for _, pod := range pods {
		if pod.Spec.SchedulerName != profile || !Live(pod) || Released(pod) || !HasOpinion(pod) {
			continue
		}
		key := RevisionOf(pod)
		r, known := revisions[key]
		var subject *Subject
		if !known || r != nil && r.ordered { // every pod of an ordered workload has an ordinal of its own
			subject, _ = o.Subject(pod)
		}
		if !known {
			settings, exempt := decision.Settings{}, true
			if subject != nil {
				settings, _ = o.policy.Settings(&subject.Pod)
				exempt = settings.Exempts(&subject.Pod)
			}
			if !exempt {
				w := workloads[subject.WorkloadKey]
				if w == nil {
					w = &workload{desired: subject.Pod.Workload.Desired, ordered: subject.Pod.Workload.Ordered}
					workloads[subject.WorkloadKey] = w
				}
				w.floor = max(w.floor, settings.Floor(w.desired))
				r = &revision{workload: w, at: len(w.revisions), onlySpot: subject.Pod.OnlySpot}
				w.revisions = append(w.revisions, nil)
			}
			revisions[key] = r
		}
		if r == nil {
			continue
		}
		replica := decision.Replica{OnlySpot: r.onlySpot}
		if subject != nil {
			replica.Ordinal = subject.Pod.Workload.Ordinal
		}
		if pod.Spec.NodeName != "" {
			replica.Capacity, replica.Bound = capacityOf(pod.Spec.NodeName)
		}
		if replica.Bound && replica.Capacity == decision.OnDemand && OnlyOnDemand(pod, o.policy) {
			r.onlyOnDemand++
		}
		r.revisions[r.at] = append(r.revisions[r.at], replica)
	}
	standings := make(map[OwnerKey]WorkloadStanding, len(workloads))
	for key, w := range workloads {
		standings[key] = WorkloadStanding{decision.StandingOf(w.desired, w.floor, w.ordered, w.revisions), w.onlyOnDemand}
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
