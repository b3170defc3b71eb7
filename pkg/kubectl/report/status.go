package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// State is the state of a workload in one word.
type State string

// The states, worst first. A workload has the first state that applies.
const (
	// BelowFloor means that fewer pods run on on-demand than the floor requires, or that an ordinal
	// of a StatefulSet's floor runs on spot.
	BelowFloor State = "BelowFloor"
	// OverBudget means that more pods of a revision run on spot than its budget permits.
	OverBudget State = "OverBudget"
	// Waiting means that pods wait for a node or are not created yet.
	Waiting State = "Waiting"
	// OptingIn means that the newest pod template opts in, but not all pods do.
	OptingIn State = "OptingIn"
	// RollingOut means that a rollout is in progress or paused.
	RollingOut State = "RollingOut"
	// Moving means that pods are being moved or deleted.
	Moving State = "Moving"
	// AtRisk means that the floor is met, but a loss of all spot nodes would leave fewer replicas
	// than a PodDisruptionBudget requires, or new pods of the floor cannot require on-demand.
	AtRisk State = "AtRisk"
	// Surplus means that replicas beyond the floor run on on-demand and could be on spot.
	Surplus State = "Surplus"
	// Unknown means that nodes could not be read, so it is unknown whether the floor is met, or
	// that it is unknown whether what survives suffices: see View.doubts.
	Unknown State = "Unknown"
	// OK means that no other state applies.
	OK State = "OK"
)

var states = []State{BelowFloor, OverBudget, Waiting, OptingIn, RollingOut, Moving, AtRisk, Surplus, Unknown, OK}

// Status is the state of one workload of the profile. Fields that depend on nodes are nil if nodes
// could not be read.
type Status struct {
	Ref     `json:",inline"`
	Desired int `json:"desired"`
	// Floor is the number of replicas that must survive the loss of all spot.
	Floor    int  `json:"floor"`
	OnDemand *int `json:"onDemand,omitempty"`
	Spot     *int `json:"spot,omitempty"`
	// Waiting counts the pods without a node or on a node that does not exist, and the pods that
	// are not created yet.
	Waiting int `json:"waiting"`
	// WithoutSpot is the number of replicas that remain if all spot nodes are lost. WithoutPool is
	// the number that remain if the spot pool with most replicas is lost. LargestPool is that pool
	// as TYPE/ZONE; "" if no replica is on spot.
	WithoutSpot *int     `json:"withoutSpot,omitempty"`
	WithoutPool *int     `json:"withoutPool,omitempty"`
	LargestPool string   `json:"largestPool,omitempty"`
	State       State    `json:"state"`
	Reasons     []string `json:"reasons,omitempty"`

	// NoFloor is as in AffectedWorkload.
	NoFloor bool `json:"-"`
	// deficit counts the missing replicas on on-demand, and surplus those beyond the floor.
	deficit, surplus int
}

// Statuses returns the states of the workloads of the profile, worst first: by State, then by the
// missing and waiting replicas, then by namespace, kind and name. others is the number of workloads
// with another scheduler.
func (v *View) Statuses() (all []Status, others int) {
	all = []Status{} // not null in JSON
	templates := map[Ref]*v1.Pod{}
	for _, pod := range v.TemplatePods {
		templates[ownerOf(pod)] = pod
	}
	transitions, obstacles, maySpot, doubts := v.Snapshot.PodsInTransition(), v.obstacles(), v.maySpot(), v.doubts()
	hidden := sync.OnceValue(func() *v1.Node { return gating.HiddenNode(v.Policy, v.Gating.Labels, v.Snapshot.Nodes) })
	for _, w := range v.Snapshot.Workloads {
		template := templates[refOf(w)]
		delete(templates, refOf(w)) // it has pods
		if !w.InScope {
			if s, ok := v.notOptedIn(w, template); ok {
				all = append(all, s)
			} else {
				others++
			}
			continue
		}
		s := v.status(w, transitions[w.Key], v.awaited(obstacles, w, migration.Heal))
		if _, n := surplusOf(w, maySpot); n > 0 { // after the annotations that have no effect, because it waits anyway
			s.note(Surplus, "%s beyond the floor of %d on on-demand could be on spot%s", Count(n, "replica", "replicas"), w.Floor,
				v.awaited(obstacles, w, migration.ReturnToSpot))
		}
		for _, doubt := range doubts(w) {
			s.note(Unknown, "%s", doubt)
		}
		if w.KeepsScheduler {
			s.noteKept(v, w, hidden())
		}
		all = append(all, s)
	}
	for ref, pod := range templates {
		if s, ok := v.statusWithoutPods(ref, pod); ok {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)),
			cmp.Compare(b.deficit, a.deficit), cmp.Compare(b.Waiting, a.Waiting), compareRefs(a.Ref, b.Ref))
	})
	return all, others
}

