// Package round plans the rounds of the controller. It reads the cluster once, runs every planner
// on this snapshot, and returns the writes and moves as the plan of package loop.
package round

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/protection"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	// searchTimeout is how long a round may search for room. Pods without a search result are
	// examined in a later round.
	searchTimeout = 2 * time.Second
	// minSearchTimeout is how long it may search although a pod must be deleted in the meantime:
	// the deletions of a mass reclaim must not prevent all other moves.
	minSearchTimeout = 250 * time.Millisecond
)

// Clients are the connections of a Planner to the API server.
type Clients struct {
	// Writer performs the writes and the moves. RequestTimeout is the timeout of its requests.
	Writer         kubernetes.Interface
	RequestTimeout time.Duration
	// Live confirms facts about nodes (node.LiveReader).
	Live kubernetes.Interface
	// Recorder emits the events of the planners.
	Recorder events.EventRecorder
	// NodeOwners are the objects that own nodes; nil if none is known.
	NodeOwners *NodeOwners
	// Gate decides which moves may start; nil: all.
	Gate *safety.Gate
	// Switches are what users have switched; nil: nothing.
	Switches *safety.SwitchWatcher
}

// Planner plans the rounds of the loop. It is not safe for concurrent use.
type Planner struct {
	// Scope selects the pods that the policy applies to.
	Scope workload.Scope
	// AdmissionPolicy reports whether new pods are gated.
	AdmissionPolicy *gating.AdmissionPolicy
	// Provisioning is the evidence about the nodes that autoscalers add.
	Provisioning *simulation.Provisioning

	config        Config
	clients       Clients
	reader        *snapshot.Reader
	informers     []cache.SharedIndexInformer
	defects       defects
	unread        unreadAnnotations
	interruptions interruption.Settings
	breakerOpen   bool
	reclaims      map[interruption.Reclaim]int // the keys of all rounds
	rebalancer    *rebalance.Planner
	protector     *protection.Planner
	executor      *execution.Executor
	// newRoom returns a Room that stops searching when expired returns true. Tests replace it.
	newRoom func(s *snapshot.Snapshot, expired func() bool) rebalance.Room
	// lastMoment is the next last moment, as the previous round knew it; zero means never.
	lastMoment time.Time
}

