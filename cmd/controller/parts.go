package main

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/protection"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// parts are the planners and the executor, as the loop uses them.
type parts struct {
	// makePlan reads the cluster once and plans.
	makePlan func(time.Time) (loop.Plan, error)
	// wait returns when no move has a request in flight. No plan may start meanwhile.
	wait func()
	// watched are the informers whose events may change a plan.
	watched []cache.SharedIndexInformer
	// wishes are the capacity types that the replacements of moved pods must require. The gater
	// reads them.
	wishes *gating.Requirements
	// installed reports whether new pods are gated.
	installed *gating.AdmissionPolicy
}

// join connects the planners and the executor. Call it before the factory is started.
func join(
	setup *setup, factory informers.SharedInformerFactory, evictions *evictions, writer kubernetes.Interface, recorder events.EventRecorder,
	newRoom func(*snapshot.Snapshot, func() bool) rebalance.Room,
) (*parts, error) {
	reader, err := snapshot.NewReader(factory, setup.policy, setup.signals, setup.profile, setup.NotReadyAfter)
	if err != nil {
		return nil, err
	}
	heartbeats, err := node.WatchHeartbeats(factory, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	reader.UseHeartbeats(heartbeats)
	wishes, installed := &gating.Requirements{}, &gating.AdmissionPolicy{}
	executor := migration.NewExecutor(writer, recorder, clock.RealClock{}, migration.ExecutorSettings{
		Concurrency: setup.Concurrency, RequestTimeout: answerWithin, DryRun: setup.DryRun, Requirements: wishes,
	})
	namespaces := factory.Core().V1().Namespaces()
	watched := append(slices.Clone(reader.Informers()), namespaces.Informer())
	interruptions, rebalancing := interruptionSettings(setup), rebalanceSettings(setup)
	interruptions.Selects = selects(namespaces.Lister(), setup.InterruptionNamespaces)
	rebalancing.Selects = selects(namespaces.Lister(), setup.RebalanceNamespaces)
	rebalancing.WouldBeGated = installed.Replaces
	p := &planner{
		setup: setup, interruptions: interruptions, reader: reader, executor: executor, installed: installed,
		rebalancer: rebalance.NewPlanner(rebalancing), protector: protection.NewPlanner(protection.Settings{Interruption: interruptions, Patience: patience(setup)}),
		evictions: evictions, newRoom: newRoom, writer: writer, recorder: recorder,
	}
	return &parts{p.plan, executor.Wait, watched, wishes, installed}, nil
}

// selects returns a function that reports whether pods of a namespace are moved; nil selects all
// namespaces. Pods of a namespace that is not in the cache are not moved.
func selects(namespaces corelisters.NamespaceLister, selector labels.Selector) func(namespace string) bool {
	if selector == nil {
		return nil
	}
	return func(name string) bool {
		namespace, err := namespaces.Get(name)
		return err == nil && selector.Matches(labels.Set(namespace.Labels))
	}
}

// costs returns the deletion costs to write. If they are disabled, it removes the existing ones.
func costs(s *snapshot.Snapshot, on bool) (costs []rebalance.Cost) {
	if on {
		return rebalance.DeletionCosts(s)
	}
	for _, p := range s.Pods {
		if _, ours := p.Annotations[spot.DeletionCostAnnotation]; ours {
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

// migrationSettings returns the settings of moves. gated reports whether new pods get the capacity
// gate. Without the gate an autoscaler adds no nodes for them.
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

// buysForReturn reports whether an autoscaler adds spot nodes for replicas that return to spot.
// Without a label by which a pod requires spot, it could add on-demand nodes.
func buysForReturn(s *setup) bool { return s.Gating && s.BuyForReturn && s.GatingSpotLabel != "" }
