package replay

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

const (
	// noticeTaint is the taint that the AWS node termination handler sets at a notice.
	noticeTaint = "aws-node-termination-handler/spot-itn"
	// parallel is the number of concurrent requests of the driver.
	parallel = 16
	// tick is the real time between two checks of the cluster.
	tick = 20 * time.Millisecond
	// quietTime is the real time without an event after which a cluster has settled, unless the
	// status shows what else to wait for.
	quietTime = 400 * time.Millisecond
	// quietHeal is that time while a service has too many replicas on spot: the controller plans
	// its next step within about a second of an event.
	quietHeal = 3 * time.Second
	// quietUnschedulable is the real time in which the schedulers retry unschedulable pods after
	// room was added: two seconds of back-off and the placement.
	quietUnschedulable = 3 * time.Second
	// quietBlocked is that time while budgets refuse all evictions of a drain, in addition to two
	// retries.
	quietBlocked = time.Second
	// quietReaction is the real time within which the controller acts after an event or after the
	// end of the calm period: it plans at most every second, and then sends requests.
	quietReaction = 2 * time.Second
	// quietBackOff is the real time without an event after which the controller does not return a
	// replica that could return: it backs off for a minute after a move that failed.
	quietBackOff = time.Minute + quietReaction
	// placeTimeout is the real time within which all services must be ready at first, in addition
	// to two start-ups of a pod.
	placeTimeout = 3 * time.Minute
)

// driver replays the timeline of one arm on a cluster.
type driver struct {
	arm      Arm
	plan     *Plan
	scales   Scales
	waits    *waits
	client   kubernetes.Interface
	clock    *Clock
	recorder *Recorder
	observer *observer
	scaler   *Autoscaler
	drainer  *drainer
	// beat is the time of the last event for the controller.
	beat time.Time
	// report is called at most once a second with the current time of the trace.
	report func(at time.Duration)
}

func newDriver(arm Arm, p *Plan, scales Scales, waits *waits, client kubernetes.Interface) *driver {
	clock := NewClock(time.Now(), 0)
	recorder := NewRecorder(p)
	return &driver{
		arm: arm, plan: p, scales: scales, waits: waits, client: client, clock: clock, recorder: recorder, observer: newObserver(arm, p,
			realTime(scanInterval, scales.Busy), clock, recorder),
		scaler: NewAutoscaler(p), drainer: newDrainer(client, realTime(evictionRetry, scales.Busy)), report: func(time.Duration) {},
	}
}

// place creates the nodes at the start of the window and the services. It returns when all replicas
// are ready. On-demand nodes are provisioned at once, and nothing is measured.
func (d *driver) place(ctx context.Context) error {
	begin := time.Now()
	if err := d.placeNodes(ctx); err != nil {
		return err
	}
	if err := d.createServices(ctx); err != nil {
		return err
	}
	for {
		s := d.observer.status()
		// With these constraints, replicas may have to wait for spot.
		mayWait := d.arm.Split || d.arm.Spread
		switch quiet := time.Since(s.changed); {
		case s.moving():
		case s.unschedulable == 0 && quiet > quietTime, mayWait && len(s.pending) == 0 && quiet > quietUnschedulable:
			return nil
		case len(s.pending) > 0 && quiet > quietUnschedulable:
			d.scaler.Retry() // the pods did not fit the new nodes as the model expected
			d.observer.touch()
		}
		if time.Since(begin) > placeTimeout+2*realTime(d.plan.Settings.Startup, d.scales.Busy) {
			return fmt.Errorf("placing the services: %d of the replicas do not exist, %d are starting, %d are unschedulable after %s",
				s.missing, s.starting, s.unschedulable, time.Since(begin).Round(time.Second))
		}
		if err := d.act(ctx, d.scaler.Step(0, s.pending, s.perNode, 0, s.moving())); err != nil {
			return err
		}
		if err := wait(ctx, tick); err != nil {
			return err
		}
	}
}

// staticNode is the name of an on-demand node that always exists, as in every real cluster. A
// spread over capacity types needs a node of each type from the begin.
const staticNode = "on-demand-static"

