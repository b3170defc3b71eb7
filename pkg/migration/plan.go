package migration

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// Settings are what a plan depends on besides the cluster.
type Settings struct {
	// SurgeTimeout is how long a released pod waits for its replacement to be ready, beyond the ReplicaSet's minReadySeconds, before it goes
	// back to its ReplicaSet, and how much longer for its eviction. A pod whose node goes waits until its last moment instead.
	SurgeTimeout time.Duration
	// NodeStartup is how long an autoscaler may take to start a node. A pod that was released for one of the reasons of Buying waits that long if
	// SurgeTimeout is shorter.
	NodeStartup time.Duration
	Buying      []Reason
	// DeleteAtDeadline deletes a pod when no time is left for a budget. Without it the pod is still asked to leave by eviction.
	DeleteAtDeadline bool
	// EvictableOwners are kinds of controllers, not known here, that make a pod again after its
	// eviction.
	EvictableOwners []schema.GroupKind
	// RequestsPerSecond is how many requests the client sends a second, and at once; 0 if it does
	// not limit them.
	RequestsPerSecond int
}

// Progress is what has been begun and is not to be seen in the caches yet, by the UID of the pod. Of one with nothing under way it may say
// that it is Unreleasable.
type Progress map[types.UID]Kind

// Room finds where replacements would be placed, and keeps count of them, as *cluster.Room does.
type Room interface {
	Replace(p *cluster.Pod, requires decision.Assignment) (to *cluster.Node, why string)
}

// Plan returns the next step of every move and of every pod that was released, at most one for a pod: what cannot wait first, then what has
// a deadline, then the rest. A pod that only has to wait gets none, one that stays because nothing has room for it a Stay.
//
// room must be one that nobody has taken from: every move takes its own, so that a move that somebody tried on the same one would count
// twice. A later move of the same pod is dropped, unless its deadline is tighter. Requested replaces
// Drain, because the requester waits until the controller evicts the pod.
func Plan(s *cluster.Snapshot, room Room, moves []Move, settings Settings, progress Progress) []Action {
	p := newPlanner(s, room, moves, settings, progress)
	p.expect()
	// A replacement that starts earlier is worth more than a pod that leaves earlier, so new moves
	// come before the ends of old ones.
	for _, m := range p.urgency() {
		p.begin(m)
	}
	p.beginUnplaced()
	p.finish()
	return inTurn(p.actions)
}

func newPlanner(s *cluster.Snapshot, room Room, moves []Move, settings Settings, progress Progress) *planner {
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

// planner is one run of Plan.
type planner struct {
	now      time.Time
	snapshot *cluster.Snapshot
	room     Room
	settings Settings
	progress Progress
	// moves are those asked for, by the UID of the pod.
	moves map[types.UID]Move
	// last are the last moments of the pods that have a deadline.
	last map[types.UID]time.Time
	// serving and ending count the pods of each workload that serve and that terminate; nil unless
	// a deletion is spread.
	serving, ending map[kube.OwnerKey]int
	// byHash and adopters remember what the functions of the same names returned.
	byHash   map[string][]byHash
	adopters map[string][]adopter
	budgets  *budgets
	actions  []Action
	// unplaced are the moves whose replacements have no room. awaited: a replacement has room, and is not bound yet.
	unplaced []firstStep
	awaited  bool
}

func (p *planner) add(a Action) {
	if a.Kind == EvictPod {
		var allowed bool
		a.Budget, allowed = p.budgets.take(a.Pod)
		a.Unlikely = !allowed
	}
	if !a.Deadline.IsZero() {
		a.Last = p.moment(Move{Pod: a.Pod, Deadline: a.Deadline, Noticed: p.moves[a.Pod.UID].Noticed})
	}
	leaves := a.Kind == DeletePod || a.Kind == EvictPod && !a.Unlikely
	if p.serving != nil && leaves && p.serves(a.Pod) {
		p.serving[group(a.Pod)]--
	}
	p.actions = append(p.actions, a)
}

// expect takes the room of replacements that will come, but are not in the caches yet: those of pods that are about to leave, and those
// that the revisions of leaving and released pods still lack. Otherwise it would be promised twice.
func (p *planner) expect() {
	missing := map[*cluster.Revision]int{}
	for _, pod := range p.snapshot.Pods {
		revision := pod.Revision
		switch {
		case p.begun(pod) && p.progress[pod.UID] != Restore && pod.Live():
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

// reserve takes the room of the replacement of a pod, or of a pod that waits.
func (p *planner) reserve(pod *cluster.Pod) {
	defer recovery.Recover(recovery.Pod, klog.KObj(pod))
	if to, _ := p.room.Replace(pod, decision.Unassigned); to != nil {
		p.awaited = true
	}
}

// wanted returns how many pods a revision asks for.
func wanted(r *cluster.Revision) int {
	switch {
	case r.ReplicaSet != nil:
		return kube.Replicas(r.ReplicaSet.Spec.Replicas)
	case r.Workload.StatefulSet != nil:
		return kube.Replicas(r.Workload.StatefulSet.Spec.Replicas)
	}
	return r.Workload.Desired
}

// sooner reports whether deadline a is tighter than b, of which zero means never.
func sooner(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// movable reports whether a move may be begun: DaemonSet and static pods belong to their node, and what is leaving already leaves.
func movable(pod *cluster.Pod) bool {
	return pod.Node != nil && pod.Live() && kube.HasOpinion(pod.Pod)
}

// irreplaceable reports whether nothing makes another one of a live pod: it has no controller, or is of a Job that its loss fails.
func irreplaceable(pod *cluster.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil || pod.Subject != nil && pod.Subject.Workload.Batch == decision.NotRetriable
}

// ready returns since when the pod has served; false if it does not, because it is not ready or its node does not exist.
func ready(pod *cluster.Pod) (since time.Time, ok bool) {
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

// available reports whether the pod has been ready for as long as its ReplicaSet asks for. Where that is no time, as for Kubernetes, since
// when it has been does not matter: the clock of its node may be ahead.
func available(pod *cluster.Pod, rs *appsv1.ReplicaSet, now time.Time) bool {
	since, ok := ready(pod)
	return ok && (rs.Spec.MinReadySeconds == 0 || !now.Before(since.Add(minReady(rs))))
}

// minReady is how long a pod of the ReplicaSet has to be ready to be available.
func minReady(rs *appsv1.ReplicaSet) time.Duration {
	return time.Duration(rs.Spec.MinReadySeconds) * time.Second
}
