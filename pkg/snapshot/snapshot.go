// Package snapshot reads a snapshot of the cluster in the values that the planners of
// spot-controller use: which pods run on which nodes, to which workloads they belong, which policy
// applies to them, and whether another node has room for a pod.
//
// A Snapshot is read-only. Planners return actions as data, and one executor (package execution)
// performs them.
package snapshot

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Snapshot is the state of the cluster at one moment, as recorded in the informers' caches. Every
// list has a fixed order, so that the same cluster gives the same plans.
type Snapshot struct {
	Now time.Time
	// Policy is the policy of the Reader. nil has no aliases of capacity labels.
	Policy *decision.Policy
	// Until is when the Facts of a node may next change although the node does not; zero means
	// never.
	Until time.Time
	// Overdue contains the nodes whose Lease is overdue, as in node.Reader.
	Overdue map[string]time.Time
	// Unconfirmed contains the nodes that do not count as lost yet, as in node.Reader.
	Unconfirmed map[string]bool
	// Renewed reports whether a renewal of a node's Lease was observed since then
	// (node.LiveReader.Renewed); nil if that is unknown.
	Renewed func(node string, since time.Time) bool
	// Nodes contains all nodes, by name.
	Nodes []*Node
	// Events contains the events of nodes since the Reader's previous Snapshot, oldest first.
	NodeEvents []node.Event
	// Pods contains all pods that are not Succeeded or Failed, including terminating pods, by
	// namespace and name.
	Pods []*Pod
	// Workloads contains the workloads of all Pods, including released pods, by namespace, kind
	// and name. Pods that the policy does not apply to (DaemonSets, static pods) have no workload.
	Workloads []*Workload
	// Defects contains the pods whose claims are ignored, in the order of Pods.
	Defects []Defect
	// Budgets contains all PodDisruptionBudgets, by namespace.
	Budgets map[string][]*policyv1.PodDisruptionBudget
	// Services contains all Services, by namespace.
	Services map[string][]*v1.Service
	// Adopters contains the controllers that could adopt a released pod, by namespace, ordered by
	// kind and name.
	Adopters map[string][]Adopter

	// index is built on first use. The Rooms, Demands and Inspections of the Snapshot share it, so
	// they are not safe for concurrent use.
	index *Index
}

// SchedulersOfPods reports whether our scheduler, and whether other schedulers, place pods that the
// policy applies to.
func (s *Snapshot) SchedulersOfPods() (ours, others bool) {
	for _, w := range s.Workloads {
		ours, others = ours || w.InScope && !w.KeepsScheduler, others || w.KeepsScheduler
	}
	return ours, others
}

// Node is a node with the facts that a decision needs.
type Node struct {
	*v1.Node
	// Facts contains its capacity type, its pool and the class of its strongest signal.
	Facts decision.Node
	// Disruption is how the node is disrupted, as far as the Node object shows it.
	Disruption node.Disruption
	// Pods contains the pods that are bound to the node, in the order of Snapshot.Pods.
	Pods []*Pod
	// AttachLimits contains how many volumes of each CSI driver that has limits can be attached to
	// the node. The requests of the pods contain their volumes. nil: no driver has limits.
	AttachLimits v1.ResourceList
}

// Remains reports whether replicas on the node can replace others: no signal announces that the
// node is reclaimed or drained, and it is not cordoned. It is false for nil.
func (n *Node) Remains() bool {
	return n != nil && n.Facts.Signal < decision.Drain && !n.Spec.Unschedulable
}

// Free returns the resources of the node that remain without the requests of the pods on it that
// counts reports.
func (n *Node) Free(counts func(*Pod) bool) workload.Resources {
	free := workload.ResourcesOf(n.Status.Allocatable)
	free.Add(n.AttachLimits, 1)
	for _, p := range n.Pods {
		if counts(p) {
			free.Add(p.Requests, -1)
		}
	}
	return free
}

