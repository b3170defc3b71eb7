package snapshot

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Reader reads Snapshots from shared informer caches. Between Snapshots it caches the facts that
// depend on a pod alone. Snapshot must not be called concurrently. The returned Snapshots are
// independent of the Reader.
type Reader struct {
	policy *decision.Policy
	scope  workload.Scope
	reader *node.Reader
	owners *workload.Owners
	// Live knows which kubelets are silent, so that Snapshots include overdue Leases: a node with
	// an unreachable kubelet counts as lost only if Live has confirmed it. If nil, only the
	// condition Ready of a node counts. It must be set before the first Snapshot.
	Live *node.LiveReader

	// factory provides the lists. The listers below look up single objects.
	factory     informers.SharedInformerFactory
	volumesOf   func(*v1.Pod) []*v1.PersistentVolume
	replicaSets appslisters.ReplicaSetLister
	deployments appslisters.DeploymentLister
	informers   []cache.SharedIndexInformer

	events    node.Events
	podCache  podCache
	revisions int // number of revisions in the last Snapshot
	// nodes are the Nodes of the last Snapshot, by name, and nodeless its pods with NodeDeleted.
	nodes    []*v1.Node
	nodeless map[types.UID]bool
}

// NewReader registers the informers that it needs with factory, which must not be started yet.
// signals contains all signals, including the built-in ones. scope selects the pods that
// the policy applies to. notReadyAfter is as in node.Reader.
func NewReader(
	factory informers.SharedInformerFactory, policy *decision.Policy, signals []providers.Signal, scope workload.Scope,
	notReadyAfter time.Duration,
) (*Reader, error) {
	owners, err := workload.NewOwners(factory, policy)
	if err != nil {
		return nil, err
	}
	core, apps := factory.Core().V1(), factory.Apps().V1()
	if err := apps.DaemonSets().Informer().SetTransform(transform.Trim); err != nil {
		return nil, err
	}
	r := &Reader{
		policy:      policy,
		scope:       scope,
		reader:      &node.Reader{Policy: policy, Signals: signals, NotReadyAfter: notReadyAfter},
		owners:      owners,
		factory:     factory,
		volumesOf:   workload.VolumesOf(factory),
		replicaSets: apps.ReplicaSets().Lister(),
		deployments: apps.Deployments().Lister(),
		informers: append(slices.Clone(owners.Informers()),
			core.Nodes().Informer(), core.Pods().Informer(), factory.Policy().V1().PodDisruptionBudgets().Informer(), apps.DaemonSets().Informer(),
			core.Services().Informer(), core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer(),
			factory.Storage().V1().StorageClasses().Informer(), factory.Storage().V1().CSINodes().Informer(),
			factory.Storage().V1().VolumeAttachments().Informer(), core.LimitRanges().Informer()),
	}
	if _, err := core.Nodes().Informer().AddEventHandler(r.reader.EventHandler(clock.RealClock{}.Now, r.events.Add)); err != nil {
		return nil, err
	}
	return r, nil
}

// Informers returns the informers whose events may change a plan: all inputs of a Snapshot.
func (r *Reader) Informers() []cache.SharedIndexInformer { return r.informers }

// Snapshot returns the state of the cluster at now according to the caches, which must have synced.
// It reads each cache once, but not all at the same moment. A Snapshot may therefore contain a pod
// whose owner or node is not known yet. An error is an error of a cache.
func (r *Reader) Snapshot(now time.Time) (*Snapshot, error) {
	s := &Snapshot{Now: now, Policy: r.policy}
	core := r.factory.Core().V1()
	nodes, pods, replicaSets := All(core.Nodes().Lister()), All(core.Pods().Lister()), All(r.replicaSets)
	nodeOf := r.readNodes(s, nodes)
	if err := r.readPods(s, r.podCache.update(pods), replicaSets, nodeOf); err != nil {
		return nil, err
	}
	r.countAttachments(s, nodeOf)
	r.findDeletedNodes(s.Pods)
	r.nodes = nodes
	s.Budgets = byNamespace(All(r.factory.Policy().V1().PodDisruptionBudgets().Lister()))
	s.Services, s.Adopters = byNamespace(All(core.Services().Lister())), r.readAdopters(replicaSets)
	s.NodeEvents = r.events.Take()
	return s, nil
}

// CapacityType returns the capacity type of the node at now, as in a Snapshot. It may be called
// concurrently.
func (r *Reader) CapacityType(node *v1.Node, now time.Time) decision.CapacityType {
	return r.reader.Capacity(node, now).Type
}

// All returns all objects of a lister of a cache, which returns no error.
func All[T any](lister interface {
	List(labels.Selector) ([]T, error)
}) []T {
	objects, _ := lister.List(labels.Everything())
	return objects
}

// readNodes fills s.Nodes and returns the nodes by name.
func (r *Reader) readNodes(s *Snapshot, nodes []*v1.Node) map[string]*Node {
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	if r.Live != nil {
		s.Overdue, s.Unconfirmed = r.Live.Silent(r.reader, nodes, s.Now)
		s.Renewed = r.Live.Renewed
	}
	byName := make(map[string]*Node, len(nodes))
	slab := make([]Node, len(nodes))
	s.Nodes = make([]*Node, len(nodes))
	for i, n := range nodes {
		slab[i].Node = n
		var until time.Time
		slab[i].Facts, slab[i].Disruption, until = r.factsOf(n, s)
		s.Until = node.Earlier(s.Until, until)
		s.Nodes[i], byName[n.Name] = &slab[i], &slab[i]
	}
	return byName
}

// factsOf returns the facts about a node that a decision needs, and how the node is disrupted.
// until is when either changes although the node does not; zero means never. If the node cannot be
// read, the controller moves no pods to it or off it.
func (r *Reader) factsOf(node *v1.Node, s *Snapshot) (facts decision.Node, disruption node.Disruption, until time.Time) {
	facts = decision.Node{Capacity: decision.Capacity{Type: decision.Spot}, Signal: decision.Drain}
	defer recovery.Recover(recovery.Node, klog.KObj(node))
	reader := *r.reader
	reader.Overdue, reader.Unconfirmed = s.Overdue, s.Unconfirmed
	disruption = reader.Disruption(node, s.Now)
	facts, until = reader.Read(node, s.Now)
	return facts, disruption, until
}

// findDeletedNodes sets Pod.NodeDeleted, before r.nodes is replaced.
func (r *Reader) findDeletedNodes(pods []*Pod) {
	before := r.nodeless
	r.nodeless = map[types.UID]bool{}
	for _, p := range pods {
		if p.Node == nil {
			_, existed := slices.BinarySearchFunc(r.nodes, p.Spec.NodeName, func(n *v1.Node, of string) int { return strings.Compare(n.Name, of) })
			if existed || before[p.UID] {
				p.NodeDeleted, r.nodeless[p.UID] = true, true
			}
		}
	}
}

// byNamespace returns the objects by namespace, in the order of their names.
func byNamespace[T metav1.Object](objects []T) map[string][]T {
	slices.SortFunc(objects, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	all := map[string][]T{}
	for _, object := range objects {
		all[object.GetNamespace()] = append(all[object.GetNamespace()], object)
	}
	return all
}

// ByName orders pods by namespace and name.
func ByName(a, b *v1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