// NewPlanner connects the planners and the executor. It must be called before factory is started.
func NewPlanner(config Config, factory informers.SharedInformerFactory, clients Clients) (*Planner, error) {
	namespaces := factory.Core().V1().Namespaces()
	scope := workload.NewScope(config.Profile, config.Gating.Enabled, namespaces.Lister())
	reader, err := snapshot.NewReader(factory, config.Policy, config.Signals, scope, config.Interruption.NotReadyAfter.Duration)
	if err != nil {
		return nil, err
	}
	live, err := node.NewLiveReader(clients.Live, factory, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	reader.Live = live
	dryRun.Set(map[bool]float64{true: 1}[config.DryRun])
	p := &Planner{
		AdmissionPolicy: &gating.AdmissionPolicy{Webhook: config.Gating.ServesWebhook()},
		Provisioning:    &simulation.Provisioning{Policy: config.Policy, Memory: config.Memory},
		Scope:           scope, config: config, clients: clients, reader: reader,
		defects: defects{recorder: clients.Recorder, policy: config.Policy}, unread: unreadAnnotations{read: map[workload.OwnerKey]time.Time{}},
		informers: append(slices.Clone(reader.Informers()), namespaces.Informer()), reclaims: map[interruption.Reclaim]int{},
		newRoom: func(s *snapshot.Snapshot, expired func() bool) rebalance.Room {
			return simulation.NewRoomUntil(s, expired)
		},
	}
	if clients.Switches != nil {
		p.informers = append(p.informers, clients.Switches.Informer)
	}
	p.interruptions = interruption.Settings{
		Interruption: config.Interruption, Drain: config.Drain, Signals: config.Signals, Paused: clients.Switches.Paused,
		Selects: selects(namespaces.Lister(), config.Interruption.NamespaceSelector),
		Memory:  interruption.NewMemory(config.Memory),
	}
	if clients.NodeOwners != nil {
		p.interruptions.Owner = clients.NodeOwners.owner
	}
	p.rebalancer = rebalance.NewPlanner(rebalance.Settings{
		Rebalance: config.Rebalance, Gating: config.Gating, GatesReplacement: p.AdmissionPolicy.GatesReplacement,
		Provisioning: p.Provisioning, Memory: config.Memory, Limited: p.limited, Paused: clients.Switches.Paused,
		Selects: selects(namespaces.Lister(), config.Rebalance.NamespaceSelector),
	})
	p.protector = protection.NewPlanner(protection.Settings{Interruption: p.interruptions, ReplacementTimeout: config.replacementTimeout()})
	p.executor = execution.New(clients.Writer, clients.Recorder, clock.RealClock{}, execution.Settings{
		Concurrency: int(config.Concurrency), RequestTimeout: clients.RequestTimeout, DryRun: config.DryRun, Unchanged: live.Unchanged,
	})
	return p, nil
}

// selects returns a function that reports whether pods of a namespace are moved; nil if all are.
// Pods of a namespace that is not in the cache are not moved.
func selects(namespaces corelisters.NamespaceLister, configured *metav1.LabelSelector) func(namespace string) bool {
	selector := workload.Selector(configured) // it is valid
	if configured == nil || selector.Empty() {
		return nil
	}
	return func(name string) bool {
		namespace, err := namespaces.Get(name)
		return err == nil && selector.Matches(labels.Set(namespace.Labels))
	}
}

// Informers returns the informers whose events may change a plan. Leases of nodes are not among
// them, because a cluster of 5,000 nodes has 500 renewals per second.
func (p *Planner) Informers() []cache.SharedIndexInformer { return p.informers }

// CapacityType returns the capacity type of the node at now, as in a round. It may be called
// concurrently.
func (p *Planner) CapacityType(node *v1.Node, now time.Time) decision.CapacityType {
	return p.reader.CapacityType(node, now)
}

// Wait returns when no move has a request in flight. Plan must not be called meanwhile.
func (p *Planner) Wait() { p.executor.Wait() }

// Plan reads the cluster once and plans a round that began at now. It returns an error if the
// caches cannot be read.
func (p *Planner) Plan(now time.Time) (loop.Plan, error) {
	s, err := p.reader.Snapshot(now)
	if err != nil {
		return loop.Plan{}, fmt.Errorf("reading the cluster: %w", err)
	}
	p.defects.observe(s, p.config.Signals, p.config.GatingLabels)
	if !p.config.DryRun && p.clients.NodeOwners != nil {
		p.unread.observe(s, p.clients.NodeOwners.reader, p.clients.Recorder)
	}
	progress := p.executor.Observe(s)

	safety.Paused(p.clients.Switches.Paused).Report()
	forced, configMap, invalid := p.clients.Switches.Breaker()
	if p.interruptions.ForcedBreaker = forced.Open(); invalid != nil {
		p.defects.warn(configMap, spot.ReasonInvalidSwitches, invalid.Error())
	}
	marks, moves, breaker := interruption.Plan(s, p.interruptions)
	p.reportBreaker(breaker)
	p.reportReclaims(breaker, forced)
	migrating := p.config.migrationSettings(p.AdmissionPolicy.GatesNewPods())
	migrating.Departures = p.executor.Departures()
	migrating.Provisioning = p.Provisioning
	migrating.Paused = p.clients.Switches.Paused
	lastMoment := migration.NextLastMoment(s, moves, migrating)

	began := time.Now()
	until := searchUntil(began, p.lastMoment, lastMoment)
	p.lastMoment = lastMoment
	// The rebalancer has a Room of its own, and half of the time for the search. migration.Plan
	// decides which moves get the room, the urgent ones first.
	halfWay := began.Add(until.Sub(began) / 2)
	for i := range moves {
		moves[i].Limited = p.limited(moves[i].Pod, moves[i].Reason)
	}
	moves = slices.Concat(moves, p.rebalancer.Plan(s, p.newRoom(s, after(halfWay))))
	actions := migration.Plan(s, p.newRoom(s, after(until)), moves, migrating, progress)
	if p.clients.Switches.Unread() != nil {
		actions = nil // no released pod returns to its ReplicaSet either
	}

	return loop.Plan{
		Writes: slices.Concat(p.markWrites(marks), p.budgetWrites(s), p.costWrites(s)),
		Move:   func(ctx context.Context) { p.executor.Do(ctx, actions) },
		Moving: isMoving(now, moves, actions) || len(progress) > 0,
		Next:   node.Earlier(lastMoment, s.Until),
	}, nil
}

// isMoving reports whether pods are being moved. Moves that limits refuse, and moves that wait for
// a confirmation after their deadline, do not count, because that may last for hours.
func isMoving(now time.Time, moves []migration.Move, actions []migration.Action) bool {
	waits := func(m *migration.Move) bool {
		outlived := m.Reason == migration.Interruption && m.Deadline.IsZero() && !m.Unreachable
		return m.Limited != "" || outlived || m.Unconfirmed && !now.Before(m.Deadline)
	}
	return slices.ContainsFunc(moves, func(m migration.Move) bool { return !waits(&m) }) ||
		slices.ContainsFunc(actions, func(a migration.Action) bool { return a.Kind != migration.Stay || !waits(&a.Move) })
}

// limited returns why limits refuse the start of a move now; "" if they do not.
func (p *Planner) limited(pod *snapshot.Pod, reason migration.Reason) string {
	start := migration.Action{Move: migration.Move{Pod: pod, Reason: reason}, Kind: migration.EvictPod}
	if err := p.clients.Gate.Check(start.Removal()); err != nil {
		return err.Error()
	}
	return ""
}

// searchUntil returns when a round must end its search for room if the search starts at now.
// Deletions follow the search. So the search ends before next, the next last moment. It is short if
// expected, the next last moment of the previous round, has passed. Zero times mean never.
func searchUntil(now, expected, next time.Time) time.Time {
	until := node.Earlier(now.Add(searchTimeout), next)
	least := now.Add(minSearchTimeout)
	if until.Before(least) || !expected.IsZero() && !now.Before(expected) {
		return least
	}
	return until
}

func after(at time.Time) func() bool { return func() bool { return !time.Now().Before(at) } }

// Config contains the configuration of the controller and the policy of the scheduler.
type Config struct {
	*controller.SpotControllerConfiguration
	// Profile is the schedulerName of the pods to which Policy applies.
	Profile string
	Policy  *decision.Policy
	// Signals is the table of signals.
	Signals []providers.Signal
	// GatingLabels are the labels of the autoscaler mode; nil unless it is enabled.
	GatingLabels *gating.Labels
	// Memory passes state on to later leaders; nil for none.
	Memory *leader.Memory
}

// replacementTimeout returns how long a replacement may take.
func (c *Config) replacementTimeout() time.Duration {
	if c.Gating.Enabled {
		return max(c.Migration.SurgeTimeout.Duration, c.Gating.NodeStartup.Duration)
	}
	return c.Migration.SurgeTimeout.Duration
}

// migrationSettings returns the settings of moves. gated reports whether new pods get the capacity
// gate. Without the gate an autoscaler adds no nodes for them.
func (c *Config) migrationSettings(gated bool) migration.Settings {
	var provisioning []migration.Reason
	if c.Gating.Enabled && gated {
		provisioning = []migration.Reason{migration.Heal, migration.Assign, migration.Drain, migration.Requested}
	}
	if c.Gating.ProvisionsForReturn() && gated {
		provisioning = append(provisioning, migration.ReturnToSpot)
	}
	return migration.Settings{
		Migration: c.Migration, Interruption: c.Interruption, NodeStartup: c.Gating.NodeStartup.Duration, ProvisionFor: provisioning,
		RequestsPerSecond: int(c.RequestsPerSecond),
	}
}