// Pod is a pod with its workload.
type Pod struct {
	*v1.Pod
	// Node is the node that the pod is bound to. It is nil if the pod is not bound, or if the node
	// does not exist.
	Node *Node
	// NodeDeleted reports whether the caches lost the Node while they had the pod: the previous
	// Snapshot contained the Node, or NodeDeleted was already true. The caches may be stale. Pods
	// that appear later do not count, because the template of their owner may name the Node.
	NodeDeleted bool
	// Requests contains the resources that the pod occupies on a node, including one unit of
	// "pods", and its volumes of the CSI drivers in Node.AttachLimits.
	Requests v1.ResourceList
	// Subject describes the pod's owner. It is nil if the policy does not apply to the pod (see
	// workload.PolicyApplies) or if the owner is unknown.
	Subject *workload.Subject
	// Workload and Revision belong to Subject; they are nil if it is nil.
	Workload *Workload
	Revision *Revision
	// Release is set if the pod was released from its ReplicaSet: the controller evicts the pod
	// when its replacement is ready. It is nil if the pod claims no release, or if the claim is not
	// trusted (see census.releaseDefect). A released pod belongs to no workload.
	Release *Release
	// ReleasedFrom is the revision that the pod was released from, even if the revision has no
	// other pod. It is nil if the pod was not released. It is also nil if the caches have no
	// ReplicaSet with Release.ReplicaSetUID, if that ReplicaSet is being deleted, or if the caches
	// do not have its Deployment.
	ReleasedFrom *Revision
	// Deployment is the Deployment that controls a released pod without ReleasedFrom, else nil.
	Deployment *appsv1.Deployment

	// Replacement describes the pod's replacement for the policy: Subject.Pod, or the pod as a
	// replica of ReleasedFrom. It is nil if nothing is known.
	Replacement *decision.Pod
	// Volumes contains the volumes that the pod's claims are bound to. A replacement with the same
	// claims must reach them too.
	Volumes []*v1.PersistentVolume
}

// Ready returns since when the pod has been ready or unready. ok is false if it is not ready, or if
// its node does not exist.
func (p *Pod) Ready() (since time.Time, ok bool) {
	if p.Node == nil {
		return time.Time{}, false
	}
	return workload.Ready(p.Pod)
}

// IsReady reports whether the pod is ready and its node exists.
func (p *Pod) IsReady() bool {
	_, ok := p.Ready()
	return ok
}

// Live reports whether the pod counts as a replica: it is not terminal, not terminating and not
// released.
func (p *Pod) Live() bool { return p.Release == nil && workload.Live(p.Pod) }

// OwnRevision returns the revision that the pod belongs to or was released from; nil if it is
// unknown.
func (p *Pod) OwnRevision() *Revision { return cmp.Or(p.Revision, p.ReleasedFrom) }

// OwnWorkload returns the workload of OwnRevision; nil if it is unknown.
func (p *Pod) OwnWorkload() *Workload {
	if revision := p.OwnRevision(); revision != nil {
		return revision.Workload
	}
	return nil
}

// overdueAfter is how long after its grace period a terminating pod counts as overdue: it may never
// end.
const overdueAfter = time.Minute

// Overdue reports whether the pod is still terminating one minute after its grace period. A
// finalizer or a failed node may delay it forever, so the controller does not wait for it. The
// DeletionTimestamp of a pod is the end of its grace period.
func (p *Pod) Overdue(now time.Time) bool {
	return p.DeletionTimestamp != nil && now.After(p.DeletionTimestamp.Add(overdueAfter))
}

