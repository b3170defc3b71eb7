package migration

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Settings are the inputs of a plan besides the cluster.
type Settings struct {
	// SurgeTimeout is how long a released pod waits for a ready replacement, in addition to the
	// minReadySeconds of its ReplicaSet. Afterwards the controller restores the pod. It is also how
	// much longer the pod waits for its eviction. A pod with a deadline waits until its last moment
	// instead.
	SurgeTimeout time.Duration
	// NodeStartup is how long an autoscaler may take to start a node. A pod that was released for
	// one of the reasons in Buying waits that long if SurgeTimeout is shorter.
	NodeStartup time.Duration
	Buying      []Reason
	// DeleteAtDeadline deletes a pod when no time is left for a PodDisruptionBudget. If it is
	// false, the controller only evicts.
	DeleteAtDeadline bool
	// EvictableOwners are kinds of controllers, unknown to this project, that create a pod again
	// after its eviction.
	EvictableOwners []schema.GroupKind
	// RequestsPerSecond is the rate and the burst of the client's rate limit; 0 means no limit.
	RequestsPerSecond int
}

// Progress contains actions in flight that the caches do not show yet, by the UID of the pod. For a
// pod without such an action it may contain Unreleasable.
type Progress map[types.UID]Kind

// Room finds nodes for replacements. *simulation.Room implements it.
type Room interface {
	// Replace reserves room for the replacement of a pod, or for the pod itself if it is pending.
	// requires is the capacity type that the replacement will require. to is nil if no node has
	// room; why then explains this to users.
	Replace(p *snapshot.Pod, requires decision.AssignedCapacity) (to *snapshot.Node, why string)
}

// Plan returns the next step of every move and of every released pod, at most one per pod.
// Deletions come first, then actions with a deadline, then the rest. A pod that only has to wait
// gets no action. A pod that stays because no node has room for its replacement gets a Stay.
//
// room must be unused: every move reserves its own room, so a move that was already tried on it
// would count twice. A second move of the same pod is dropped unless its deadline is earlier.
// Requested replaces Drain, because the requester waits until the controller evicts the pod.
func Plan(s *snapshot.Snapshot, room Room, moves []Move, settings Settings, progress Progress) []Action {
	p := newPlanner(s, room, moves, settings, progress)
	p.expect()
	// New moves get room before old moves end: an earlier start of a replacement is worth more than
	// an earlier end of a pod.
	for _, m := range p.urgency() {
		p.begin(m)
	}
	p.beginUnplaced()
	p.finish()
	return inOrder(p.actions)
}

func newPlanner(s *snapshot.Snapshot, room Room, moves []Move, settings Settings, progress Progress) *planner {
	p := &planner{
		now: s.Now, snapshot: s, room: room, settings: settings, progress: progress,
		moves: map[types.UID]Move{}, byHash: map[string][]byHash{}, adopters: map[string][]adopter{}, budgets: newBudgets(s, progress),
	}
	for _, m := range moves {
		known, ok := p.moves[m.Pod.UID]
		if !ok || sooner(m.Deadline, known.Deadline) || known.Reason == Drain && m.Reason == Requested {
			p.moves[m.Pod.UID] = m
		}
	}
	p.last = p.lastMoments()
	return p
}

// planner is the state of one run of Plan.
type planner struct {
	now      time.Time
	snapshot *snapshot.Snapshot
	room     Room
	settings Settings
	progress Progress
	// moves are the requested moves, by the UID of the pod.
	moves map[types.UID]Move
	// last contains the last moments of the pods with a deadline.
	last map[types.UID]time.Time
	// serving and ending count the serving and the terminating pods of each workload. They are nil
	// unless a deletion is spread.
	serving, ending map[workload.OwnerKey]int
	// byHash and adopters cache results of selectingByHash and adoptedBy, by namespace.
	byHash   map[string][]byHash
	adopters map[string][]adopter
	budgets  *budgets
	actions  []Action
	// unplaced are the moves whose replacements have no room. awaited reports whether a replacement
	// with room is not bound yet.
	unplaced []firstStep
	awaited  bool
}

