package replay

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// observer follows the pods and nodes of a cluster by watches. It passes each event to the recorder
// and answers what the cluster is busy with. It is safe for concurrent use.
type observer struct {
	arm      Arm
	plan     *Plan
	clock    *Clock
	recorder *Recorder
	services map[string]Service
	// scan is the real time after which the autoscaler considers an unschedulable pod.
	scan time.Duration
	// onDemand is the template of an on-demand node, for the affinity of pending pods.
	onDemand *corev1.Node

	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod
	nodes   map[string]*corev1.Node
	removed map[string]bool // spot nodes that the driver has removed
	noticed map[string]bool
	created map[string]bool // nodes that the driver creates and the watch has not reported
	desired map[string]int
	// unschedulable contains since when each unschedulable pod has been so, in real time.
	unschedulable map[types.UID]time.Time
	changed       time.Time // the last event of a watch or change by the driver
	// roomAdded is the last time at which a node was added or a pod was deleted.
	roomAdded time.Time
}

func newObserver(arm Arm, p *Plan, scan time.Duration, clock *Clock, recorder *Recorder) *observer {
	o := &observer{
		arm: arm, scan: scan, plan: p, clock: clock, recorder: recorder, services: map[string]Service{}, onDemand: p.node("template", "",
			lab.OnDemand),
		pods: map[types.UID]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
		removed: map[string]bool{}, noticed: map[string]bool{}, created: map[string]bool{},
		desired: map[string]int{}, unschedulable: map[types.UID]time.Time{}, changed: time.Now(),
	}
	for _, s := range p.Services {
		o.services[s.Name], o.desired[s.Name] = s, s.Desired()
	}
	return o
}

// watch starts the watches and returns when their caches are full. They end with stop.
func (o *observer) watch(client kubernetes.Interface, stop <-chan struct{}) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, nodes := factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()
	if _, err := pods.AddEventHandler(handler(o.podEvent)); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := nodes.AddEventHandler(handler(o.nodeEvent)); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	factory.Start(stop)
	if !cache.WaitForCacheSync(stop, pods.HasSynced, nodes.HasSynced) {
		return fmt.Errorf("watching pods and nodes: interrupted")
	}
	return nil
}

// handler returns an event handler that calls a function for every event.
func handler[T any](event func(now time.Time, object T, gone bool)) cache.ResourceEventHandler {
	return informer.Handler[T]{
		Add:    func(object T) { event(time.Now(), object, false) },
		Update: func(_, object T) { event(time.Now(), object, false) },
		Delete: func(object T) { event(time.Now(), object, true) },
	}
}

func (o *observer) podEvent(now time.Time, pod *corev1.Pod, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	service := pod.Labels[serviceLabel]
	if _, ok := o.services[service]; !ok {
		return
	}
	o.changed = now
	at := o.clock.At(now)
	o.recorder.Pod(at, podState(pod))
	if gone || !isUnschedulable(pod) {
		delete(o.unschedulable, pod.UID)
	} else if _, known := o.unschedulable[pod.UID]; !known {
		o.unschedulable[pod.UID] = now
	}
	if gone {
		delete(o.pods, pod.UID)
		o.roomAdded = now
		o.recorder.PodGone(at, string(pod.UID), o.removed[pod.Spec.NodeName])
		return
	}
	o.pods[pod.UID] = pod
}

func (o *observer) nodeEvent(now time.Time, node *corev1.Node, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.nodes[node.Name]
	delete(o.created, node.Name)
	if gone || before == nil || lab.IsUsable(node) != lab.IsUsable(before) {
		o.changed = now // other changes of a node do not affect pods
	}
	if !gone && lab.IsUsable(node) && (before == nil || !lab.IsUsable(before)) {
		o.roomAdded = now
	}
	if gone {
		delete(o.nodes, node.Name)
		delete(o.noticed, node.Name)
		o.recorder.Node(o.clock.At(now), node.Name, "")
		return
	}
	o.nodes[node.Name] = node
	o.recorder.Node(o.clock.At(now), node.Name, node.Labels[lab.CapacityLabel])
}

