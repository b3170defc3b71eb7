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
	// Quantiles of the time from before a pod's creation to its binding, as a watch saw it, of the pods that are created after the first
	// binding: those before it waited for the scheduler to start. 0 if there are none.
	PlacedP50Milliseconds float64 `json:"placedP50Milliseconds,omitempty"`
	PlacedP99Milliseconds float64 `json:"placedP99Milliseconds,omitempty"`
	// Quantiles of the time from taking a pod from the queue to its binding, from the scheduler's own histogram.
	LatencyP50Milliseconds float64 `json:"latencyP50Milliseconds"`
	LatencyP99Milliseconds float64 `json:"latencyP99Milliseconds"`
	// CPUSeconds that the scheduler's process used from the first binding to the last, and the most memory that it ever held.
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"`
	Spread     Spread  `json:"spread"`
}

// measure lets the arm's scheduler place all workloads, and removes them. The scheduler is started anew, so that all it counts is of
// this run. Where nodes join late the pods come after them, and with -rate after the scheduler, so that their speed is partly that of the bench.
func (b *bench) measure(ctx context.Context, round int, a arm) (_ *Measurement, err error) {
	late := b.options.layout.late != ""
	creation := newCreation(b.client, b.options.rate)
	before := !late && b.options.rate == 0
	if before {
		if err := creation.create(ctx, b.workloads, a); err != nil {
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
	var placed []binding
	work, workCtx := errgroup.WithContext(ctx)
	if !before {
		work.Go(func() error { return creation.create(workCtx, b.workloads, a) })
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
	at := placements{}
	var took []float64
	for _, binding := range placed {
		at.add(binding.app, binding.node)
		if began := creation.began[binding.pod]; began.After(placed[0].at) {
			took = append(took, binding.at.Sub(began).Seconds()*1000)
		}
	}
	m.Spread = spreadOf(at, b.workloads, b.nodes)
	if len(took) > 0 {
		m.PlacedP50Milliseconds, m.PlacedP99Milliseconds = quantile(took, 0.5), quantile(took, 0.99)
	}
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
	pod, app, node string
	at             time.Time
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
					bindings <- binding{pod.Name, pod.Labels[appLabel], pod.Spec.NodeName, time.Now()}
				}
			}
		}
	}()
	return bindings, failed, nil
}

// await waits until every pod is bound, fills in the rates and what the process used, and returns the bindings in their order.
func (b *bench) await(ctx context.Context, process *lab.Process, bindings <-chan binding, failed <-chan error, m *Measurement) ([]binding, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.limit)
	defer cancel()
	var placed []binding
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
			placed = append(placed, binding)
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
