package migration

import (
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Settings are the inputs of a plan besides the cluster.
type Settings struct {
	// Migration and Interruption are sections of the configuration. A released pod waits for a
	// ready replacement for SurgeTimeout, in addition to the minReadySeconds of its ReplicaSet, and
	// then as long for its eviction. A pod with a deadline waits until its last moment instead.
	Migration    controller.Migration
	Interruption controller.Interruption
	// NodeStartup is how long an autoscaler may take to start a node. A pod that was released for
	// one of the reasons in ProvisionFor waits that long if SurgeTimeout is shorter.
	NodeStartup  time.Duration
	ProvisionFor []Reason
	// RequestsPerSecond is the rate and the burst of the client's rate limit; 0 means no limit.
	RequestsPerSecond int
	// Departures are the moves that an Executor has started (Executor.Departures). nil: none.
	Departures Departures
	// Provisioning is the evidence about the nodes that autoscalers add. nil means that only the
	// nodes of the Snapshot count.
	Provisioning *simulation.Provisioning
	// Paused is what a user has paused. No such move starts or ends. Its released pods return to
	// their ReplicaSets, unless their replacements are ready: then the ReplicaSet would delete one
	// of two ready pods.
	Paused safety.Paused
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
	p := newPlanner(s, settings, progress)
	p.room = room
	observed := p.observe(moves)
	p.chooseFirstReplaced = sync.OnceFunc(func() { chooseFirstReplaced(observed) })
	for _, o := range observed {
		o.startable = o.startable && (o.Pod.Node == nil || recovery.Guard(recovery.Pod, klog.KObj(o.Pod), func() { p.observeStart(o) }))
	}
	p.reserveExpected()
	// New moves get room before old moves end: an earlier start of a replacement is worth more than
	// an earlier end of a pod.
	for _, o := range inStartOrder(observed) {
		p.add(o, p.start)
	}
	p.startPostponed()
	p.complete(observed)
	return inOrder(p.actions)
}

type planner struct {
	now      time.Time
	snapshot *snapshot.Snapshot
	room     Room
	settings Settings
	progress Progress
	// siblings counts the pods of each workload if there are moves or released pods.
	siblings map[workload.OwnerKey]*siblings
	surges   *surgeRules
	budgets  map[*policyv1.PodDisruptionBudget]*budget
	// chooseFirstReplaced sets siblings.firstReplaced of all workloads when it is first needed. By
	// then the plan contains the moves with a deadline, whose pods no longer serve.
	chooseFirstReplaced func()
	feasibility         func() *simulation.Feasibility
	// replacementPending reports whether a replacement with room is not bound yet. A replacement
	// whose pod the API server does not evict is not pending.
	replacementPending bool
	// roomPromised reports whether room is reserved for the replacement of a pod that ends first.
	roomPromised bool
	// starting counts the moves that this plan starts.
	starting map[departureKey]int
	// postponed are the pods whose replacements have no room.
	postponed []*observation
	actions   []Action
}

func newPlanner(s *snapshot.Snapshot, settings Settings, progress Progress) *planner {
	return &planner{
		now: s.Now, snapshot: s, settings: settings, progress: progress,
		siblings: map[workload.OwnerKey]*siblings{}, surges: newSurgeRules(s),
		budgets: map[*policyv1.PodDisruptionBudget]*budget{}, starting: map[departureKey]int{},
		feasibility: sync.OnceValue(func() *simulation.Feasibility { return settings.Provisioning.Feasibility(s) }),
	}
}

// add adds the action that a step returns for a pod, unless it is zero. Later steps count the pod
// as gone if it is being removed.
func (p *planner) add(o *observation, step func(*observation) Action) {
	recovery.Guard(recovery.Pod, klog.KObj(o.Pod), func() {
		a := step(o)
		if a.Kind == "" || a.removes() && (p.settings.Paused.Stops(a.cause()) || a.Unconfirmed && safety.Rules[a.cause()].Confirmed) {
			return
		}
		if a.Kind == EvictPod {
			a.DisruptionBudget, a.LikelyRefused = charge(o.budgets, o.ready)
		}
		if a.Kind == EvictPod || a.Kind == Release {
			a.Unevictable = neverEvicted(o.budgets)
		}
		a.LastMoment, a.Record = p.lastMoment(o), p.record(o, a.Kind)
		if a.starts() && !a.LikelyRefused {
			p.starting[keyOfDeparture(a.Pod)]++
			p.replacementPending = p.replacementPending || !a.WithoutRoom && !a.Deadline.IsZero() && !o.Refused
		}
		if a.Kind == DeletePod || a.Kind == EvictPod && !a.LikelyRefused {
			o.remove()
		}
		p.actions = append(p.actions, a)
	})
}