// podState returns the fields that are measured.
func podState(pod *corev1.Pod) PodState {
	state := PodState{UID: string(pod.UID), Service: pod.Labels[serviceLabel], Node: pod.Spec.NodeName, Ready: isReady(pod)}
	_, state.Released = pod.Annotations[spot.ReleasedAnnotation]
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			state.Evicted = state.Evicted || c.Reason == "EvictionByEvictionAPI"
			state.Deleted = state.Deleted || c.Reason == spot.ReasonInterruption
		}
	}
	return state
}

// isReady reports whether a Service would send traffic to the pod.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// isUnschedulable reports whether a scheduler has found no node for the pod.
func isUnschedulable(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// scale records the desired replicas of a service.
func (o *observer) scale(at time.Duration, service string, replicas int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.desired[service] = replicas
	o.changed = time.Now()
	o.recorder.Scale(at, service, replicas)
}

// notice records that a node got notice, and remove that the driver removes a node.
func (o *observer) notice(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noticed[node], o.changed = true, time.Now()
}

func (o *observer) remove(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removed[node], o.changed = true, time.Now()
	delete(o.noticed, node)
}

// expect records that the driver creates a node. The node counts as starting from now on.
func (o *observer) expect(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.created[node], o.changed = true, time.Now()
}

// touch records that the driver has changed the cluster. The watches may report it later.
func (o *observer) touch() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = time.Now()
}

