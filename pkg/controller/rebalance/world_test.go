package rebalance_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var start = clustertest.Now

// world is a simulated cluster: nodes have slots, workload controllers replace pods immediately,
// and the scheduler uses package decision.
type world struct {
	now          time.Time
	nodes        []*testNode
	workloads    []*testWorkload
	replacements int
	events       []node.Event // since the last plan
}

type testNode struct {
	name  string
	facts decision.Node
	// disruption is nil for the default of the signal's class.
	disruption *node.Disruption
	mutate     func(*v1.Node) // changes the Node; nil for no change
	slots      int64
	created    time.Time
	unready    bool
	taints     []v1.Taint
	zone       string
}

type testWorkload struct {
	name, kind     string
	desired, floor int
	pods           []*pod // of all revisions
	rollingOut     bool
	paused         bool
	keepsScheduler bool
	uncreated      int32 // pods that the first ReplicaSet has not created yet
	unmanaged      bool
	template       string                           // the revision of a StatefulSet
	recreated      string                           // changes its UID
	leaders        string                           // the workload of the leaders, if its pods are a group
	settings       func(*decision.WorkloadSettings) // changes the settings; nil for no change
}

type pod struct {
	name         string
	revision     int
	ordinal      int
	slots        int64
	node         *testNode // nil while it waits
	created      time.Time
	unready      bool
	released     string    // the reason; empty if it is not released
	releasedAt   time.Time // zero for now
	orphaned     bool      // whether the workload that it was released from is gone
	terminating  bool
	ends         time.Time // the end of a terminating pod's grace period; zero for now
	annotations  map[string]string
	onlySpot     bool
	onlyOnDemand bool
	spread       bool // whether it has a hard topology spread constraint
	priority     int32
	nominated    string
	port         int32
	scratch      bool   // whether it has an emptyDir
	apartFrom    string // the workload that its anti-affinity excludes
	apartBy      string // the topology key of its anti-affinity
}

// newWorld creates a cluster from lines in the notation of clustertest. It reads nodes with their
// capacity type and CPU, as slots, and workloads with floors ("min") and the places of pods. All
// are an hour old. The ordinal of a pod is its index in the line.
func newWorld(lines ...string) *world {
	w := &world{now: start}
	for _, object := range clustertest.Objects(strings.Join(lines, "\n")) {
		switch object := object.(type) {
		case *v1.Node:
			w.addNode(object.Name, object.Labels[spot.CapacityLabel], object.Status.Allocatable.Cpu().Value())
		case *appsv1.Deployment:
			w.addWorkload("Deployment", object, *object.Spec.Replicas)
		case *appsv1.StatefulSet:
			w.addWorkload("StatefulSet", object, *object.Spec.Replicas)
		case *batchv1.Job:
			w.addWorkload("Job", object, *object.Spec.Parallelism)
		case *v1.Pod:
			w.addPod(object)
		}
	}
	return w
}

func (w *world) addWorkload(kind string, object metav1.Object, desired int32) *testWorkload {
	floor, err := strconv.Atoi(object.GetAnnotations()[spot.MinOnDemandAnnotation])
	if err != nil {
		panic(fmt.Sprintf("floor of %s: %v", object.GetName(), err))
	}
	work := &testWorkload{kind: kind, name: object.GetName(), desired: int(desired), floor: floor}
	w.workloads = append(w.workloads, work)
	return work
}

// addPod adds a pod to its workload. A pod whose workload has no object of its own, such as a pod
// without a controller, is the only pod of its workload.
func (w *world) addPod(object *v1.Pod) {
	i := slices.IndexFunc(w.workloads, func(work *testWorkload) bool { return work.name == object.Labels["app"] })
	if i < 0 {
		kind := "Pod"
		if owner := metav1.GetControllerOf(object); owner != nil {
			kind = owner.Kind
		}
		w.addWorkload(kind, object, 1).name = object.Labels["app"]
		i = len(w.workloads) - 1
	}
	work := w.workloads[i]
	work.pods = append(work.pods, &pod{
		name: object.Name, ordinal: len(work.pods), slots: 1, node: w.node(object.Spec.NodeName), created: object.CreationTimestamp.Time,
	})
}

func (w *world) addNode(name, capacity string, slots int64) *testNode {
	n := &testNode{name: name, slots: slots, created: w.now.Add(-time.Hour)}
	n.facts.Pool = decision.NewPool("pool", "zone")
	if capacity == "spot" {
		n.facts.Capacity.Type = decision.Spot
	}
	w.nodes = append(w.nodes, n)
	slices.SortFunc(w.nodes, func(a, b *testNode) int { return cmp.Compare(a.name, b.name) })
	return n
}

func (n *testNode) disrupted() node.Disruption {
	switch {
	case n.disruption != nil:
		return *n.disruption
	case n.facts.Signal == decision.Reclaim:
		return node.Reclaimed
	case n.facts.Signal == decision.Drain:
		return node.Voluntary
	}
	return node.NotDisrupted
}

