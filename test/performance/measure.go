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
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

// Measurement is the result of one arm in one round.
type Measurement struct {
	Round int    `json:"round"`
	Arm   string `json:"arm"`
	// Seconds is the time from the first binding to the last, as observed by a watch, and
	// PodsPerSecond is the rate in that time.
	Seconds       float64 `json:"seconds"`
	PodsPerSecond float64 `json:"podsPerSecond"`
	// RateP50 and RateP99 are the pods per second that 50 % and 99 % of the whole seconds since the
	// first binding reached.
	RateP50 float64 `json:"rateP50"`
	RateP99 float64 `json:"rateP99"`
	// Quantiles of the time from just before a pod's creation to its binding, as observed by a
	// watch. They include only pods that were created after the first binding, because earlier pods
	// waited for the scheduler to start. 0 if there are none.
	PlacedP50Milliseconds float64 `json:"placedP50Milliseconds,omitempty"`
	PlacedP99Milliseconds float64 `json:"placedP99Milliseconds,omitempty"`
	// Quantiles of the time from just before a pod's creation to the removal of its gate, of the
	// same pods. 0 if the pods have no gate.
	GateP50Milliseconds float64 `json:"gateP50Milliseconds,omitempty"`
	GateP99Milliseconds float64 `json:"gateP99Milliseconds,omitempty"`
	// Quantiles of the time from taking a pod from the queue to its binding, from the scheduler's
	// own histogram.
	LatencyP50Milliseconds float64 `json:"latencyP50Milliseconds"`
	LatencyP99Milliseconds float64 `json:"latencyP99Milliseconds"`
	// EventsSeconds is the time from the first binding to the creation of the last event of a
	// binding. 0 if the arm creates no events.
	EventsSeconds float64 `json:"eventsSeconds,omitempty"`
	// CPUSeconds is the CPU time of the scheduler's process from the first binding to the last one
	// and its event. PeakMiB is its peak memory. OtherCPUSeconds is the CPU time of the extender or
	// the controller.
	CPUSeconds      float64 `json:"cpuSeconds"`
	PeakMiB         float64 `json:"peakMiB"`
	OtherCPUSeconds float64 `json:"otherCPUSeconds,omitempty"`
	// APIServerCPUSeconds and EtcdCPUSeconds are the CPU time of the API server and of etcd in the
	// same time.
	APIServerCPUSeconds float64 `json:"apiServerCPUSeconds"`
	EtcdCPUSeconds      float64 `json:"etcdCPUSeconds"`
	Spread              Spread  `json:"spread"`
}

// measure has the arm's scheduler place all workloads, and removes them. It starts a new scheduler,
// so that its counters cover only this run. If nodes join late, the pods are created after them.
// With -rate, they are created after the start of the scheduler. The creation then also limits the
// speed.
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
	bindings, failed, err := b.watchBindings(watching, a)
	if err != nil {
		return nil, err
	}
	programs, err := a.start(ctx, b.plane, b.clientConnection)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kill(programs)) }()
	process := programs[0]

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
		placed, err = b.await(workCtx, programs, bindings, failed, a.hasEvents(), m)
		return err
	})
	if err := work.Wait(); err != nil {
		return nil, err
	}
	if err := m.readHistogram(ctx, process); err != nil {
		return nil, err
	}
	at := placements{}
	var took, gated []float64
	for _, binding := range placed {
		at.add(binding.app, binding.node)
		if began := creation.began[binding.pod]; began.After(placed[0].at) {
			took = append(took, binding.at.Sub(began).Seconds()*1000)
			gated = append(gated, binding.ungated.Sub(began).Seconds()*1000)
		}
	}
	m.Spread = spreadOf(at, b.workloads, b.nodes)
	if len(took) > 0 {
		m.PlacedP50Milliseconds, m.PlacedP99Milliseconds = frame.Quantile(took, 0.5), frame.Quantile(took, 0.99)
	}
	if a.gated && len(gated) > 0 {
		m.GateP50Milliseconds, m.GateP99Milliseconds = frame.Quantile(gated, 0.5), frame.Quantile(gated, 0.99)
	}
	ours := a.name == spotAware || a.extended || a.gated
	if n := m.Spread.WithoutOnDemand; ours && n > 0 {
		return nil, fmt.Errorf("%d of %d workloads have no pod on on-demand, and are below their floor", n, len(b.workloads))
	}
	if share := m.Spread.SpotUsed; ours && share < 0.99 {
		return nil, fmt.Errorf("%.1f %% of the pods that may run on spot do, although it has room: expected at least 99 %%", 100*share)
	}
	if a.ceiling != nil {
		if err := b.checkCeiling(ctx, a, m); err != nil {
			return nil, err
		}
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

// binding is the binding of a pod to a node, and the time at which the bench observed it. ungated
// is the time at which it first observed the pod without a gate.
type binding struct {
	pod, app, node string
	ungated, at    time.Time
}

// watchBindings sends every binding of the arm from now on, once, until ctx is done or the watch
// fails. The API server closes watches of slow clients. A new watch then continues where the last
// one ended. A client that lists the pods again would see all bindings at the same time.
func (b *bench) watchBindings(ctx context.Context, a arm) (<-chan binding, <-chan error, error) {
	pods := b.client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, nil, err
	}
	bindings, failed := make(chan binding, b.options.pods), make(chan error, 1)
	go func() {
		bound := fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		if a.gated {
			bound = "" // also watch the pods without a node, for the removal of their gates
		}
		version, seen, ungated := list.ResourceVersion, sets.New[types.UID](), map[types.UID]time.Time{}
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
				if len(pod.Spec.SchedulingGates) == 0 && ungated[pod.UID].IsZero() {
					ungated[pod.UID] = time.Now()
				}
				if pod.Spec.NodeName != "" && !seen.Has(pod.UID) {
					seen.Insert(pod.UID)
					bindings <- binding{pod.Name, pod.Labels[appLabel], pod.Spec.NodeName, ungated[pod.UID], time.Now()}
				}
			}
		}
	}()
	return bindings, failed, nil
}

