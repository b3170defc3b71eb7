package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

const (
	// notice is the time between AWS's notice and the reclaim of a spot node. The AWS node
	// termination handler sets noticeTaint at the notice.
	notice      = 2 * time.Minute
	noticeTaint = "aws-node-termination-handler/spot-itn"
	// upgrade is the time after the notice for which the on-demand nodes stay cordoned.
	upgrade = 4 * time.Second
	// fallbackAfter is set on the singletons of the second act. The default, five minutes, is too
	// long for a demo.
	fallbackAfter = "1s"
	// calm replaces the controller's calmPeriod and pauseAfterInterruption, for the same reason.
	calm = 5 * time.Second
	// recoverTimeout is the time in which all replicas of services become ready again after the
	// pool was deleted. Some are evicted only when others are ready.
	recoverTimeout = 3 * podStartup
	// returnTimeout limits the return to spot.
	returnTimeout = 90 * time.Second
)

// scarceNodes returns the nodes of the second act: the on-demand nodes of the first act and fewer
// spot nodes. One pool has nearly half of the spot capacity, so the other pools have no room for
// all of its pods. That pool is the only spot pool in its zone.
func scarceNodes() []lab.NodeSpec {
	nodes := slices.DeleteFunc(lab.DefaultNodes(), func(n lab.NodeSpec) bool { return n.Capacity != lab.OnDemand })
	return append(nodes, lab.Expand([]lab.NodeGroup{
		{NamePrefix: "spot-m5-a-", Count: 4, Capacity: lab.Spot, InstanceType: "m5.xlarge", Zone: "us-east-1a"},
		{NamePrefix: "spot-m5a-b-", Count: 2, Capacity: lab.Spot, InstanceType: "m5a.xlarge", Zone: "us-east-1b"},
		{NamePrefix: "spot-r5-b-", Count: 1, Capacity: lab.Spot, InstanceType: "r5.xlarge", Zone: "us-east-1b"},
		{NamePrefix: "spot-m6i-c-", Count: 2, Capacity: lab.Spot, InstanceType: "m6i.xlarge", Zone: "us-east-1c"},
	})...)
}

// largestPool returns the nodes of the spot pool with the most nodes. If several pools have the
// same number, it returns the first.
func largestPool(nodes []lab.NodeSpec) []lab.NodeSpec {
	type pool struct{ instanceType, zone string }
	pools := map[pool][]lab.NodeSpec{}
	var largest []lab.NodeSpec
	for _, n := range nodes {
		if n.Capacity != lab.Spot {
			continue
		}
		p := pool{n.InstanceType, n.Zone}
		if pools[p] = append(pools[p], n); len(pools[p]) > len(largest) {
			largest = pools[p]
		}
	}
	return largest
}

// reclaimed is the result of the second act.
type reclaimed struct {
	// Pool contains the nodes that got notice.
	Pool []lab.NodeSpec
	// Shortened lists the changed settings of the controller, as "name: shipped value".
	Shortened []string
	// FellBack lists the singletons that ran on the pool.
	FellBack []string
	// Before, During and After count the replicas on spot and on-demand: at the notice, after the
	// pool was deleted, and after the pool was used again.
	Before, During, After map[string]result
	// AllOnDemandUSD is the hourly cost of the services if all of their replicas ran on on-demand
	// nodes.
	AllOnDemandUSD float64
	// Notice is the time of the notice.
	Notice time.Time
	// Left contains the pods that left the pool.
	Left []exit
	// Stranded counts the pods that were still on the pool at the deadline, by workload.
	Stranded map[string]int
	// Returned contains the pods that left on-demand nodes after the pool returned. Back is the
	// time that this took.
	Returned []exit
	Back     time.Duration
	// Misplaced is the number of replicas on on-demand that were missing or in excess at the end,
	// by workload.
	Misplaced map[string]int
	// Outages covers the time from the notice to the end.
	Outages map[string]outage
	// OnNotice and OnReturn summarize the events after the notice and after the pool's return.
	OnNotice, OnReturn []eventSummary
}

// reclaim runs the second act: the largest spot pool gets notice, the controller drains it, the
// demo deletes it and later recreates it.
func (d *demo) reclaim(ctx context.Context) (reclaimed, error) {
	r := reclaimed{Pool: largestPool(scarceNodes())}
	var err error
	if r.AllOnDemandUSD, err = d.allOnDemandUSD(services()); err != nil {
		return r, err
	}
	d.progress("act 2: fewer spot nodes, nearly half in one pool, %s; and spot-controller", poolName(r.Pool))
	if err := d.completeNodes(ctx, scarceNodes()); err != nil {
		return r, err
	}
	if err := d.startController(ctx, &r); err != nil {
		return r, err
	}
	if err := d.settle(ctx, r.Pool[0].Zone); err != nil {
		return r, err
	}
	if r.Before, err = d.measure(ctx); err != nil {
		return r, err
	}
	if err := d.drainPool(ctx, &r); err != nil {
		return r, err
	}
	if r.During, err = d.measure(ctx); err != nil {
		return r, err
	}
	if err := d.recreatePool(ctx, &r); err != nil {
		return r, err
	}
	r.Outages = d.recorder.end(time.Now())
	if r.After, err = d.measure(ctx); err != nil {
		return r, err
	}
	d.progress("done")
	return r, nil
}