func (w *world) node(name string) *testNode {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

func (w *world) workload(name string) *testWorkload {
	return w.workloads[slices.IndexFunc(w.workloads, func(work *testWorkload) bool { return work.name == name })]
}

func (w *world) pod(name string) *pod {
	for _, work := range w.workloads {
		for _, p := range work.pods {
			if p.name == name {
				return p
			}
		}
	}
	panic("no pod " + name)
}

// apart gives the pod an anti-affinity to the pods of a workload by a topology key.
func (p *pod) apart(from, key string) { p.apartFrom, p.apartBy = from, key }

func condition(kind v1.PodConditionType, is bool, reason string) v1.PodCondition {
	status := v1.ConditionTrue
	if !is {
		status = v1.ConditionFalse
	}
	return v1.PodCondition{Type: kind, Status: status, Reason: reason}
}

// snapshot returns the snapshot that package snapshot would read.
func (w *world) snapshot() *snapshot.Snapshot {
	s := &snapshot.Snapshot{Now: w.now, NodeEvents: w.events}
	nodes := map[*testNode]*snapshot.Node{}
	for _, n := range w.nodes {
		object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: types.UID(n.name + n.created.String()), CreationTimestamp: metav1.NewTime(n.created)}}
		object.Labels = map[string]string{v1.LabelHostname: n.name, v1.LabelTopologyZone: n.zone, spot.CapacityLabel: n.facts.Capacity.Type.String()}
		object.Spec.Taints = n.taints
		object.Status.Allocatable = v1.ResourceList{"slots": *resource.NewQuantity(n.slots, resource.DecimalSI)}
		status := v1.ConditionTrue
		if n.unready {
			status = v1.ConditionFalse
		}
		object.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
		if n.mutate != nil {
			n.mutate(object)
		}
		nodes[n] = &snapshot.Node{Node: object, Facts: n.facts, Disruption: n.disrupted()}
		s.Nodes = append(s.Nodes, nodes[n])
	}
	for _, work := range w.workloads {
		if len(work.pods) == 0 {
			continue
		}
		object := &snapshot.Workload{
			Key: workload.OwnerKey{Namespace: "shop", Kind: work.kind, UID: types.UID(work.name + work.recreated)}, Kind: work.kind, Namespace: "shop", Name: work.name, InScope: !work.unmanaged,
			Desired: work.desired, Floor: work.floor, RollingOut: work.rollingOut, KeepsScheduler: work.keepsScheduler,
			Settings: decision.WorkloadSettings{MinOnDemand: decision.Count(work.floor), FallbackAfter: decision.Never},
		}
		if work.leaders != "" {
			object.GroupsKey = workload.OwnerKey{Namespace: "shop", Kind: "StatefulSet", UID: types.UID(work.leaders)}
		}
		if work.settings != nil {
			work.settings(&object.Settings)
		}
		switch work.kind {
		case "Deployment": // not for a Rollout, which is not read
			object.Deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Paused: work.paused}}
		case "StatefulSet":
			object.StatefulSet = &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{UpdateRevision: work.template}}
		}
		s.Workloads = append(s.Workloads, object)
		revisions := map[int]*snapshot.Revision{}
		newest := 0
		for _, p := range work.pods {
			newest = max(newest, p.revision)
		}
		for i := range newest + 1 {
			revisions[i] = &snapshot.Revision{
				Key:      workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: types.UID(fmt.Sprintf("%s/%d", work.name, i))},
				Workload: object,
			}
			if work.kind == "Deployment" || work.kind == "Rollout" {
				revisions[i].ReplicaSet = &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labelsOf(work, i)}}}
			}
			object.Revisions = append(object.Revisions, revisions[i])
		}
		for _, p := range work.pods {
			s.Pods = append(s.Pods, w.read(p, work, revisions[p.revision], nodes[p.node]))
		}
		for i, revision := range revisions {
			if revision.ReplicaSet != nil {
				revision.ReplicaSet.Spec.Replicas = ptr.To(int32(len(revision.Pods)))
			}
			if i == 0 && work.uncreated > 0 {
				*revision.ReplicaSet.Spec.Replicas += work.uncreated
			}
		}
	}
	slices.SortFunc(s.Pods, func(a, b *snapshot.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range s.Pods {
		if p.Node != nil {
			p.Node.Pods = append(p.Node.Pods, p)
		}
	}
	return s
}

// labelsOf returns the labels of the pods of a revision.
func labelsOf(work *testWorkload, revision int) map[string]string {
	return map[string]string{"app": work.name, appsv1.DefaultDeploymentUniqueLabelKey: strconv.Itoa(revision)}
}

func (w *world) read(p *pod, work *testWorkload, revision *snapshot.Revision, on *snapshot.Node) *snapshot.Pod {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: p.name, UID: types.UID(p.name), CreationTimestamp: metav1.NewTime(p.created), Annotations: p.annotations,
	}}
	object.Labels = labelsOf(work, p.revision)
	object.Spec.Priority = &p.priority
	if p.port > 0 {
		object.Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: p.port}}}}
	}
	if p.scratch {
		object.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	}
	if p.apartFrom != "" {
		object.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.apartFrom}}, TopologyKey: p.apartBy}}}}
	}
	_, assigned := p.annotations[spot.AssignedAnnotation]
	switch {
	case p.onlySpot:
		object.Spec.NodeSelector = map[string]string{spot.CapacityLabel: decision.Spot.String()}
	case p.onlyOnDemand && (on == nil || !assigned): // its replacement does not inherit an assignment
		object.Spec.NodeSelector = map[string]string{spot.CapacityLabel: decision.OnDemand.String()}
	}
	object.Status.NominatedNodeName = p.nominated
	object.Status.Conditions = []v1.PodCondition{condition(v1.PodReady, on != nil && !p.unready, "")}
	if on != nil {
		object.Spec.NodeName, object.Status.StartTime = on.Name, &metav1.Time{Time: p.created}
	} else {
		object.Status.Conditions = append(object.Status.Conditions, condition(v1.PodScheduled, false, v1.PodReasonUnschedulable))
	}
	if p.terminating {
		object.DeletionTimestamp = &metav1.Time{Time: w.now}
		if !p.ends.IsZero() {
			object.DeletionTimestamp.Time = p.ends
		}
	}
	result := &snapshot.Pod{Pod: object, Node: on, Requests: v1.ResourceList{"slots": *resource.NewQuantity(p.slots, resource.DecimalSI)}}
	if p.released != "" {
		result.Release, result.ReleasedFrom = &snapshot.Release{ReplicaSetUID: revision.Key.UID, Reason: p.released, At: cmp.Or(p.releasedAt, w.now)}, revision
		if p.orphaned {
			result.ReleasedFrom = nil
		}
		return result
	}
	result.Workload, result.Revision = revision.Workload, revision
	result.Subject = &workload.Subject{Pod: decision.Pod{OnlySpot: p.onlySpot, OnlyOnDemand: p.onlyOnDemand, SpreadByAffinity: p.spread, Assigned: workload.AssignedCapacityOf(object), Workload: decision.Workload{
		Kind: work.kind, Revision: string(revision.Key.UID), Desired: work.desired, Ordered: work.kind == "StatefulSet", Ordinal: p.ordinal,
	}}}
	result.Replacement = &result.Subject.Pod
	if !p.terminating {
		revision.Pods = append(revision.Pods, result)
		switch {
		case on == nil:
		case on.Facts.Capacity.Type == decision.Spot:
			revision.Placed.Spot++
		default:
			revision.Placed.OnDemand++
		}
	}
	return result
}