// await waits until every pod is bound, and withEvents until every binding has its event. It sets
// the rates and the resource usage of m, and returns the bindings in order.
func (b *bench) await(ctx context.Context, programs []*lab.Process, bindings <-chan binding, failed <-chan error, withEvents bool,
	m *Measurement) ([]binding, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.limit)
	defer cancel()
	var placed []binding
	var times []time.Time
	var before []frame.Resources
	process, profiled := programs[0], make(chan error, 1)
	programs = append([]*lab.Process{b.plane.Process("kube-apiserver"), b.plane.Process("etcd")}, programs...)
	for len(times) < b.options.pods {
		select {
		case <-process.Done():
			return nil, process.Err()
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			// After the process is killed, its error contains the end of its log.
			return nil, errors.Join(fmt.Errorf("%d of %d pods are bound: %w", len(times), b.options.pods, context.Cause(ctx)),
				process.Kill(), process.Err())
		case binding := <-bindings:
			if len(times) == 0 {
				var err error
				if before, err = resourcesOf(programs); err != nil {
					return nil, err
				}
				go func() { profiled <- b.saveProfile(ctx, process, m) }()
			}
			times = append(times, binding.at)
			placed = append(placed, binding)
		}
	}
	if withEvents {
		created := make(chan error, 1)
		go func() { created <- b.awaitEvents(ctx) }()
		select {
		case <-process.Done():
			return nil, process.Err()
		case err := <-created:
			if err != nil {
				return nil, err
			}
		}
		m.EventsSeconds = time.Since(times[0]).Seconds()
	}
	after, err := resourcesOf(programs)
	if err != nil {
		return nil, err
	}
	cpu := func(i int) float64 { return after[i].CPU - before[i].CPU }
	m.APIServerCPUSeconds, m.EtcdCPUSeconds, m.CPUSeconds, m.PeakMiB = cpu(0), cpu(1), cpu(2), float64(after[2].Peak)/(1<<20)
	for i := range programs[3:] {
		m.OtherCPUSeconds += cpu(i + 3)
	}
	m.Seconds, m.PodsPerSecond, m.RateP50, m.RateP99 = rates(times)
	return placed, <-profiled
}

// bindingEvents selects the events of bindings.
const bindingEvents = "reason=Scheduled"

// awaitEvents waits until each pod has the event of its binding.
func (b *bench) awaitEvents(ctx context.Context) error {
	events, bindings := b.client.EventsV1().Events(namespace), metav1.ListOptions{FieldSelector: bindingEvents}
	list, err := events.List(ctx, bindings)
	if err != nil {
		return err
	}
	bindings.ResourceVersion = list.ResourceVersion
	watch, err := events.Watch(ctx, bindings)
	if err != nil {
		return fmt.Errorf("watching the events: %w", err)
	}
	defer watch.Stop()
	for n := len(list.Items); n < b.options.pods; n++ {
		if event, ok := <-watch.ResultChan(); !ok || event.Type != apiwatch.Added {
			return fmt.Errorf("%d of %d bindings have an event: %w", n, b.options.pods, errors.Join(apierrors.FromObject(event.Object), ctx.Err()))
		}
	}
	return nil
}

// resourcesOf returns the resources of each program.
func resourcesOf(programs []*lab.Process) (all []frame.Resources, err error) {
	for _, p := range programs {
		r, err := frame.ResourcesOf(p.PID)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