// Workload is the object that owns pods and has their replica count.
type Workload struct {
	// Key identifies the workload.
	Key workload.OwnerKey
	// APIVersion is the version of Kind in the owner references of the pods. For a Deployment or
	// StatefulSet it is the version that the controller reads.
	APIVersion, Kind, Namespace, Name string
	// InScope reports whether the policy applies to all live pods of the workload (workload.Scope).
	// If no pod is live, it must apply to all pods. One live pod suffices if the pods have no
	// common template (workload.OwnerKey.Direct). The controller moves the pods of other workloads
	// only off nodes that are about to be reclaimed or drained.
	InScope bool
	// KeepsScheduler reports whether another scheduler places a live pod of the workload. Such a
	// scheduler enforces no floor: only the gates of new pods do.
	KeepsScheduler bool
	// Desired is its replica count: the largest that its revisions state.
	Desired int
	// Floor is how many replicas must survive the loss of all spot nodes: the largest floor of its
	// revisions. It is 0 if the workload is not InScope.
	Floor int
	// Settings are the settings of its newest revision; zero if the workload is not InScope.
	Settings decision.WorkloadSettings
	// Deployment is the object itself if it is one, else nil.
	Deployment *appsv1.Deployment
	// StatefulSet is the object itself if it is one, else nil. GroupsKey is as in workload.Subject.
	StatefulSet *appsv1.StatefulSet
	GroupsKey   workload.OwnerKey
	// RollingOut reports whether some pods belong, or are about to belong, to a revision that is
	// not the newest. It is also true if the controller manager has not observed the newest
	// specification yet, and while a rollout is paused half-way. If the object of the workload is
	// not read, a revision that wants no pods is not the newest: its rollout may be aborted.
	RollingOut bool
	// Revisions contains the revisions that have pods, including released pods, or want some,
	// oldest first. A workload without rollouts has one.
	Revisions []*Revision
}

// Pods returns the live pods of the workload, the oldest revision first.
func (w *Workload) Pods() (pods []*Pod) {
	for _, r := range w.Revisions {
		pods = append(pods, r.Pods...)
	}
	return pods
}

// CountPods returns how many live pods of the workload match.
func (w *Workload) CountPods(matches func(*Pod) bool) (n int) {
	for _, r := range w.Revisions {
		for _, p := range r.Pods {
			if matches(p) {
				n++
			}
		}
	}
	return n
}

// HasReplicaSets reports whether the revisions of the workload are ReplicaSets: it is a ReplicaSet,
// or a Deployment or another object that keeps its revisions in ReplicaSets.
func (w *Workload) HasReplicaSets() bool {
	return len(w.Revisions) > 0 && w.Revisions[0].ReplicaSet != nil
}

// ownsRevisions reports whether the workload is not itself its only revision.
func (w *Workload) ownsRevisions() bool { return len(w.Revisions) > 0 && w.Revisions[0].Key != w.Key }

// Revision is a group of a workload's pods with the same template. For a Deployment it is a
// ReplicaSet.
type Revision struct {
	// Key identifies the revision.
	Key      workload.OwnerKey
	Workload *Workload
	// ReplicaSet is the object itself if the revision is one, else nil.
	ReplicaSet *appsv1.ReplicaSet
	// Pods are its live pods, bound or not, in the order of Snapshot.Pods.
	Pods []*Pod
	// Placed counts the pods that are bound to existing nodes.
	Placed decision.PlacedPods

	// template contains what new pods request; nil if unknown. refused explains why the API server
	// rejects them; "" if it does not.
	template *v1.PodSpec
	refused  string
	// Settings are the settings of its pods. If nil, the settings of the workload apply. Pods
	// without a common template may have different settings: then the highest floor decides.
	Settings *decision.WorkloadSettings
}

// Release is the release of a pod.
type Release = workload.Release

// FloorStatus compares the live pods of the workload, by capacity type, with its floor.
func (w *Workload) FloorStatus() decision.FloorStatus { return w.floorStatusOf(w.Revisions) }

// FloorStatus returns the status of the workload if it had no other revision.
func (r *Revision) FloorStatus() decision.FloorStatus {
	return r.Workload.floorStatusOf([]*Revision{r})
}

func (w *Workload) floorStatusOf(revisions []*Revision) decision.FloorStatus {
	replicas := make([][]decision.Replica, len(revisions))
	ordered := false
	for i, r := range revisions {
		for _, p := range r.Pods {
			subject := &p.Subject.Pod
			ordered = subject.Workload.Ordered
			replica := decision.Replica{Ordinal: subject.Workload.Ordinal, Exempt: w.Settings.Exempts(subject), OnlySpot: subject.OnlySpot}
			if p.Node != nil {
				replica.Bound, replica.Capacity = true, p.Node.Facts.Capacity.Type
			}
			replicas[i] = append(replicas[i], replica)
		}
	}
	return decision.NewFloorStatus(w.Desired, w.Floor, ordered, replicas)
}
