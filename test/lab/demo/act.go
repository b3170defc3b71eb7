package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

const (
	// placeTimeout is the time in which the replicas must become ready. The report does not count
	// replicas that are not ready by then.
	placeTimeout = 30 * time.Second
	// watchFor is the time for which the demo watches the workloads after the loss, unless all
	// replicas are ready earlier.
	watchFor = podStartup + 4*time.Second
	// parallel is the number of concurrent requests when many objects are created or deleted.
	parallel = 32
)

// result is what an act measured for one workload.
type result struct {
	OnSpot   int     // replicas on spot nodes before the loss
	OnDemand int     // replicas on other nodes before the loss
	HourUSD  float64 // cost of all replicas per hour, by hourlyCost
	Outage   outage
}

// act places all workloads on the full set of nodes, deletes every spot node, and returns a
// result for each workload, by name. It deletes the workloads at the end.
func (d *demo) act(ctx context.Context, p placement) (map[string]result, error) {
	if err := d.completeNodes(ctx, d.nodes); err != nil {
		return nil, err
	}
	if err := d.create(ctx, workloads, p); err != nil {
		return nil, err
	}
	if _, err := d.waitUntilWhole(ctx, workloads, placeTimeout); err != nil {
		return nil, err
	}
	if err := d.plane.SetPodStartup(podStartup); err != nil {
		return nil, err
	}
	results, err := d.measure(ctx)
	if err != nil {
		return nil, err
	}

	d.recorder.start(time.Now(), names(workloads))
	nodes, pods, err := d.deleteSpot(ctx)
	if err != nil {
		return nil, err
	}
	d.progress("%d spot nodes deleted with %d pods; watching for up to %.0f s", nodes, len(pods), watchFor.Seconds())
	if err := d.waitUntilSeen(ctx, pods); err != nil {
		return nil, err
	}
	if _, err := d.waitUntilWhole(ctx, workloads, watchFor); err != nil {
		return nil, err
	}
	for name, outage := range d.recorder.end(time.Now()) {
		r := results[name]
		r.Outage = outage
		results[name] = r
	}
	if err := d.plane.SetPodStartup(quickStartup); err != nil {
		return nil, err
	}
	return results, d.clear(ctx)
}

// create creates the objects of the workloads.
func (d *demo) create(ctx context.Context, these []workload, p placement) error {
	for _, w := range these {
		for _, object := range w.objects(p) {
			if err := d.client.Create(ctx, object); err != nil {
				return fmt.Errorf("creating %s: %w", w.name, err)
			}
		}
	}
	return nil
}

// until calls check until it is done or limit has passed. It prints the progress when that
// changes, at most once a second. It is not an error if check is not done by then. It is an error
// if the controller was started but no longer runs.
func (d *demo) until(ctx context.Context, limit time.Duration, check func() (done bool, progress string)) (done bool, err error) {
	printed, last := time.Now(), ""
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		if d.controller != nil && d.controller.Err() != nil {
			return false, d.controller.Err()
		}
		var progress string
		if done, progress = check(); !done && progress != last && time.Since(printed) > time.Second {
			d.progress("%s", progress)
			printed, last = time.Now(), progress
		}
		return done, nil
	})
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil && !wait.Interrupted(err):
		return false, err
	}
	return done, nil
}

// waitUntilWhole waits until every replica of the workloads is ready or limit has passed. It
// prints the number of ready replicas.
func (d *demo) waitUntilWhole(ctx context.Context, these []workload, limit time.Duration) (whole bool, err error) {
	wanted := 0
	for _, w := range these {
		wanted += w.replicas
	}
	progress := func() (int, string) {
		n := 0
		for _, w := range these {
			n += min(d.recorder.readyReplicas(w.name), w.replicas)
		}
		return n, fmt.Sprintf("%d of %d replicas are ready", n, wanted)
	}
	whole, err = d.until(ctx, limit, func() (bool, string) {
		n, text := progress()
		return n == wanted, text
	})
	switch {
	case err != nil:
		return false, err
	case whole:
		d.progress("all %d replicas are ready", wanted)
	default:
		_, text := progress()
		d.progress("%s after %.0f s", text, limit.Seconds())
	}
	return whole, nil
}

// waitUntilSeen waits until the watch has reported the deletion of the pods. Before that, the
// deleted pods still count as ready.
func (d *demo) waitUntilSeen(ctx context.Context, pods []client.Object) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, placeTimeout, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(pods, func(pod client.Object) bool {
			return d.recorder.isReady(pod.GetLabels()[workloadLabel], pod.GetUID())
		}), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the watch to report the deleted pods: %w", err)
	}
	return nil
}

