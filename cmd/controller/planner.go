package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/protection"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/responder"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// planner makes the plans of the loop.
type planner struct {
	setup         *setup
	interruptions interruption.Settings
	reader        *snapshot.Reader
	executor      *migration.Executor
	installed     *gating.AdmissionPolicy
	rebalancer    *rebalance.Planner
	protector     *protection.Planner
	evictions     *evictions
	newRoom       func(*snapshot.Snapshot, func() bool) rebalance.Room
	writer        kubernetes.Interface
	recorder      events.EventRecorder

	defects defects
	// due is the next last moment, as the previous round knew it.
	due time.Time
}

// plan reads the cluster once and plans a round.
func (p *planner) plan(now time.Time) (loop.Plan, error) {
	snapshot, err := p.reader.Snapshot(now)
	if err != nil {
		return loop.Plan{}, err
	}
	p.defects.observe(snapshot)
	progress := p.executor.Observe(snapshot)
	marks, moves := interruption.Plan(snapshot, p.interruptions)
	migrating := migrationSettings(p.setup, p.installed.Effective())
	next := migration.NextLastMoment(snapshot, moves, migrating)
	began := time.Now()
	until := searchUntil(began, p.due, next)
	p.due = next
	// The rebalancer has a Room of its own. migration.Plan decides which moves get the room, the
	// urgent ones first.
	requests, requested, responses := p.evictions.plan(snapshot, responder.Settings{Patience: patience(p.setup), Selects: p.interruptions.Selects})
	moves = slices.Concat(moves, requests, p.rebalancer.Plan(snapshot, p.newRoom(snapshot, after(halfWay(began, until)))))
	actions := migration.Plan(snapshot, p.newRoom(snapshot, after(until)), moves, migrating, progress)
	return loop.Plan{
		Marks:     p.markWrites(marks),
		Responses: responses,
		Budgets:   protect(p.protector, snapshot, requested, p.writer, p.recorder),
		Costs:     p.costWrites(snapshot),
		Move:      func(ctx context.Context) { p.executor.Do(ctx, actions) },
		Moving:    len(moves)+len(actions)+len(progress) > 0,
		Next:      node.Earlier(next, snapshot.Until),
	}, nil
}

// markWrites returns the writes of marks on nodes. Each emits its events after the write.
func (p *planner) markWrites(marks []interruption.Mark) (writes []loop.Write) {
	for _, m := range marks {
		var notes []string
		for _, e := range m.Events {
			notes = append(notes, e.Reason+": "+e.Note)
		}
		writes = append(writes, loop.Write{
			Kind: loop.NodeMark, UID: m.Node.UID, Version: m.Node.ResourceVersion, Name: klog.KObj(m.Node), Why: strings.Join(notes, "; "),
			Apply: func(ctx context.Context) error {
				if err := interruption.Apply(ctx, p.writer, m); err != nil {
					return err
				}
				for _, e := range m.Events {
					p.recorder.Eventf(m.Node.Node, nil, e.Type, e.Reason, "Mark", "%s", e.Note)
				}
				return nil
			},
		})
	}
	return writes
}

// costWrites returns the writes of deletion costs.
func (p *planner) costWrites(s *snapshot.Snapshot) (writes []loop.Write) {
	for _, c := range costs(s, p.setup.DeletionCosts) {
		writes = append(writes, loop.Write{
			Kind: loop.DeletionCost, UID: c.Pod.UID, Version: c.Pod.ResourceVersion, Name: klog.KObj(c.Pod),
			Apply: func(ctx context.Context) error { return c.Apply(ctx, p.writer) },
		})
	}
	return writes
}