// Select returns the statuses that a selector selects by the labels of the workload's own object.
// For a kind that is not read, these are the labels that all pods of the object share.
func (v *View) Select(all []Status, selector labels.Selector) []Status {
	shared := map[Ref]labels.Set{}
	for _, p := range v.Snapshot.Pods {
		if p.Workload == nil {
			continue
		}
		ref := refOf(p.Workload)
		ref.Role = "" // an object has the same labels for all roles
		if common, ok := shared[ref]; ok {
			maps.DeleteFunc(common, func(key, value string) bool {
				other, ok := p.Labels[key]
				return !ok || other != value
			})
		} else {
			shared[ref] = maps.Clone(p.Labels)
		}
	}
	return slices.DeleteFunc(all, func(s Status) bool {
		s.Role = ""
		own := shared[s.Ref]
		if object := v.Object(s.APIVersion, s.Kind, s.Namespace, s.Name); object != nil {
			own = object.GetLabels()
		}
		return !selector.Matches(own)
	})
}

// notOptedIn returns the status of a workload that is opting in, or that was probably meant to. The
// newest template decides. template is a pod of it, or nil: then the newest pod is.
func (v *View) notOptedIn(w *snapshot.Workload, template *v1.Pod) (s Status, ok bool) {
	pods, placement := w.Pods(), placementOf(w)
	if len(pods) == 0 {
		return s, false
	}
	last := pods[len(pods)-1]
	template = cmp.Or(template, last.Pod)
	s = Status{Ref: refOf(w), Desired: w.Desired, NoFloor: true, State: OK, Waiting: len(placement.waiting)}
	if s.Waiting > 0 {
		s.State = Waiting
	}
	s.place(&placement, v.NodesUnknown)
	optIn := w.CountPods(func(p *snapshot.Pod) bool { return v.Scope.Includes(p.Pod) })
	if optIn > 0 && v.Scope.Includes(last.Pod) || v.Scope.Includes(template) {
		s.note(OptingIn, "OptingIn: %d of %s; the policy applies when all opt in", optIn, Count(len(pods), "pod", "pods"))
		if s.Waiting > 0 {
			s.Reasons = append(s.Reasons, waitReason(placement.waiting[0]))
		}
		return s, true
	}
	placed := w.CountPods(func(p *snapshot.Pod) bool {
		return p.Spec.NodeName != "" && p.Spec.SchedulerName == template.Spec.SchedulerName
	})
	s.Reasons = v.optInMistakes(s.Ref, &last.Subject.Pod.Workload, template, placed > 0)
	if optIn > 0 {
		s.note(OK, "its newest pod template does not opt in, so the policy does not apply; %d of %s still opt in", optIn,
			Count(len(pods), "pod", "pods"))
	}
	return s, len(s.Reasons) > 0
}

// status returns the status of a workload, without Surplus. heal is what a heal waits for
// (View.awaited).
func (v *View) status(w *snapshot.Workload, transition snapshot.PodsInTransition, heal string) Status {
	placement := placementOf(w)
	s := Status{Ref: refOf(w), Desired: w.Desired, Floor: w.Floor, Waiting: len(placement.waiting) + transition.Missing, State: OK}
	s.place(&placement, v.NodesUnknown)
	switch {
	case len(placement.Misplaced) > 0:
		var names []string
		for _, at := range placement.Misplaced {
			names = append(names, w.Revisions[at.Revision].Pods[at.Replica].Name)
		}
		s.note(BelowFloor, "%s of the floor on spot%s", strings.Join(names, ", "), heal)
	case s.deficit > 0:
		s.note(BelowFloor, "%d of the floor of %d on on-demand%s", placement.FloorOnDemand, w.Floor, heal)
	}
	if placement.OverBudget > len(placement.Misplaced) && !v.NodesUnknown {
		if s.State == BelowFloor {
			heal = "" // the first reason has it
		}
		s.note(OverBudget, "%d on spot beyond the budget of %d%s", placement.OverBudget, w.Desired-w.Floor, heal)
	}
	if n := len(placement.waiting); n > 0 {
		s.note(Waiting, "%s: %s", Count(n, "pod waits", "pods wait"), waitReason(placement.waiting[0]))
	}
	if n := len(placement.onMissingNode); n > 0 && !v.NodesUnknown {
		s.note(Waiting, "%s on a deleted node", Count(n, "pod is", "pods are"))
	}
	if transition.Missing > 0 {
		s.note(Waiting, "%s not created by its controller yet%s", Count(transition.Missing, "pod is", "pods are"), v.creationFailure(s.Ref))
	}
	if w.RollingOut {
		s.note(RollingOut, "rolling out")
	}
	if n := transition.Released + transition.Terminating; n > 0 {
		s.note(Moving, "%s leaving", Count(n, "pod is", "pods are"))
	}
	onReclaimed := func(p *snapshot.Pod) bool { return p.Node != nil && p.Node.Facts.Signal == decision.Reclaim }
	if n := w.CountPods(onReclaimed); n > 0 && v.Pause.Stops(safety.Reclaim) {
		s.note(AtRisk, "%s with a node that is being reclaimed: the controller is paused", Count(n, "pod ends", "pods end"))
	}
	onDemand := func(w *snapshot.Workload, _ int) int { return w.FloorStatus().OnDemand }
	if required, _ := v.requiredByBudget(w, onDemand); !v.NodesUnknown && placement.OnDemand < required {
		s.note(AtRisk, "a loss of all spot leaves %d, but a PodDisruptionBudget requires %d", placement.OnDemand, required)
	}
	if v.NodesUnknown {
		s.note(Unknown, "nodes cannot be read")
	}
	if placement.exempt {
		s.note(OK, "its own constraints admit only spot: the floor does not apply")
	}
	if n := len(w.Revisions); n > 0 && len(w.Revisions[n-1].Pods) > 0 {
		newest := w.Revisions[n-1].Pods[0]
		_, origins, invalid := v.Policy.Explain(&newest.Subject.Pod)
		s.Reasons = append(s.Reasons, v.ignoredOf(newest, origins, invalid)...)
	}
	return s
}