// podsOn returns the pods on nodes with this property.
func (o *observer) podsOn(nodes func(name string) bool) []*corev1.Pod {
	o.mu.Lock()
	defer o.mu.Unlock()
	var pods []*corev1.Pod
	for _, uid := range sortedKeys(o.pods) {
		if pod := o.pods[uid]; pod.Spec.NodeName != "" && nodes(pod.Spec.NodeName) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// status is what the cluster is busy with.
type status struct {
	// starting pods are bound and not ready. terminating ones are being deleted, and released ones
	// replaced. unassigned ones are not bound, and no scheduler has reported them as unschedulable.
	// missing is the number of replicas for which no pod exists, and surplus that of pods beyond
	// the desired replicas.
	starting, terminating, released, unassigned, missing, surplus int
	// startingNodes are nodes that exist but are not Ready. fresh is the number of pending pods for
	// which the autoscaler may not add a node yet.
	startingNodes, fresh int
	// onNoticed run on nodes with notice.
	onNoticed int
	// unschedulable are not bound. pending are those among them that a new on-demand node would
	// help.
	unschedulable int
	pending       []PendingPod
	// perNode are the pods of each node.
	perNode map[string]int
	// returnable reports that a replica beyond the floor runs on on-demand although a spot node has
	// room, and unhealed that a service has too many replicas on spot.
	returnable, unhealed bool
	// changed is the time of the last event, and roomAdded that of the last event that added room.
	changed, roomAdded time.Time
}

// moving reports whether pods change without a further event of the plan.
func (s status) moving() bool {
	return s.starting+s.terminating+s.released+s.unassigned+s.missing+s.surplus+s.startingNodes+s.fresh > 0
}

// status returns the current status.
func (o *observer) status() status {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := status{perNode: map[string]int{}, changed: o.changed, roomAdded: o.roomAdded, startingNodes: len(o.created)}
	counts := map[string]*placed{}
	for name := range o.services {
		counts[name] = &placed{}
	}
	free := o.freeSpot()
	for _, pod := range o.pods {
		service := counts[pod.Labels[serviceLabel]]
		o.countPod(&s, service, free, pod)
	}
	for name, c := range counts {
		s.missing += max(0, o.desired[name]-c.live)
		s.surplus += max(0, c.live-o.desired[name])
	}
	for _, node := range o.nodes {
		if !lab.IsUsable(node) {
			s.startingNodes++
		}
	}
	o.addPending(&s, counts)
	for name, c := range counts {
		floor := o.plan.Floor.Of(o.desired[name])
		s.unhealed = s.unhealed || c.spot > o.desired[name]-floor
		s.returnable = s.returnable || c.onDemand > floor && fits(free, o.services[name])
	}
	return s
}

// addPending adds the unschedulable pods that a new on-demand node would help. Like the scan
// interval of real autoscalers, scan is the real time for which a pod must have been unschedulable.
// Until then, and while a node starts that the pod may fit, the pod is fresh.
func (o *observer) addPending(s *status, counts map[string]*placed) {
	for _, uid := range sortedKeys(o.unschedulable) {
		pod := o.pods[uid]
		if pod.DeletionTimestamp != nil || !o.helps(pod, counts[pod.Labels[serviceLabel]]) {
			continue
		}
		fresh := s.startingNodes > 0 || time.Since(o.unschedulable[uid]) < o.scan
		if fresh {
			s.fresh++
		}
		service := o.services[pod.Labels[serviceLabel]]
		s.pending = append(s.pending, PendingPod{UID: string(uid), CPUMilli: service.CPUMilli, MemoryMiB: service.MemoryMiB, Fresh: fresh})
	}
}

// placed counts the pods of a service: live ones, which are not released, by capacity type.
type placed struct{ live, spot, onDemand int }

// countPod adds a pod to the status and to the counts of its service.
func (o *observer) countPod(s *status, c *placed, free map[string]*room, pod *corev1.Pod) {
	node := pod.Spec.NodeName
	_, released := pod.Annotations[spot.ReleasedAnnotation]
	switch {
	case pod.DeletionTimestamp != nil:
		s.terminating++
	case released:
		s.released++
	default:
		c.live++
		if capacity := o.capacity(node); capacity == lab.Spot {
			c.spot++
		} else if capacity != "" {
			c.onDemand++
		}
	}
	if node == "" {
		if isUnschedulable(pod) {
			s.unschedulable++
		} else if pod.DeletionTimestamp == nil {
			s.unassigned++
		}
		return
	}
	s.perNode[node]++
	if o.noticed[node] {
		s.onNoticed++
	}
	if pod.DeletionTimestamp == nil && !isReady(pod) {
		s.starting++
	}
	if room := free[node]; room != nil {
		service := o.services[pod.Labels[serviceLabel]]
		room.use(service.CPUMilli, service.MemoryMiB)
	}
}

// capacity returns the capacity type of a node; "" if the node does not exist.
func (o *observer) capacity(node string) string {
	if n := o.nodes[node]; n != nil {
		return n.Labels[lab.CapacityLabel]
	}
	return ""
}

// freeSpot returns the room of the spot nodes without notice, without pods.
func (o *observer) freeSpot() map[string]*room {
	free := map[string]*room{}
	for name, node := range o.nodes {
		if node.Labels[lab.CapacityLabel] == lab.Spot && !o.noticed[name] {
			empty := o.plan.newRoom()
			free[name] = &empty
		}
	}
	return free
}

// fits reports whether a replica fits one of the nodes.
func fits(free map[string]*room, replica Service) bool {
	for _, room := range free {
		if room.fits(replica.CPUMilli, replica.MemoryMiB) {
			return true
		}
	}
	return false
}

// helps reports whether the pod could run on a new on-demand node: its affinity permits it, and
// with a hard spread the skew does.
func (o *observer) helps(pod *corev1.Pod, c *placed) bool {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(o.onDemand); err != nil || !ok {
		return false
	}
	if !o.arm.Spread {
		return true
	}
	spotExists := slices.ContainsFunc(slices.Collect(maps.Values(o.nodes)),
		func(n *corev1.Node) bool { return n.Labels[lab.CapacityLabel] == lab.Spot })
	return !spotExists || c.onDemand+1-min(c.spot, c.onDemand+1) <= 1
}