// schedule places waiting pods in the order of the workloads' pods.
func (w *world) schedule() {
	for _, work := range w.workloads {
		for _, p := range work.pods {
			if p.node == nil {
				s := w.snapshot()
				for _, read := range s.Pods {
					if read.Name == p.name {
						if n, _ := simulation.NewRoom(s).Replace(read, decision.Unassigned); n != nil {
							p.node = w.node(n.Name)
						}
					}
				}
			}
		}
	}
}

// move replaces a pod. With surge, the replacement is placed before the pod leaves.
func (w *world) move(name string, surge bool) {
	for _, work := range w.workloads {
		for i, p := range work.pods {
			if p.name != name {
				continue
			}
			w.replacements++
			replacement := &pod{name: fmt.Sprintf("%s-r%d", work.name, w.replacements), revision: p.revision, ordinal: p.ordinal, slots: p.slots, created: w.now}
			if work.kind == "StatefulSet" {
				surge = false
			}
			if surge {
				p.released = string(migration.Heal)
				work.pods = append(work.pods, replacement)
				w.schedule()
				work.pods = slices.DeleteFunc(work.pods, func(o *pod) bool { return o == p })
			} else {
				work.pods[i] = replacement
			}
			w.schedule()
			return
		}
	}
}

// plan returns the moves that a planner plans, as "POD REASON".
func (w *world) plan(p *rebalance.Planner) []string {
	s := w.snapshot()
	w.events = nil
	var moves []string
	for _, m := range p.Plan(s, simulation.NewRoom(s)) {
		what := string(m.Reason)
		if m.Useless != "" {
			what += " stopped"
		}
		if m.Limited != "" {
			what += " limited"
		}
		moves = append(moves, m.Pod.Name+" "+what)
	}
	return moves
}

var settings = rebalance.Settings{
	Rebalance: controller.Rebalance{
		Heal: true, MakeRoom: true, ReturnToSpot: true, MaxMoves: 5,
		PauseAfterInterruption: metav1.Duration{Duration: 5 * time.Minute}, CalmPeriod: metav1.Duration{Duration: 10 * time.Minute},
	},
}
