// Package demo demonstrates this project on a local control plane, in two acts. In the first act,
// the default scheduler with a preference for spot and this project's scheduler place the same
// workloads. Each time, the demo deletes all spot nodes without notice. In the second act, the
// largest spot pool gets two minutes' notice while this project's controller runs. Later the pool
// returns.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// podStartup is the time that a replacement takes to become ready after spot was lost or got
// notice: pulling an image and starting a program. Outages last as long.
const podStartup = 20 * time.Second

// quickStartup is that time for all other pods, which the demo only waits for.
const quickStartup = time.Second

// schedulerName is the profile of the shipped configuration.
const schedulerName = "spot-aware-scheduler"

// Options configures the demo.
type Options struct {
	// Root is the checkout, as in lab.Options.
	Root string
	// Out receives the progress and the report.
	Out io.Writer
	// Color allows escape sequences in Out.
	Color bool
}

// demo is one run of the demo.
type demo struct {
	plane      *lab.ControlPlane
	client     client.Client
	nodes      []lab.NodeSpec // of the first act
	recorder   *recorder
	exits      *exits
	controller *lab.Process // nil before the second act
	progress   func(format string, args ...any)
}

// Run runs both acts and prints the results after each act. The error describes a failed step or
// a broken guarantee, such as workloads that fell below their floor. The demo fails then.
func Run(ctx context.Context, options Options) (err error) {
	begin := time.Now()
	d := &demo{nodes: lab.DefaultNodes(), recorder: newRecorder(), exits: newExits(), progress: func(format string, args ...any) {
		fmt.Fprintf(options.Out, "%5.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}}
	d.plane, err = lab.Start(ctx, lab.Options{
		Root: options.Root, PodStartup: quickStartup, Progress: func(step string) { d.progress("%s", step) },
	})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := d.plane.Stop(); err == nil {
			err = stopErr
		}
	}()
	d.progress("starting both schedulers")
	if _, err := d.plane.StartStockScheduler(ctx); err != nil {
		return err
	}
	if _, err := d.plane.StartScheduler(ctx, lab.SchedulerOptions{}); err != nil {
		return err
	}
	if d.client, err = client.New(d.plane.Config(), client.Options{}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := d.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	if err := d.watch(ctx); err != nil {
		return err
	}

	first := report{nodes: d.nodes}
	if first.allOnDemandUSD, err = d.allOnDemandUSD(workloads); err != nil {
		return err
	}
	d.progress("act 1: the default scheduler, pods prefer spot by node affinity (weight 100)")
	if first.stock, err = d.act(ctx, placement{schedulerName: corev1.DefaultSchedulerName, affinity: preferSpot}); err != nil {
		return fmt.Errorf("act 1 with the default scheduler: %w", err)
	}
	d.progress("act 1: the same workloads with schedulerName: %s", schedulerName)
	if first.ours, err = d.act(ctx, placement{schedulerName: schedulerName}); err != nil {
		return fmt.Errorf("act 1 with %s: %w", schedulerName, err)
	}
	first.write(options.Out, options.Color)

	second, err := d.reclaim(ctx)
	if err != nil {
		return errors.Join(first.verdict(), fmt.Errorf("act 2: %w", err))
	}
	second.write(options.Out, options.Color)
	writeVerdict(options.Out, options.Color, first, second)
	return errors.Join(first.verdict(), second.verdict())
}

// watch reports pod changes to the recorder and the exits until ctx is done.
func (d *demo) watch(ctx context.Context) error {
	clientset, err := kubernetes.NewForConfig(d.plane.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods().Informer()
	observe := func(pod *corev1.Pod, gone bool) {
		now := time.Now()
		d.recorder.observe(now, pod.Labels[workloadLabel], pod.UID, !gone && isReady(pod))
		d.exits.observe(now, pod, gone)
	}
	_, err = pods.AddEventHandler(informer.Handler[*corev1.Pod]{
		Add:    func(pod *corev1.Pod) { observe(pod, false) },
		Update: func(_, pod *corev1.Pod) { observe(pod, false) },
		Delete: func(pod *corev1.Pod) { observe(pod, true) },
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return fmt.Errorf("watching pods: %w", context.Cause(ctx))
	}
	return nil
}
