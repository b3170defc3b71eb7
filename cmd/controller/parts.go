package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/protection"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/responder"
)

// parts are the planners and the executor, as the loop uses them.
type parts struct {
	// look looks at the cluster once and plans.
	look func(time.Time) (plan, error)
	// wait returns when no move has a request under way. No plan is to be begun meanwhile.
	wait func()
	// watched are the informers whose events may change a plan.
	watched []cache.SharedIndexInformer
	// wishes are what the replacements of moved pods are to require, for what assigns capacity types to new pods.
	wishes *gating.Wishes
	// installed says whether new pods are gated.
	installed *gating.Installed
}

// join joins the planners and the executor. The factory must not have been started.
func join(
	setup *setup, factory informers.SharedInformerFactory, evictions *evictions, writer kubernetes.Interface, recorder events.EventRecorder,
	newRoom func(*cluster.Snapshot, func() bool) rebalance.Room,
) (*parts, error) {
	reader, err := cluster.NewReader(factory, setup.policy, setup.signals, setup.profile, setup.NotReadyAfter)
	if err != nil {
		return nil, err
	}
	heartbeats, err := kube.WatchHeartbeats(factory, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	reader.UseHeartbeats(heartbeats)
	wishes, installed := &gating.Wishes{}, &gating.Installed{}
	executor := migration.NewExecutor(writer, recorder, clock.RealClock{}, migration.ExecutorSettings{
		Concurrency: setup.Concurrency, RequestTimeout: answerWithin, DryRun: setup.DryRun, Wishes: wishes,
	})
	namespaces := factory.Core().V1().Namespaces()
	watched := append(slices.Clone(reader.Informers()), namespaces.Informer())
	interruptions, rebalancing := interruptionSettings(setup), rebalanceSettings(setup)
	interruptions.Selects = selects(namespaces.Lister(), setup.InterruptionNamespaces)
	rebalancing.Selects = selects(namespaces.Lister(), setup.RebalanceNamespaces)
	rebalancing.WouldBeGated = installed.Replaces
	rebalancer := rebalance.NewPlanner(rebalancing)
	protector := protection.NewPlanner(protectionSettings(setup, interruptions))
	var wrong defects
	var due time.Time // the next last moment, as the round before knew it
	look := func(now time.Time) (plan, error) {
		snapshot, err := reader.Snapshot(now)
		if err != nil {
			return plan{}, err
		}
		wrong.observe(snapshot)
		progress := executor.Observe(snapshot)
		marks, moves := interruption.Plan(snapshot, interruptions)
		migrating := migrationSettings(setup, installed.Effective())
		next := migration.NextLastMoment(snapshot, moves, migrating)
		began := time.Now()
		until := searchUntil(began, due, next)
		due = next
		// The rebalancer has the room for itself: who gets it is decided in migration.Plan, where what is urgent comes first.
		asked, requested, responses := evictions.plan(snapshot, responder.Settings{Patience: patience(setup), Selects: interruptions.Selects})
		moves = slices.Concat(moves, asked, rebalancer.Plan(snapshot, newRoom(snapshot, after(halfWay(began, until)))))
		actions := migration.Plan(snapshot, newRoom(snapshot, after(until)), moves, migrating, progress)
		p := plan{
			move:   func(ctx context.Context) { executor.Do(ctx, actions) },
			moving: len(moves)+len(actions)+len(progress) > 0,
			next:   kube.Earlier(next, snapshot.Until),
		}
		for _, m := range marks {
			var notes []string
			for _, e := range m.Events {
				notes = append(notes, e.Reason+": "+e.Note)
			}
			p.marks = append(p.marks, write{
				kind: mark, uid: m.Node.UID, version: m.Node.ResourceVersion, name: klog.KObj(m.Node), why: strings.Join(notes, "; "),
				apply: func(ctx context.Context) error {
					if err := interruption.Apply(ctx, writer, m); err != nil {
						return err
					}
					for _, e := range m.Events {
						recorder.Eventf(m.Node.Node, nil, e.Type, e.Reason, "Mark", "%s", e.Note)
					}
					return nil
				},
			})
		}
		p.responses = responses
		p.budgets = protect(protector, snapshot, requested, writer, recorder)
		for _, c := range costs(snapshot, setup.DeletionCosts) {
			p.costs = append(p.costs, write{
				kind: deletionCost, uid: c.Pod.UID, version: c.Pod.ResourceVersion, name: klog.KObj(c.Pod),
				apply: func(ctx context.Context) error { return c.Apply(ctx, writer) },
			})
		}
		return p, nil
	}
	return &parts{look, executor.Wait, watched, wishes, installed}, nil
}

// selects returns whether the pods of a namespace are moved; nil: those of all are. Of a namespace that is not known yet they are not.
func selects(namespaces corelisters.NamespaceLister, selector labels.Selector) func(namespace string) bool {
	if selector == nil {
		return nil
	}
	return func(name string) bool {
		namespace, err := namespaces.Get(name)
		return err == nil && selector.Matches(labels.Set(namespace.Labels))
	}
}

// costs are the deletion costs to write; turned off, those that were written are taken off.
func costs(s *cluster.Snapshot, on bool) (costs []rebalance.Cost) {
	if on {
		return rebalance.DeletionCosts(s)
	}
	for _, p := range s.Pods {
		if _, ours := p.Annotations[cluster.CostAnnotation]; ours {
			costs = append(costs, rebalance.Cost{Pod: p})
		}
	}
	return costs
}

func interruptionSettings(s *setup) interruption.Settings {
	return interruption.Settings{
		Signals: s.signals, NotReadyAfter: s.NotReadyAfter,
		Reclaim: s.Interruption, DefaultNotice: s.DefaultNotice,
		Advice: s.Advisory, AdviceLimit: s.AdvisoryLimit, AdvicePause: s.AdvisoryPause,
		Assist: s.DrainAssist, Cordons: s.DrainCordons,
	}
}

// migrationSettings returns the settings of moves. gated: new pods get the capacity gate. An autoscaler buys nothing for others.
func migrationSettings(s *setup, gated bool) migration.Settings {
	var buying []migration.Reason
	if s.Gating && gated {
		buying = []migration.Reason{migration.Heal, migration.Assign, migration.Drain, migration.Requested}
	}
	if buysForReturn(s) && gated {
		buying = append(buying, migration.ReturnToSpot)
	}
	return migration.Settings{
		SurgeTimeout: s.SurgeTimeout, NodeStartup: s.NodeStartup, Buying: buying, DeleteAtDeadline: s.DeleteAtDeadline,
		EvictableOwners: s.EvictableOwners, RequestsPerSecond: s.RequestsPerSecond,
	}
}

func rebalanceSettings(s *setup) rebalance.Settings {
	return rebalance.Settings{
		Heal: s.Heal, MakeRoom: s.MakeRoom, ReturnToSpot: s.ReturnToSpot, MoveLocalStorage: s.MoveLocalStorage,
		MaxMoves: s.MaxMoves, Pause: s.PauseAfterInterruption, Calm: s.CalmPeriod,
		Gating: s.Gating, BuyForReturn: buysForReturn(s), HealRunning: s.Gating && s.Heal && s.HealRunning,
	}
}

// buysForReturn reports whether spot is bought for replicas that return to it. Without a label by which a pod requires spot an autoscaler could
// buy on-demand.
func buysForReturn(s *setup) bool { return s.Gating && s.BuyForReturn && s.GatingSpotLabel != "" }