func (p *planner) add(a Action) {
	if a.Kind == EvictPod {
		var allowed bool
		a.Budget, allowed = p.budgets.charge(a.Pod)
		a.Unlikely = !allowed
	}
	if !a.Deadline.IsZero() {
		a.LastMoment = p.moment(Move{Pod: a.Pod, Deadline: a.Deadline, Noticed: p.moves[a.Pod.UID].Noticed})
	}
	leaves := a.Kind == DeletePod || a.Kind == EvictPod && !a.Unlikely
	if p.serving != nil && leaves && p.serves(a.Pod) {
		p.serving[group(a.Pod)]--
	}
	p.actions = append(p.actions, a)
}

// expect reserves room for expected replacements that the caches do not show yet, so that it is not
// promised twice. These replace pods that are about to be removed, and pods that the revisions of
// terminating and released pods still lack.
func (p *planner) expect() {
	missing := map[*snapshot.Revision]int{}
	for _, pod := range p.snapshot.Pods {
		revision := pod.Revision
		switch {
		case p.inFlight(pod) && p.progress[pod.UID] != Restore && pod.Live():
			if !irreplaceable(pod) {
				p.reserve(pod)
			}
			continue
		case pod.Release != nil:
			revision = pod.ReleasedFrom
		case pod.DeletionTimestamp == nil:
			continue
		}
		if revision == nil {
			continue
		}
		n, counted := missing[revision]
		if !counted {
			n = wanted(revision) - len(revision.Pods)
		}
		if n > 0 {
			p.reserve(pod)
			n--
		}
		missing[revision] = n
	}
}

// reserve reserves room for a pending pod or for the replacement of a pod.
func (p *planner) reserve(pod *snapshot.Pod) {
	defer recovery.Recover(recovery.Pod, klog.KObj(pod))
	if to, _ := p.room.Replace(pod, decision.Unassigned); to != nil {
		p.awaited = true
	}
}

// wanted returns how many pods a revision asks for.
func wanted(r *snapshot.Revision) int {
	switch {
	case r.ReplicaSet != nil:
		return workload.Replicas(r.ReplicaSet.Spec.Replicas)
	case r.Workload.StatefulSet != nil:
		return workload.Replicas(r.Workload.StatefulSet.Spec.Replicas)
	}
	return r.Workload.Desired
}

// sooner reports whether deadline a is earlier than b. Zero means never.
func sooner(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// movable reports whether a move may start. DaemonSet and static pods belong to their node, and
// terminating pods need no move.
func movable(pod *snapshot.Pod) bool {
	return pod.Node != nil && pod.Live() && workload.PolicyApplies(pod.Pod)
}

// irreplaceable reports whether no controller creates another pod for a live pod. The pod has no
// controller, or it belongs to a Job that fails with the loss of a pod.
func irreplaceable(pod *snapshot.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil || pod.Subject != nil && pod.Subject.Workload.Batch == decision.NotRetriable
}

// ready returns since when the pod has been ready. ok is false if it is not ready or its node does
// not exist.
func ready(pod *snapshot.Pod) (since time.Time, ok bool) {
	if pod.Node == nil {
		return time.Time{}, false
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodReady {
			return c.LastTransitionTime.Time, c.Status == v1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// available reports whether the pod has been ready for minReadySeconds of its ReplicaSet. If that
// is 0, the time does not matter, as in Kubernetes: the clock of the node may be ahead.
func available(pod *snapshot.Pod, rs *appsv1.ReplicaSet, now time.Time) bool {
	since, ok := ready(pod)
	return ok && (rs.Spec.MinReadySeconds == 0 || !now.Before(since.Add(minReady(rs))))
}

// minReady returns how long a pod of the ReplicaSet must be ready to be available.
func minReady(rs *appsv1.ReplicaSet) time.Duration {
	return time.Duration(rs.Spec.MinReadySeconds) * time.Second
}
