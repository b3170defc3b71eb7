// Package cluster takes one look at the cluster, in the values that the planners of spot-controller work with: which pods stand on which
// nodes, what workloads they belong to and what the policy says of them, and whether a pod would find room elsewhere.
//
// A Snapshot is read-only: planners say what must be done as data, and one executor (package migration) does it.
package cluster

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Snapshot is the cluster at one moment, as the informers' caches say it. Every list has a fixed order, so that the same cluster gives the
// same plans.
type Snapshot struct {
	Now time.Time
	// Until is when the Facts of a node change next although the node does not; zero: never.
	Until time.Time
	// Overdue are the nodes whose Lease is overdue, as in kube.NodeReader.
	Overdue map[string]time.Time
	// Nodes are all nodes, by name.
	Nodes []*Node
	// NodeEvents are what the informer saw of nodes since the Reader's last Snapshot, the earliest first.
	NodeEvents []kube.NodeEvent
	// Pods are all pods that have not come to their end (Succeeded, Failed), terminating ones included, by namespace and name.
	Pods []*Pod
	// Workloads are the workloads of those pods, released ones included, by namespace, kind and name: for what the policy has no opinion
	// on (DaemonSets, static pods) there is none.
	Workloads []*Workload
	// Defects are the pods whose claims have no effect, in the order of Pods.
	Defects []Defect
	// Budgets are all PodDisruptionBudgets, by namespace.
	Budgets map[string][]*policyv1.PodDisruptionBudget
	// Services are the selectors of all Services that have one, by namespace.
	Services map[string][]map[string]string
	// Adopters are the controllers that could adopt a released pod, by namespace.
	Adopters map[string][]Adopter

	// index is shared by the Rooms, Demands and Inspections of the Snapshot, which are therefore
	// not for concurrent use; nil until one needs it.
	index *index
}

// Node is a node with what a decision needs to know of it.
type Node struct {
	*v1.Node
	// Facts are its capacity type, its pool and the class of its strongest signal.
	Facts decision.Node
	// Disruption is how it is disrupted, as far as the Node shows it.
	Disruption kube.NodeDisruption
	// Pods are those on it, in the order of Snapshot.Pods.
	Pods []*Pod
}

// Pod is a pod with what it belongs to.
type Pod struct {
	*v1.Pod
	// Node is where it stands; nil if it is not bound, or its node does not exist (any more).
	Node *Node
	// Requests is what it takes up of a node, one for itself under "pods" included.
	Requests v1.ResourceList
	// Subject is what it belongs to. nil: the policy has no opinion (kube.HasOpinion), or its owner is not known.
	Subject *kube.Subject
	// Workload and Revision are those of Subject; nil with it.
	Workload *Workload
	Revision *Revision
	// Release says that the pod was released from its ReplicaSet, to leave when its replacement is ready; nil if it was not, or if it claims to
	// have been and the claim is not trusted (see census.distrust). A released pod belongs to no workload.
	Release *Release
	// ReleasedFrom is the revision that a released pod was released from, also while that has no other pod. nil: the pod was not released, or
	// the caches have no ReplicaSet of Release.ReplicaSetUID that is not being deleted, or not the Deployment that owns it.
	ReleasedFrom *Revision

	// replacement is the pod's replacement to the policy: Subject.Pod, or as a pod of ReleasedFrom. nil: nothing of it is known.
	replacement *decision.Pod
	// volumes are those that the pod's claims are bound to: a replacement with the same claims has to reach them too.
	volumes []*v1.PersistentVolume
}

// Live reports whether the pod counts: it is neither terminal nor terminating, and was not released.
func (p *Pod) Live() bool { return p.Release == nil && kube.Live(p.Pod) }

// overdueAfter is how long after its grace period a terminating pod is taken to be one that may never end.
const overdueAfter = time.Minute

// Overdue reports whether the pod still terminates, although its grace period ended a minute ago: a finalizer or a node may hold it for ever,
// so nothing waits for it. The DeletionTimestamp of a pod is the end of its grace period.
func (p *Pod) Overdue(now time.Time) bool {
	return p.DeletionTimestamp != nil && now.After(p.DeletionTimestamp.Add(overdueAfter))
}

// Workload is what owns pods and carries their replica count.
type Workload struct {
	// Key identifies the workload.
	Key kube.OwnerKey
	// APIVersion is that of Kind: the one in which its pods name it, unless it is Deployment or StatefulSet, which are read in their own.
	APIVersion, Kind, Namespace, Name string
	// Ours: all its live pods, or if none is live all it has, name the profile whose policy the controller reads. The policy speaks of no
	// other pods; they are only moved off nodes that go.
	Ours bool
	// Desired is its replica count.
	Desired int
	// Floor is how many replicas must survive the loss of all spot: the most that any of its revisions asks for; 0 if it is not Ours.
	Floor int
	// Settings are those of its newest revision; zero if it is not Ours.
	Settings decision.Settings
	// Deployment is the object itself if it is one, else nil.
	Deployment *appsv1.Deployment
	// StatefulSet is the object itself if it is one, else nil.
	StatefulSet *appsv1.StatefulSet
	// RollingOut: some of its pods still are, or soon will be, of a revision that is not the newest, or the controller manager has not seen
	// its newest specification yet. A rollout that is paused half-way is one too.
	RollingOut bool
	// Revisions are those that have pods, released ones included, or want some, oldest first. What has no rollouts has one.
	Revisions []*Revision
}

// Revision is the part of a workload that survives a rollout; for a Deployment a ReplicaSet.
type Revision struct {
	// Key identifies the revision.
	Key      kube.OwnerKey
	Workload *Workload
	// ReplicaSet is the object itself if it is one, else nil.
	ReplicaSet *appsv1.ReplicaSet
	// Pods are its live pods, bound or not, in the order of Snapshot.Pods.
	Pods []*Pod
	// Placed counts those that are bound to nodes that exist.
	Placed decision.Placed

	// settings are what the policy says of its pods; nil: what it says of the workload.
	settings *decision.Settings
}

// Release is the value of kube.ReleaseAnnotation on a released pod, as JSON: all that is needed to finish or undo the release, also by a
// controller that was started after it.
type Release struct {
	// ReplicaSet and ReplicaSetUID name what the pod was released from, and Hash is the value that its label pod-template-hash had.
	ReplicaSet    string    `json:"replicaSet"`
	ReplicaSetUID types.UID `json:"replicaSetUID"`
	Hash          string    `json:"hash"`
	// Reason is why: a migration.Reason.
	Reason string `json:"reason"`
	// At is when.
	At time.Time `json:"at"`
}
