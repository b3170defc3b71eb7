package migration

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/turns"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
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
	// Departures are the moves that an Executor has started (Executor.Departures). nil: none.
	Departures Departures
	// Provisioning is the evidence about the nodes that autoscalers add. nil means that only the
	// nodes of the Snapshot count.
	Provisioning *simulation.Provisioning
}

// Progress contains what an Executor knows about pods beyond the caches, by the UID of the pod.
type Progress map[types.UID]PodProgress

// PodProgress is the progress of one pod.
type PodProgress struct {
	// InFlight is the action that the caches do not show yet; "" if there is none.
	InFlight Kind
	// Unreleasable: the API server refused to release the pod.
	Unreleasable bool
	// Refused: the last eviction of the pod was refused by a PodDisruptionBudget or denied by a
	// webhook or a policy, or a webhook failed.
	Refused bool
}

// Plan returns the next action of every move and of every released pod, at most one per pod.
// Deletions come first, then actions with a deadline, then the rest. A pod that only has to wait
// gets no action. A pod that stays because no node has room for its replacement gets a Stay.
//
// room must be unused: every move reserves its own room, so a move that was already tried on it
// would count twice. A second move of the same pod is dropped unless its deadline is earlier.
// Requested replaces Drain, because the requester waits until the controller evicts the pod.
func Plan(s *snapshot.Snapshot, room Room, moves []Move, settings Settings, progress Progress) []Action {
	p := newPlanner(s, room, moves, settings, progress)
	p.reserveExpected()
	// New moves get room before old moves end: an earlier start of a replacement is worth more than
	// an earlier end of a pod.
	for _, m := range p.startable() {
		p.add(m, p.start)
	}
	p.startPostponed()
	p.complete()
	return inOrder(p.actions)
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
	// lastMoments contains the last moments of the pods with a deadline.
	lastMoments map[types.UID]time.Time
	// replicas counts the pods of each workload if there are moves.
	replicas map[workload.OwnerKey]*replicas
	// firstReplaced contains the pods of chooseFirstReplaced. It is nil until it is needed.
	firstReplaced map[workload.OwnerKey]*snapshot.Pod
	// hashSelectors and adopters cache what could treat a released pod differently, by namespace.
	hashSelectors map[string][]hashSelector
	adopters      map[string]*workload.Selectors[snapshot.Adopter]
	budgets       *budgets
	// feasibility finds the pods that a new node could run.
	feasibility func() *simulation.Feasibility
	// replacementPending reports whether a replacement with room is not bound yet. A replacement
	// whose pod the API server does not evict is not pending.
	replacementPending bool
	// starting counts the moves that this plan starts.
	starting map[departureKey]int
	// postponed are the first actions of moves whose replacements have no room.
	postponed []Action
	actions   []Action
}

func newPlanner(s *snapshot.Snapshot, room Room, moves []Move, settings Settings, progress Progress) *planner {
	p := &planner{
		now: s.Now, snapshot: s, room: room, settings: settings, progress: progress, moves: collect(moves),
		hashSelectors: map[string][]hashSelector{}, adopters: map[string]*workload.Selectors[snapshot.Adopter]{}, budgets: newBudgets(s, progress),
		starting: map[departureKey]int{}, replicas: map[workload.OwnerKey]*replicas{},
		feasibility: sync.OnceValue(func() *simulation.Feasibility { return settings.Provisioning.Feasibility(s) }),
	}
	if len(moves) > 0 {
		for _, pod := range s.Pods {
			p.count(pod, 1)
		}
	}
	p.lastMoments = p.assignLastMoments()
	return p
}

// add adds the action that a step returns for a move, unless it is zero. It adds nothing if the
// step panics. Later steps count the pod as gone if it is being removed.
func (p *planner) add(m Move, step func(Move) Action) {
	defer recovery.Recover(recovery.Pod, klog.KObj(m.Pod))
	a := step(m)
	if a.Kind == "" {
		return
	}
	if a.Kind == EvictPod {
		a.DisruptionBudget, a.LikelyRefused = p.budgets.charge(a.Pod)
	}
	if a.Kind == EvictPod || a.Kind == Release {
		a.Unevictable = p.budgets.never(a.Pod)
	}
	if !a.Deadline.IsZero() {
		a.LastMoment = p.lastMoment(m)
	}
	removed := a.Kind == DeletePod || a.Kind == EvictPod && !a.LikelyRefused
	if a.starts() && !a.LikelyRefused {
		p.starting[keyOfDeparture(a.Pod)]++
		if !a.WithoutRoom && !a.Deadline.IsZero() {
			p.replacementPending = p.replacementPending || !p.progress[a.Pod.UID].Refused
		}
	}
	if removed {
		p.count(a.Pod, -1)
	}
	p.actions = append(p.actions, a)
}

// laterPerTurn is how many later actions of a namespace are grouped.
const laterPerTurn = 10

// inOrder sorts planned actions in the order of execution: deletions, then actions with a deadline
// (pods that wait for a new node last), then the rest. Within each rank the first action of each
// workload comes first, in the given order, and the namespaces take turns. The other actions
// follow, sorted by deadline and grouped by workload. Kubernetes controllers then sync a workload
// once for several pods, and in a mass reclaim these syncs are much of their work. Here too the
// namespaces take turns, with laterPerTurn actions each.
func inOrder(actions []Action) []Action {
	type position struct {
		Action
		later, workload int
	}
	positions := make([]position, len(actions))
	first := map[workload.OwnerKey]int{}
	for i, a := range actions {
		positions[i] = position{Action: a, workload: i}
		if at, seen := first[workloadKey(a.Pod)]; seen {
			positions[i].later, positions[i].workload = 1, at
		} else {
			first[workloadKey(a.Pod)] = i
		}
	}
	byDeadline := func(a, b position) int {
		if order := a.later - b.later; order != 0 || a.later == 0 {
			return order
		}
		return compareDeadlines(a.Deadline, b.Deadline)
	}
	namespace := func(p position) string { return p.Pod.Namespace }
	slices.SortStableFunc(positions, func(a, b position) int { return cmp.Or(byDeadline(a, b), a.workload-b.workload) })
	turns.RoundRobin(positions[:len(first)], 1, namespace)
	turns.RoundRobin(positions[len(first):], laterPerTurn, namespace)
	slices.SortStableFunc(positions, func(a, b position) int { return cmp.Or(a.rank()-b.rank(), byDeadline(a, b)) })
	for i := range positions {
		actions[i] = positions[i].Action
	}
	return actions
}

// rank orders actions by urgency. Actions that will probably be refused must not delay others.
func (a *Action) rank() int {
	switch {
	case a.Kind == DeletePod:
		return 0
	case a.LikelyRefused:
		return 4
	case a.WithoutRoom && !a.Deadline.IsZero():
		return 2
	case !a.Deadline.IsZero():
		return 1
	}
	return 3
}