// doubts returns a function that returns why the replicas that survive may not suffice, although
// they meet the floor.
func (v *View) doubts() func(*snapshot.Workload) []string {
	var pods []*v1.Pod
	for _, p := range v.Snapshot.Pods {
		pods = append(pods, p.Pod)
	}
	unlike := workload.Unlike(pods)
	return func(w *snapshot.Workload) (doubts []string) {
		key := w.Key
		if key.Role = ""; unlike[key] {
			doubts = append(doubts, "its pods differ from each other: unknown whether they are equal replicas")
		}
		if w.Floor < w.Desired && w.CountPods(func(p *snapshot.Pod) bool { return p.Subject.Pod.Workload.Batch == decision.MaybeRetriable }) > 0 {
			doubts = append(doubts, "the Job fails if it loses a pod: unknown whether its controller starts it again (failurePolicy)")
		}
		return doubts
	}
}

// place sets what depends on nodes, unless they are unknown.
func (s *Status) place(placement *placement, noNodes bool) {
	if noNodes {
		return
	}
	s.Waiting += len(placement.onMissingNode)
	pool, inPool := placement.largestPool()
	withoutPool := placement.OnDemand + placement.Spot - inPool
	s.OnDemand, s.Spot, s.WithoutSpot = &placement.OnDemand, &placement.Spot, &placement.OnDemand
	s.WithoutPool, s.LargestPool = &withoutPool, pool
	s.deficit, s.surplus = placement.FloorDeficit, placement.Surplus
}

// note adds a reason, and sets State if the reason's is worse.
func (s *Status) note(state State, format string, args ...any) {
	if slices.Index(states, state) < slices.Index(states, s.State) {
		s.State = state
	}
	s.Reasons = append(s.Reasons, fmt.Sprintf(format, args...))
}

// statusWithoutPods returns the status of a workload without pods, given a pod that it would
// create. It returns false if the owner is unknown or is scaled to 0, or if the pod was not meant
// to opt in.
func (v *View) statusWithoutPods(ref Ref, pod *v1.Pod) (s Status, ok bool) {
	subject, err := v.Owners.Subject(pod)
	if err != nil || subject.Pod.Workload.Desired == 0 {
		return s, false
	}
	workload := &subject.Pod.Workload
	s = Status{Ref: ref, Desired: workload.Desired, Waiting: workload.Desired, State: Waiting, NoFloor: !v.Scope.Includes(pod)}
	if !s.NoFloor {
		settings, _ := v.Policy.Settings(&subject.Pod)
		s.Floor = settings.Floor(workload.Desired)
	} else if s.Reasons = v.optInMistakes(ref, workload, pod, false); len(s.Reasons) == 0 {
		return s, false
	}
	s.note(Waiting, "%s", v.noPodsCreated(ref))
	s.place(&placement{}, v.NodesUnknown)
	return s, true
}

// ownerOf returns the owner of a pod of View.TemplatePods.
func ownerOf(pod *v1.Pod) Ref {
	owner := &pod.OwnerReferences[0]
	ref := Ref{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name}
	if ref.Kind == "ReplicaSet" {
		ref.Kind, ref.Name = "Deployment", pod.Name
	}
	return ref
}

// waitReason returns the scheduler's message for a waiting pod.
func waitReason(p *snapshot.Pod) string {
	switch gated := workload.Gated(p.Pod); {
	case gated && workload.HasOtherGates(p.Pod):
		return "SchedulingGated: the controller waits until its other scheduling gates are removed"
	case gated:
		return "SchedulingGated: the controller has not removed " + spot.CapacityGate + " yet"
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			message, _, _ := strings.Cut(c.Message, " preemption:")
			message = strings.TrimSuffix(message, " no new claims to deallocate,") // which Kubernetes adds to every pod without claims
			return cmp.Or(strings.TrimSuffix(message, "."), c.Reason)
		}
	}
	return "no scheduler has reported a reason"
}

// Count returns a number with its unit: "1 pod", "2 pods".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// SomeOf returns the first texts of a list as one text, and how many more there are.
func SomeOf(texts []string) string {
	const most = 10
	if len(texts) <= most {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
}