// placeNodes creates the nodes at the start of the window and waits until they are Ready. Otherwise
// the first pods would find no spot.
func (d *driver) placeNodes(ctx context.Context) error {
	begin := time.Now()
	if err := d.createNode(ctx, d.plan.node(staticNode, d.plan.Zones[0], lab.OnDemand)); err != nil {
		return err
	}
	var events []Event
	for _, node := range d.plan.Nodes {
		if node.Up == 0 && d.arm.Spot {
			events = append(events, Event{Kind: NodeUp, Node: node})
			d.waits.pool(node.Zone).nodes++ // the pools are calm at the start of the window
		}
	}
	if err := d.apply(ctx, events); err != nil {
		return err
	}
	for d.observer.status().startingNodes > 0 {
		if time.Since(begin) > placeTimeout {
			return fmt.Errorf("the first nodes are not Ready after %s", placeTimeout)
		}
		if err := wait(ctx, tick); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) createServices(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, s := range d.plan.Services {
		group.Go(func() error {
			deployments, budget := d.arm.objects(d.plan, s, d.scales)
			for _, deployment := range deployments {
				if _, err := d.client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("creating deployment %s: %w", deployment.Name, err)
				}
			}
			_, err := d.client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("creating the budget of %s: %w", s.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// replay applies the timeline until the end of the window, and measures.
func (d *driver) replay(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer d.drainer.wait()
	defer cancel()
	timeline := d.plan.Timeline(d.arm.Spot)
	d.recorder.Start()
	d.clock.SetRate(time.Now(), d.scales.Busy)
	reported := time.Time{}
	for {
		now := time.Now()
		at := d.clock.At(now)
		if now.Sub(reported) >= time.Second {
			reported = now
			d.report(at)
		}
		if at >= d.plan.Window.Length {
			return nil
		}
		due := 0
		for due < len(timeline) && timeline[due].At <= at {
			due++
		}
		if due > 0 {
			d.clock.SetRate(now, d.scales.Busy) // not the calm rate, because requests take time
			if err := d.apply(ctx, timeline[:due]); err != nil {
				return err
			}
			for _, e := range timeline[:due] {
				d.waits.event(e, now)
			}
			d.observer.touch()
			timeline = timeline[due:]
		}
		d.waits.observe(moment{at, now})
		s := d.observer.status()
		next := d.plan.Window.Length
		if len(timeline) > 0 {
			next = timeline[0].At
		}
		acted, err := d.reconcile(ctx, s, &next)
		if err != nil {
			return err
		}
		if due == 0 && !acted { // otherwise s is out of date
			d.pace(s, next)
		}
		// At the calm rate, a tick is several seconds of the trace.
		if err := wait(ctx, min(tick, max(d.clock.Real(time.Now(), next), time.Millisecond))); err != nil {
			return err
		}
	}
}

// reconcile runs the garbage collection, the autoscaler and the drain, in this order. It lowers
// next to the time of the autoscaler's next step. acted reports whether the autoscaler changed
// nodes.
func (d *driver) reconcile(ctx context.Context, s status, next *time.Duration) (acted bool, err error) {
	if err := d.collect(ctx); err != nil {
		return false, err
	}
	now := time.Now()
	actions := d.scaler.Step(d.clock.At(now), s.pending, s.perNode, d.plan.Settings.Provisioning, s.moving())
	*next = min(*next, actions.Next)
	if acted = len(actions.Start)+len(actions.Remove) > 0; acted {
		d.clock.SetRate(now, d.scales.Busy)
		if err := d.act(ctx, actions); err != nil {
			return false, err
		}
		d.observer.touch()
	}
	if d.arm.Controller {
		return acted, d.trigger(ctx, s)
	}
	return acted, d.drainer.drain(ctx, d.observer)
}

// act performs the autoscaler's actions.
func (d *driver) act(ctx context.Context, actions Actions) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, node := range actions.Start {
		group.Go(func() error { return d.createNode(ctx, d.plan.node(node.Name, node.Zone, lab.OnDemand)) })
	}
	for _, name := range actions.Remove {
		d.observer.remove(name)
		group.Go(func() error { return d.deleteNode(ctx, name) })
	}
	return group.Wait()
}

// pace sets the rate of the clock, or skips the time to the next event if the cluster has settled.
func (d *driver) pace(s status, next time.Duration) {
	now := time.Now()
	switch rate := d.rate(s, moment{d.clock.At(now), now}); {
	case rate > 0:
		d.clock.SetRate(now, rate)
	default:
		d.clock.SetRate(now, d.scales.Busy)
		d.clock.Jump(now, next)
	}
}

// rate returns the rate for a status. 0 means that the cluster has settled.
func (d *driver) rate(s status, now moment) float64 {
	quiet := now.real.Sub(s.changed)
	switch {
	case s.moving(), quiet < quietTime:
		return d.scales.Busy
	case s.onNoticed > 0 && (d.arm.Controller || d.drainer.isBusy() || quiet < quietBlocked+2*d.drainer.again):
		return d.scales.Busy
	case s.unschedulable > 0 && now.real.Sub(s.roomAdded) < quietUnschedulable:
		return d.scales.Busy
	case d.arm.Controller && s.unhealed && quiet < quietHeal:
		return d.scales.Busy
	case d.arm.Controller && s.returnable && quiet < quietReaction:
		return d.scales.Busy
	case d.arm.Controller && s.returnable:
		return d.returnRate(now, quiet)
	}
	return 0
}

// returnRate returns the rate while the controller has a replica to return to spot. After the end
// of a wait, and while the controller may back off, its own time elapses at the busy rate.
func (d *driver) returnRate(now moment, quiet time.Duration) float64 {
	switch rate, ended := d.waits.next(now); {
	case ended < quietReaction, rate == 0 && quiet < quietBackOff:
		return d.scales.Busy
	default:
		return min(rate, 4*d.scales.Calm) // with a higher rate, a tick would be minutes
	}
}

// triggerInterval is the real time between two events for the controller.
const triggerInterval = time.Second

// trigger causes an event for the controller while the driver waits for its next step. Without
// events the controller plans every 5 s, which is 5 minutes at the default calm rate. In a real
// cluster, heartbeats of kubelets are such events. The fake kubelets send none.
func (d *driver) trigger(ctx context.Context, s status) error {
	if !s.returnable && !s.unhealed || s.moving() || time.Since(d.beat) < triggerInterval {
		return nil
	}
	d.beat = time.Now()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, beatAnnotation, d.beat.UTC().Format(time.RFC3339Nano))
	_, err := d.client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("causing an event: %w", err)
	}
	return nil
}

// apply applies events in their order. Events of one kind run concurrently.
func (d *driver) apply(ctx context.Context, events []Event) error {
	for len(events) > 0 {
		same := 1
		for same < len(events) && events[same].Kind == events[0].Kind && events[same].At == events[0].At {
			same++
		}
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		for _, e := range events[:same] {
			group.Go(func() error { return d.applyOne(groupCtx, e) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		events = events[same:]
	}
	return nil
}

func (d *driver) applyOne(ctx context.Context, e Event) error {
	switch e.Kind {
	case NodeUp:
		return d.createNode(ctx, d.plan.node(e.Node.Name, e.Node.Zone, lab.Spot))
	case NodeNotice:
		return d.giveNotice(ctx, e.Node)
	case NodeDown:
		return d.reclaim(ctx, e.Node.Name)
	default:
		return d.scale(ctx, e.Service, e.Replicas)
	}
}

func (d *driver) createNode(ctx context.Context, node *corev1.Node) error {
	d.observer.expect(node.Name)
	if _, err := d.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating node %s: %w", node.Name, err)
	}
	return nil
}

func (d *driver) deleteNode(ctx context.Context, name string) error {
	if err := d.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// giveNotice sets the taint of a notice and the deadline in real time. All arms get both.
func (d *driver) giveNotice(ctx context.Context, node SpotNode) error {
	deadline := time.Now().Add(realTime(node.Down-d.clock.At(time.Now()), d.scales.Busy))
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := d.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.Spec.Taints = append(object.Spec.Taints, corev1.Taint{Key: noticeTaint, Effect: corev1.TaintEffectNoSchedule})
		object.Annotations[spot.InterruptionDeadlineAnnotation] = deadline.UTC().Format(time.RFC3339Nano)
		_, err = d.client.CoreV1().Nodes().Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("tainting node %s: %w", node.Name, err)
	}
	d.observer.notice(node.Name)
	return nil
}

// reclaim deletes a node. After that, collect deletes its pods, so that no replacement is scheduled
// to the node.
func (d *driver) reclaim(ctx context.Context, name string) error {
	d.observer.remove(name)
	return d.deleteNode(ctx, name)
}

// collect deletes the pods of deleted nodes without a grace period, also pods that were bound
// shortly before the deletion. No kubelet ends them.
func (d *driver) collect(ctx context.Context) error {
	return d.deletePods(ctx, d.observer.podsOn(func(node string) bool { return d.observer.removed[node] }))
}

func (d *driver) deletePods(ctx context.Context, pods []*corev1.Pod) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, pod := range pods {
		group.Go(func() error {
			err := d.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// scale changes the replicas of a service.
func (d *driver) scale(ctx context.Context, service string, replicas int) error {
	// First, because the watch may report a deleted pod before the request returns. The pod would
	// count as lost.
	d.observer.scale(d.clock.At(time.Now()), service, replicas)
	for name, n := range d.arm.deployments(d.plan, service, replicas) {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
		_, err := d.client.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("scaling deployment %s: %w", name, err)
		}
	}
	return nil
}

// wait returns after a real time, or with the cause of the end of ctx.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
