package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// Measurement is what one arm did in one round.
type Measurement struct {
	Round int    `json:"round"`
	Arm   string `json:"arm"`
	// Seconds from the first binding to the last, as a watch saw them, and the pods per second in them.
	Seconds       float64 `json:"seconds"`
	PodsPerSecond float64 `json:"podsPerSecond"`
	// RateP50 and RateP99 are pods per second that half of the whole seconds since the first binding reached, and 99 % of them.
	RateP50 float64 `json:"rateP50"`
	RateP99 float64 `json:"rateP99"`
	// Quantiles of the time from taking a pod from the queue to its binding, from the scheduler's own histogram.
	LatencyP50Milliseconds float64 `json:"latencyP50Milliseconds"`
	LatencyP99Milliseconds float64 `json:"latencyP99Milliseconds"`
	// CPUSeconds that the scheduler's process used from the first binding to the last, and the most memory that it ever held.
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"`
	Spread     Spread  `json:"spread"`
}

// measure lets the arm's scheduler place all workloads, and removes them. The scheduler is started anew, so that all it counts is of
// this run. Where nodes join late the pods come after them, so that their speed is partly that of the bench.
func (b *bench) measure(ctx context.Context, round int, a arm) (_ *Measurement, err error) {
	late := b.options.layout.late != ""
	if !late {
		if err := create(ctx, b.client, b.workloads, a); err != nil {
			return nil, err
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	bindings, failed, err := b.watchBindings(watching)
	if err != nil {
		return nil, err
	}
	process, end, err := a.start(ctx, b.plane, b.clientConnection)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Kill(), end()) }()

	if late {
		if err := b.joinLate(ctx, process); err != nil {
			return nil, err
		}
	}
	m := &Measurement{Round: round, Arm: a.name}
	var placed placements
	work, workCtx := errgroup.WithContext(ctx)
	if late {
		work.Go(func() error { return create(workCtx, b.client, b.workloads, a) })
	}
	work.Go(func() (err error) {
		placed, err = b.await(workCtx, process, bindings, failed, m)
		return err
	})
	if err := work.Wait(); err != nil {
		return nil, err
	}
	if err := m.readHistogram(ctx, process); err != nil {
		return nil, err
	}
	m.Spread = spreadOf(placed, b.workloads, b.nodes)
	ours := a.name == spotAware || a.extended || a.gated
	if n := m.Spread.WithoutOnDemand; ours && n > 0 {
		return nil, fmt.Errorf("%d of %d workloads have no pod on on-demand, which is below their floor", n, len(b.workloads))
	}
	if share := m.Spread.SpotUsed; ours && share < 0.99 {
		return nil, fmt.Errorf("%.1f %% of the pods that may be on spot are there, although it has room: expected at least 99 %%", 100*share)
	}
	if err := process.Stop(); err != nil {
		return nil, err
	}
	if late {
		if err := b.removeLate(ctx); err != nil {
			return nil, err
		}
	}
	return m, clear(ctx, b.client)
}

// binding is a pod that has got a node, and when the bench learned of it.
type binding struct {
	app, node string
	at        time.Time
}

// watchBindings sends every binding from now on, once, until ctx ends or it fails. The API server ends watches that do not keep up. Then a
// new one continues at once where the last one ended: a client that lists the pods anew would take all bindings for those of one moment.
func (b *bench) watchBindings(ctx context.Context) (<-chan binding, <-chan error, error) {
	pods := b.client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, nil, err
	}
	bindings, failed := make(chan binding, b.options.pods), make(chan error, 1)
	go func() {
		bound := fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		version, seen := list.ResourceVersion, sets.New[types.UID]()
		for ctx.Err() == nil {
			watch, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: bound, ResourceVersion: version, AllowWatchBookmarks: true})
			if err != nil {
				failed <- fmt.Errorf("watching the pods: %w", err)
				return
			}
			for event := range watch.ResultChan() {
				pod, ok := event.Object.(*corev1.Pod)
				if !ok {
					failed <- fmt.Errorf("watching the pods: %w", apierrors.FromObject(event.Object))
					return
				}
				version = pod.ResourceVersion
				if pod.Spec.NodeName != "" && !seen.Has(pod.UID) {
					seen.Insert(pod.UID)
					bindings <- binding{pod.Labels[appLabel], pod.Spec.NodeName, time.Now()}
				}
			}
		}
	}()
	return bindings, failed, nil
}

// await waits until every pod is bound, fills in the rates and what the process used, and returns where the pods are.
func (b *bench) await(ctx context.Context, process *lab.Process, bindings <-chan binding, failed <-chan error, m *Measurement) (placements, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.limit)
	defer cancel()
	placed := placements{}
	var times []time.Time
	var cpuBefore float64
	profiled := make(chan error, 1)
	for len(times) < b.options.pods {
		select {
		case <-process.Done():
			return nil, process.Err()
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			// Once it is killed, its error has the end of its log.
			return nil, errors.Join(fmt.Errorf("%d of %d pods are bound: %w", len(times), b.options.pods, context.Cause(ctx)),
				process.Kill(), process.Err())
		case binding := <-bindings:
			if len(times) == 0 {
				var err error
				if cpuBefore, _, err = usage(process.PID); err != nil {
					return nil, err
				}
				go func() { profiled <- b.saveProfile(ctx, process, m) }()
			}
			times = append(times, binding.at)
			placed.add(binding.app, binding.node)
		}
	}
	cpu, peak, err := usage(process.PID)
	if err != nil {
		return nil, err
	}
	m.CPUSeconds, m.PeakMiB = cpu-cpuBefore, peak
	m.Seconds, m.PodsPerSecond, m.RateP50, m.RateP99 = rates(times)
	return placed, <-profiled
}