// settle places the workloads. The singletons need the zone of the pool and start while the
// on-demand nodes are cordoned, so they fall back to the pool.
func (d *demo) settle(ctx context.Context, zone string) error {
	var others, singletons []workload
	for _, w := range workloads {
		if w.replicas == 1 {
			singletons = append(singletons, w)
		} else {
			others = append(others, w)
		}
	}
	if err := d.place(ctx, others, placement{schedulerName: schedulerName}); err != nil {
		return err
	}
	if err := d.cordon(ctx, true); err != nil {
		return err
	}
	d.progress("the on-demand nodes are cordoned, as for an upgrade; meanwhile %s start in %s", list(names(singletons)), zone)
	return d.place(ctx, singletons, placement{schedulerName: schedulerName, zone: zone, fallbackAfter: fallbackAfter})
}

// place creates these workloads and returns when all of their replicas are ready.
func (d *demo) place(ctx context.Context, these []workload, p placement) error {
	if err := d.create(ctx, these, p); err != nil {
		return err
	}
	whole, err := d.waitUntilWhole(ctx, these, placeTimeout)
	if err == nil && !whole {
		err = fmt.Errorf("not all replicas of %s are ready after %s", list(names(these)), placeTimeout)
	}
	return err
}

// startController starts the controller with shorter times than in its shipped configuration.
func (d *demo) startController(ctx context.Context, r *reclaimed) (err error) {
	d.controller, err = d.plane.StartController(ctx, lab.ControllerOptions{Edit: func(config map[string]any) {
		rebalance, ok := config["rebalance"].(map[string]any)
		if !ok {
			rebalance = map[string]any{}
			config["rebalance"] = rebalance
		}
		for _, name := range []string{"calmPeriod", "pauseAfterInterruption"} {
			r.Shortened = append(r.Shortened, fmt.Sprintf("%s: %v", name, rebalance[name]))
			rebalance[name] = calm.String()
		}
	}})
	return err
}

// drainPool gives the pool notice. It deletes the nodes when they are empty or at the deadline.
func (d *demo) drainPool(ctx context.Context, r *reclaimed) error {
	doomed := nodeNames(r.Pool)
	placed := d.exits.on(doomed)
	for _, w := range workloads {
		if w.replicas == 1 && placed[w.name] > 0 {
			r.FellBack = append(r.FellBack, w.name)
		}
	}
	if len(r.FellBack) == 0 {
		return errors.New("no singleton fell back to spot")
	}
	total := count(placed)
	if err := d.plane.SetPodStartup(podStartup); err != nil {
		return err
	}
	d.recorder.start(time.Now(), names(workloads))
	r.Notice = time.Now()
	if err := d.giveNotice(ctx, doomed); err != nil {
		return err
	}
	d.progress("notice: the %d nodes of %s are reclaimed in %.0f s; they run %d pods; %s fell back to spot",
		len(doomed), poolName(r.Pool), notice.Seconds(), total, list(r.FellBack))
	isEmpty, err := d.awaitEmpty(ctx, r, doomed, total)
	if err != nil {
		return err
	}
	r.Left, r.Stranded = d.exits.from(doomed, r.Notice), d.exits.on(doomed)
	if isEmpty {
		d.progress("all %d pods have left after %.1f s; the nodes are empty and are deleted now", total, r.emptyAfter().Seconds())
	} else {
		d.progress("%d pods are still on the pool at the deadline and are deleted with their nodes", count(r.Stranded))
	}
	pods, err := d.deleteNodes(ctx, doomed)
	if err != nil {
		return err
	}
	if err := d.waitUntilSeen(ctx, pods); err != nil {
		return err
	}
	_, err = d.until(ctx, recoverTimeout, func() (bool, string) {
		n := d.notReady()
		return n == 0, fmt.Sprintf("%d replicas of services are not ready", n)
	})
	if err != nil {
		return err
	}
	r.OnNotice, err = d.events(ctx, r.Notice)
	return err
}