// measure returns the number of replicas on spot and on-demand nodes, and their cost.
func (d *demo) measure(ctx context.Context) (map[string]result, error) {
	nodes, err := d.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := d.listPods(ctx)
	if err != nil {
		return nil, err
	}
	results := map[string]result{}
	for _, pod := range pods {
		node, ok := nodes[pod.Spec.NodeName]
		if !ok {
			continue // not bound yet
		}
		name := pod.Labels[workloadLabel]
		r := results[name]
		cost, err := hourlyCost(pod.Spec.Containers[0].Resources.Requests, node)
		if err != nil {
			return nil, err
		}
		r.HourUSD += cost
		if isSpot(node) {
			r.OnSpot++
		} else {
			r.OnDemand++
		}
		results[name] = r
	}
	return results, nil
}

// allOnDemandUSD returns the hourly cost of all replicas of the workloads on the on-demand
// nodes, which are of one type.
func (d *demo) allOnDemandUSD(these []workload) (float64, error) {
	for _, spec := range d.nodes {
		if spec.Capacity != lab.OnDemand {
			continue
		}
		total := 0.0
		for _, w := range these {
			cost, err := hourlyCost(w.requests(), spec.Node())
			if err != nil {
				return 0, err
			}
			total += cost * float64(w.replicas)
		}
		return total, nil
	}
	return 0, fmt.Errorf("the demo has no on-demand node")
}

// deleteSpot deletes every spot Node and its pods. It returns the number of nodes and the pods.
func (d *demo) deleteSpot(ctx context.Context) (nodes int, lostPods []client.Object, err error) {
	all, err := d.listNodes(ctx)
	if err != nil {
		return 0, nil, err
	}
	spot := map[string]bool{}
	for name, node := range all {
		if isSpot(node) {
			spot[name] = true
		}
	}
	lostPods, err = d.deleteNodes(ctx, spot)
	return len(spot), lostPods, err
}

// deleteNodes deletes these Nodes and their pods at once, without a grace period. It returns the
// pods.
func (d *demo) deleteNodes(ctx context.Context, names map[string]bool) (lostPods []client.Object, err error) {
	list, err := d.listPods(ctx)
	if err != nil {
		return nil, err
	}
	var lostNodes []client.Object
	for name := range names {
		lostNodes = append(lostNodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, pod := range list {
		if names[pod.Spec.NodeName] {
			lostPods = append(lostPods, &pod)
		}
	}
	// Delete the nodes first, so that no replacement is scheduled to them.
	if err := d.deleteAll(ctx, lostNodes); err != nil {
		return nil, err
	}
	return lostPods, d.deleteAll(ctx, lostPods)
}

// clear deletes the workloads and waits until no pod is left.
func (d *demo) clear(ctx context.Context) error {
	var objects []client.Object
	for _, w := range workloads {
		objects = append(objects, w.objects(placement{})...)
	}
	if err := d.deleteAll(ctx, objects); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, placeTimeout, true, func(ctx context.Context) (bool, error) {
		pods, err := d.listPods(ctx)
		if err != nil || len(pods) == 0 {
			return err == nil, err
		}
		// No kubelet ends a pod that was bound to a node shortly before the node was deleted.
		var objects []client.Object
		for _, pod := range pods {
			objects = append(objects, &pod)
		}
		return false, d.deleteAll(ctx, objects)
	})
	if err != nil {
		return fmt.Errorf("waiting for the deletion of the pods: %w", err)
	}
	return nil
}

// completeNodes creates the nodes that do not exist.
func (d *demo) completeNodes(ctx context.Context, nodes []lab.NodeSpec) error {
	there, err := d.listNodes(ctx)
	if err != nil {
		return err
	}
	var missing []lab.NodeSpec
	for _, spec := range nodes {
		if _, ok := there[spec.Name]; !ok {
			missing = append(missing, spec)
		}
	}
	return d.plane.CreateNodes(ctx, missing...)
}

func (d *demo) deleteAll(ctx context.Context, objects []client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, object := range objects {
		group.Go(func() error {
			err := d.client.Delete(ctx, object, &client.DeleteOptions{
				GracePeriodSeconds: ptr.To[int64](0),
				PropagationPolicy:  ptr.To(metav1.DeletePropagationBackground),
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting %s: %w", object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (d *demo) listNodes(ctx context.Context) (map[string]*corev1.Node, error) {
	var list corev1.NodeList
	if err := d.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := map[string]*corev1.Node{}
	for i := range list.Items {
		nodes[list.Items[i].Name] = &list.Items[i]
	}
	return nodes, nil
}

func (d *demo) listPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := d.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list.Items, nil
}

func isSpot(node *corev1.Node) bool { return node.Labels[lab.CapacityLabel] == lab.Spot }

func names(these []workload) []string {
	var all []string
	for _, w := range these {
		all = append(all, w.name)
	}
	return all
}
