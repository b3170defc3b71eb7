package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
)

// State says in one word how a workload stands.
type State string

// The states, worst first. A workload is in the first that fits.
const (
	// BelowFloor: fewer of its pods stand on on-demand than its floor asks for, or an ordinal of a StatefulSet's floor stands on spot.
	BelowFloor State = "BelowFloor"
	// OverBudget: more of a revision stand on spot than may.
	OverBudget State = "OverBudget"
	// Waiting: pods of it wait for a node, or are still to be made.
	Waiting State = "Waiting"
	// RollingOut: a rollout is under way, or has stopped half-way.
	RollingOut State = "RollingOut"
	// Moving: pods of it are on their way out.
	Moving State = "Moving"
	// Unknown: nodes could not be read, so nobody knows whether its floor is kept.
	Unknown State = "Unknown"
	// OK: nothing is to be said of it.
	OK State = "OK"
)

var states = []State{BelowFloor, OverBudget, Waiting, RollingOut, Moving, Unknown, OK}

// Status is how one workload of the profile stands. What depends on nodes is nil where they could not be read.
type Status struct {
	Ref     `json:",inline"`
	Desired int `json:"desired"`
	// Floor is how many replicas must survive the loss of all spot.
	Floor    int  `json:"floor"`
	OnDemand *int `json:"onDemand,omitempty"`
	Spot     *int `json:"spot,omitempty"`
	// Waiting counts the pods that have no node, or one that does not exist, and those still to be made.
	Waiting int `json:"waiting"`
	// WithoutSpot is how many replicas are left when all spot goes, WithoutPool when the spot pool goes that has most of them: LargestPool,
	// TYPE/ZONE; "" if none is on spot.
	WithoutSpot *int     `json:"withoutSpot,omitempty"`
	WithoutPool *int     `json:"withoutLargestPool,omitempty"`
	LargestPool string   `json:"largestPool,omitempty"`
	State       State    `json:"state"`
	Why         []string `json:"why,omitempty"`

	lacks int // replicas on on-demand
}

// Statuses returns how the workloads of the profile stand, worst first: by State, then those that lack most, then by namespace, kind and
// name. others is how many workloads there are that name another scheduler.
func (v *View) Statuses() (all []Status, others int) {
	all = []Status{} // not null in JSON
	seen := map[Ref]bool{}
	motions := v.Snapshot.Motions()
	for _, w := range v.Snapshot.Workloads {
		seen[refOf(w)] = true // also one that is about to opt in: it has pods
		if !w.Ours {
			others++
			continue
		}
		all = append(all, v.status(w, motions[w.Key]))
	}
	for _, pod := range v.Wanted {
		if s, ok := v.wantedStatus(pod); ok && !seen[s.Ref] {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)),
			cmp.Compare(b.lacks, a.lacks), cmp.Compare(b.Waiting, a.Waiting), compareRefs(a.Ref, b.Ref))
	})
	return all, others
}

func (v *View) status(w *cluster.Workload, motion cluster.Motion) Status {
	at := standingOf(w)
	s := Status{Ref: refOf(w), Desired: w.Desired, Floor: w.Floor, Waiting: len(at.waiting) + motion.Missing, State: OK}
	if !v.NoNodes {
		s.Waiting += len(at.astray)
		pool, inPool := at.largestPool()
		withoutPool := at.OnDemand + at.Spot - inPool
		s.OnDemand, s.Spot, s.WithoutSpot, s.WithoutPool, s.LargestPool = &at.OnDemand, &at.Spot, &at.OnDemand, &withoutPool, pool
		s.lacks = at.FloorDeficit
	}
	s.explain(w, &at, motion, v.NoNodes)
	for _, r := range w.Revisions[max(0, len(w.Revisions)-1):] {
		if len(r.Pods) > 0 {
			_, origins, invalid := v.Policy.Explain(&r.Pods[0].Subject.Pod)
			for _, annotation := range invalid {
				s.Why = append(s.Why, annotation.String())
			}
			s.Why = append(s.Why, origins.Overruled...)
		}
	}
	return s
}

// explain sets the State and why.
func (s *Status) explain(w *cluster.Workload, at *standing, motion cluster.Motion, noNodes bool) {
	note := func(state State, format string, args ...any) {
		if slices.Index(states, state) < slices.Index(states, s.State) {
			s.State = state
		}
		s.Why = append(s.Why, fmt.Sprintf(format, args...))
	}
	switch {
	case len(at.misplaced) > 0:
		names := make([]string, len(at.misplaced))
		for i, p := range at.misplaced {
			names[i] = p.Name
		}
		note(BelowFloor, "%s of the floor on spot", strings.Join(names, ", "))
	case s.lacks > 0:
		note(BelowFloor, "%d of the floor of %d on on-demand", at.FloorOnDemand, w.Floor)
	}
	if at.OverBudget > len(at.misplaced) && !noNodes {
		note(OverBudget, "%d on spot beyond the budget of %d", at.OverBudget, w.Desired-w.Floor)
	}
	if n := len(at.waiting); n > 0 {
		note(Waiting, "%s: %s", Count(n, "pod waits", "pods wait"), waitsFor(at.waiting[0]))
	}
	if n := len(at.astray); n > 0 && !noNodes {
		note(Waiting, "%s on a node that is gone", Count(n, "pod is", "pods are"))
	}
	if motion.Missing > 0 {
		note(Waiting, "%s still to be made by its controller", Count(motion.Missing, "pod is", "pods are"))
	}
	if w.RollingOut {
		note(RollingOut, "rolling out")
	}
	if n := motion.Released + motion.Terminating; n > 0 {
		note(Moving, "%s on the way out", Count(n, "pod is", "pods are"))
	}
	if noNodes {
		note(Unknown, "nodes cannot be read")
	}
	if at.exempt {
		note(OK, "its own selector or affinity admits only spot: no floor is kept")
	}
}

// wantedStatus is the status of a workload without any pod, by the pod that it would make; false if it is not known, or is to have none.
func (v *View) wantedStatus(pod *v1.Pod) (Status, bool) {
	subject, err := v.Owners.Subject(pod)
	if err != nil || subject.Pod.Workload.Desired == 0 {
		return Status{}, false
	}
	of := &subject.Pod.Workload
	settings, _ := v.Policy.Settings(&subject.Pod)
	s := Status{
		Ref: ownerOf(pod, of.Kind), Desired: of.Desired, Floor: settings.Floor(of.Desired), Waiting: of.Desired, State: Waiting,
		Why: []string{noneMade},
	}
	if !v.NoNodes {
		var none [4]int
		s.OnDemand, s.Spot, s.WithoutSpot, s.WithoutPool = &none[0], &none[1], &none[2], &none[3]
	}
	return s, true
}

// ownerOf names what a pod of View.Wanted belongs to.
func ownerOf(pod *v1.Pod, kind string) Ref {
	name := pod.Name
	if kind == "StatefulSet" {
		name = pod.OwnerReferences[0].Name
	}
	return Ref{APIVersion: "apps/v1", Kind: kind, Namespace: pod.Namespace, Name: name}
}

// waitsFor returns what the scheduler said of a pod that waits.
func waitsFor(p *cluster.Pod) string {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			message, _, _ := strings.Cut(c.Message, " preemption:")
			return cmp.Or(strings.TrimSuffix(message, "."), c.Reason)
		}
	}
	return "no scheduler has said why"
}

// Count says how many there are of something: "1 pod", "2 pods".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