// recreatePool creates as many new nodes of the pool as it had. It waits until on-demand runs no
// more replicas than the floors.
func (d *demo) recreatePool(ctx context.Context, r *reclaimed) error {
	if err := d.plane.SetPodStartup(quickStartup); err != nil {
		return err
	}
	back := time.Now()
	pool := slices.Clone(r.Pool)
	for i := range pool {
		pool[i].Name += "-new"
	}
	if err := d.plane.CreateNodes(ctx, pool...); err != nil {
		return err
	}
	onDemand := map[string]bool{}
	for _, n := range scarceNodes() {
		if n.Capacity == lab.OnDemand {
			onDemand[n.Name] = true
		}
	}
	misplaced := func() map[string]int { return floorDifferences(d.exits.on(onDemand)) }
	total := count(misplaced())
	d.progress("the pool is back, with %d new nodes; %d replicas are on on-demand because spot has no room", len(pool), total)
	_, err := d.until(ctx, returnTimeout, func() (bool, string) {
		n := count(misplaced())
		return n == 0 && d.notReady() == 0, fmt.Sprintf("%d of %d have yet to return", n, total)
	})
	if err != nil {
		return err
	}
	r.Back, r.Returned, r.Misplaced = time.Since(back), d.exits.from(onDemand, back), misplaced()
	r.OnReturn, err = d.events(ctx, back)
	return err
}

// notReady returns how many replicas of services are not ready.
func (d *demo) notReady() int {
	n := 0
	for _, w := range services() {
		n += max(0, w.replicas-d.recorder.readyReplicas(w.name))
	}
	return n
}

// floorDifferences returns the difference between the replicas on on-demand and the floor, by
// workload. It omits Jobs, because their pods stay on the nodes on which they started.
func floorDifferences(onDemand map[string]int) map[string]int {
	differ := map[string]int{}
	for _, w := range services() {
		if n := onDemand[w.name] - w.floor; n != 0 {
			differ[w.name] = max(n, -n)
		}
	}
	return differ
}

// cordon cordons or uncordons the on-demand nodes. It returns when the node lifecycle controller
// has updated their taints.
func (d *demo) cordon(ctx context.Context, unschedulable bool) error {
	nodes, err := d.listNodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if isSpot(node) {
			continue
		}
		before := node.DeepCopy()
		node.Spec.Unschedulable = unschedulable
		if err := d.client.Patch(ctx, node, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("cordoning node %s: %w", node.Name, err)
		}
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, placeTimeout, true, func(ctx context.Context) (bool, error) {
		nodes, err := d.listNodes(ctx)
		for _, node := range nodes {
			tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
			if !isSpot(node) && tainted != unschedulable {
				return false, nil
			}
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the taints of cordoned nodes: %w", err)
	}
	return nil
}

// giveNotice sets the taint that the AWS node termination handler sets at a notice.
func (d *demo) giveNotice(ctx context.Context, names map[string]bool) error {
	group, ctx := errgroup.WithContext(ctx)
	for name := range names {
		group.Go(func() error {
			err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				var node corev1.Node
				if err := d.client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
					return err
				}
				before := node.DeepCopy()
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: noticeTaint, Effect: corev1.TaintEffectNoSchedule})
				return d.client.Patch(ctx, &node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			})
			if err != nil {
				return fmt.Errorf("tainting node %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// eventSummary summarizes the events with one reason.
type eventSummary struct {
	Reason string
	// Objects is the number of objects with such an event. Object and Note belong to the first of
	// these objects, by name.
	Objects      int
	Object, Note string
}

// shown lists the reasons of the events that the demo shows, in order. These events are on nodes
// and pods, and each gives its cause.
var shown = []string{
	spot.ReasonInterruption, spot.ReasonNoRoom, spot.ReasonReleased, spot.ReasonRestored, spot.ReasonBlocked, spot.ReasonEvicted,
	spot.ReasonDeleted, spot.ReasonPodsLost,
}

// events returns a summary of the events since a time.
func (d *demo) events(ctx context.Context, since time.Time) ([]eventSummary, error) {
	var list eventsv1.EventList
	if err := d.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	return summary(slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.EventTime.Time.Before(since) })), nil
}

// summary summarizes the events by reason.
func summary(events []eventsv1.Event) []eventSummary {
	var all []eventSummary
	for _, reason := range shown {
		first := map[string]string{} // object -> note
		for _, e := range events {
			if object := e.Regarding.Kind + " " + e.Regarding.Name; e.Reason == reason && first[object] == "" {
				first[object] = e.Note
			}
		}
		t := eventSummary{Reason: reason, Objects: len(first)}
		for object, note := range first {
			if t.Object == "" || object < t.Object {
				t.Object, t.Note = object, note
			}
		}
		if t.Objects > 0 {
			all = append(all, t)
		}
	}
	return all
}

// emptyAfter returns the time from the notice until the last pod left.
func (r reclaimed) emptyAfter() time.Duration {
	var last time.Duration
	for _, record := range r.Left {
		last = max(last, record.At.Sub(r.Notice))
	}
	return last
}

// services returns the workloads with a floor.
func services() []workload {
	return slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return w.floor == 0 })
}

func poolName(pool []lab.NodeSpec) string { return pool[0].InstanceType + " in " + pool[0].Zone }

func nodeNames(nodes []lab.NodeSpec) map[string]bool {
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.Name] = true
	}
	return names
}

func count(pods map[string]int) int {
	n := 0
	for _, number := range pods {
		n += number
	}
	return n
}

// list enumerates words: "a, b and c".
func list(words []string) string {
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " and " + words[last]
	}
	return strings.Join(words, "")
}
