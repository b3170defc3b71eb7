// Package lister reads a cluster once, for a command that prints a result and exits. It lists all
// resources concurrently into the caches that a snapshot.Reader reads its Snapshot from. It does
// not watch, so the right to list is sufficient. A resource that the user may not list is a Gap,
// not an error, unless the command needs it.
package lister

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Scope selects the resources to read.
type Scope struct {
	// Namespace is the namespace of the pods and their owners; "" means all.
	Namespace string
	// AllPods also reads the pods of all other namespaces, because they occupy room on nodes. Their
	// owners are not read.
	AllPods bool
	// Volumes also reads claims, volumes and their classes, which limit the nodes that a pod can
	// run on.
	Volumes bool
	// NodesRequired reports whether the command has no answer without nodes.
	NodesRequired bool
	// DisruptionBudgets also reads PodDisruptionBudgets.
	DisruptionBudgets bool
	// IncludeScaledToZero adds workloads that are scaled to 0 to TemplatePods.
	IncludeScaledToZero bool
}

// Gap is a resource that could not be read.
type Gap struct {
	// Err is the error of the API server. It names the user, the verb and the resource.
	Err error
	// Consequence describes the information that is missing.
	Consequence string
}

func (g Gap) String() string { return fmt.Sprintf("%v: %s", g.Err, g.Consequence) }

// Objects contains the objects that were read. Its methods are not safe for concurrent use.
type Objects struct {
	// Scope selected the objects.
	Scope Scope
	// Gaps contains all gaps except of PriorityClasses, which matter only to rules by priority, for
	// workloads without pods, of Namespaces, which matter only if the controller removes gates, and
	// of NodePools if no node is of one.
	Gaps []Gap
	// OwnersMissing reports whether a kind of owner could not be listed. Some pods then seem to
	// have no workload.
	OwnersMissing bool
	// Missing contains the resources that a dump lacks, by name. The cluster may have no such
	// object, or the dump may be incomplete.
	Missing []string
	// Unused describes the objects and names the files of a dump that no command uses.
	Unused []string

	factory informers.SharedInformerFactory
	// listings contains the lists and caches of all kinds that are read.
	listings []listing
}

func newObjects(client kubernetes.Interface, scope Scope) (*Objects, error) {
	factory := informers.NewSharedInformerFactory(client, 0) // never started: it only provides the caches
	s := &Objects{Scope: scope, factory: factory, listings: listings(&scope)}
	// This adds the indexes. They are then filled while the API server responds, not afterwards.
	// They do not depend on the policy.
	if _, err := s.Owners(nil); err != nil {
		return nil, err
	}
	for i := range s.listings {
		if s.listings[i].kind == nodePool {
			s.listings[i].into = cache.NewStore(cache.MetaNamespaceKeyFunc)
			continue
		}
		informer, err := factory.ForResource(s.listings[i].resource())
		if err != nil {
			return nil, err
		}
		s.listings[i].into = informer.Informer().GetStore()
	}
	return s, nil
}

// listing returns the list of a kind; nil if it is not read.
func (s *Objects) listing(kind schema.GroupKind) *listing {
	for i := range s.listings {
		if s.listings[i].kind.GroupKind() == kind {
			return &s.listings[i]
		}
	}
	return nil
}

// GapOf returns the gap of a kind, such as Node; nil if it was listed, or if it is not read.
func (s *Objects) GapOf(kind string) *Gap {
	for i := range s.listings {
		if s.listings[i].kind.Kind == kind {
			return s.listings[i].gap
		}
	}
	return nil
}

type listing struct {
	kind schema.GroupVersionKind
	into cache.Store
	// namespace is the namespace to list; "" means all. If the list is denied and fallback is not
	// empty, fallback is listed instead.
	namespace, fallback string
	options             metav1.ListOptions
	// consequence describes the information that is missing if the list is denied; "" if the
	// command cannot continue without the list.
	consequence string
	owners      bool // whether the objects own pods
	found       bool // whether a dump has the kind
	gap         *Gap // nil if all objects could be listed
}

// resource returns the resource of the kind, whose name is its plural.
func (k *listing) resource() schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(k.kind)
	return plural
}

// List reads the cluster. It returns an error of the API server if the server is unavailable, does
// not authenticate the user, or does not let the user list pods.
func List(ctx context.Context, client kubernetes.Interface, scope Scope) (*Objects, error) {
	s, err := newObjects(client, scope)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range s.listings {
		group.Go(func() error { return s.listings[i].read(ctx, client.CoreV1().RESTClient()) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range s.listings {
		if of := &s.listings[i]; of.gap != nil && of.kind.Kind != "PriorityClass" && of.kind.Kind != "Namespace" &&
			(of.kind != nodePool || s.hasNodesOfPools()) {
			s.Gaps = append(s.Gaps, *of.gap)
			s.OwnersMissing = s.OwnersMissing || of.owners
		}
	}
	return s, nil
}

// nodePool is the kind of providers.NodePools. It is no kind of Kubernetes.
var nodePool = providers.NodePools.GroupVersion().WithKind("NodePool")

// newObject returns an empty object of a kind, or of its list.
func newObject(kind schema.GroupVersionKind) (runtime.Object, error) {
	switch {
	case kind.Group != nodePool.Group:
		return scheme.Scheme.New(kind)
	case kind.Kind == nodePool.Kind:
		return &unstructured.Unstructured{}, nil
	}
	return &unstructured.UnstructuredList{}, nil
}

// listings returns the lists of a scope: the largest first, although all requests are concurrent.
func listings(scope *Scope) []listing {
	core, apps := v1.SchemeGroupVersion.WithKind, appsv1.SchemeGroupVersion.WithKind
	pods := listing{
		kind: core("Pod"), namespace: scope.Namespace,
		// Pods that have ended count nowhere, and a cluster with Jobs has many.
		options: metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"},
	}
	if scope.AllPods && scope.Namespace != "" {
		pods.namespace, pods.fallback = "", scope.Namespace
		pods.consequence = "pods of other namespaces are not seen, so nodes seem to have more room than they have"
	}
	all := []listing{pods}
	for _, kind := range []schema.GroupVersionKind{
		apps("ReplicaSet"), apps("Deployment"), apps("StatefulSet"), core("ReplicationController"), batchv1.SchemeGroupVersion.WithKind("Job"),
	} {
		owners := listing{kind: kind, namespace: scope.Namespace, owners: true}
		owners.consequence = "the workloads of pods of " + owners.resource().Resource + " are unknown"
		all = append(all, owners)
	}
	all = append(all,
		listing{kind: core("Node"), consequence: "which pods run on spot is unknown"},
		listing{kind: nodePool, consequence: "which nodes Karpenter may add is unknown"},
		listing{kind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
			consequence: "which rules by priority apply to workloads without pods is unknown"},
		listing{kind: core("Namespace"), consequence: "which pods opt in by the label of their namespace is unknown"})
	if scope.Volumes {
		const consequence = "which nodes can reach a pod's volumes is unknown"
		all = append(all,
			listing{kind: core("PersistentVolumeClaim"), namespace: scope.Namespace, consequence: consequence},
			listing{kind: core("PersistentVolume"), consequence: consequence},
			listing{kind: storagev1.SchemeGroupVersion.WithKind("StorageClass"), consequence: consequence})
	}
	if scope.DisruptionBudgets {
		all = append(all, listing{kind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), namespace: scope.Namespace,
			consequence: "which evictions a PodDisruptionBudget blocks is unknown"})
	}
	return all
}

// read lists the objects, or sets the gap. client may be the client of any group. The API server
// may not serve NodePools.
func (k *listing) read(ctx context.Context, client rest.Interface) error {
	err := k.list(ctx, client, k.namespace)
	if apierrors.IsNotFound(err) && k.kind == nodePool {
		return nil
	}
	if !apierrors.IsForbidden(err) || k.consequence == "" {
		return err
	}
	k.gap = &Gap{err, k.consequence}
	if k.fallback != "" {
		return k.list(ctx, client, k.fallback)
	}
	return nil
}

// pageSize is how many objects the API server returns at a time. A larger page costs memory on both
// sides, a smaller one time.
const pageSize = 1000

// list adds the objects of a namespace, or of all namespaces if it is empty, to the cache, without
// the fields that nothing reads. After an error the cache contains only a part.
func (k *listing) list(ctx context.Context, client rest.Interface, namespace string) error {
	apiPath := "/apis"
	if k.kind.Group == "" {
		apiPath = "/api"
	}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		list, err := newObject(k.kind.GroupVersion().WithKind(k.kind.Kind + "List"))
		if err != nil {
			return nil, err
		}
		err = client.Get().AbsPath(rest.DefaultVersionedAPIPath(apiPath, k.kind.GroupVersion())).
			NamespaceIfScoped(namespace, namespace != "").Resource(k.resource().Resource).
			VersionedParams(&options, scheme.ParameterCodec).Do(ctx).Into(list)
		return list, err
	})
	pages.PageSize = pageSize
	pages.PageBufferSize = 2 // the next pages are read while one is stored
	trimmer := transform.NewMovedPodTrimmer()
	err := pages.EachListItem(ctx, k.options, func(object runtime.Object) error {
		if accessor, ok := object.(metav1.Object); ok {
			accessor.SetManagedFields(nil)
		}
		trimmed, err := trimmer.Trim(object)
		if err != nil {
			return err
		}
		return k.into.Add(trimmed)
	})
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		return err // an error of the API server names the resource
	}
	return fmt.Errorf("list of %s: %w", k.resource().Resource, err)
}

// Factory returns the factory whose informers have the caches. It must not be started.
func (s *Objects) Factory() informers.SharedInformerFactory { return s.factory }

// Snapshot returns the cluster under the policy, for the pods that scope includes. signals contains
// all signals.
func (s *Objects) Snapshot(
	policy *decision.Policy, signals []providers.Signal, scope workload.Scope, now time.Time,
) (*snapshot.Snapshot, error) {
	reader, err := snapshot.NewReader(s.factory, policy, signals, scope, 0)
	if err != nil {
		return nil, err
	}
	read, err := reader.Snapshot(now)
	if err == nil {
		read.JudgeByNodes(policy, s.Pools())
	}
	return read, err
}

// Pools returns the NodePools that were read.
func (s *Objects) Pools() *workload.Pools {
	var read []providers.NodePool
	for _, object := range s.listing(nodePool.GroupKind()).into.List() {
		read = append(read, providers.ReadNodePool(object.(*unstructured.Unstructured)))
	}
	pools := &workload.Pools{}
	pools.SetPools(read)
	return pools
}

// hasNodesOfPools reports whether a node is of a NodePool, so that NodePools exist.
func (s *Objects) hasNodesOfPools() bool {
	nodes := s.factory.Core().V1().Nodes().Informer().GetStore().List()
	return slices.ContainsFunc(nodes, func(node any) bool { return node.(*v1.Node).Labels[providers.NodePoolLabel] != "" })
}

// Owners returns the lookup of the workloads behind pods.
func (s *Objects) Owners(policy *decision.Policy) (*workload.Owners, error) {
	return workload.NewOwners(s.factory, policy)
}

// Object returns the object of a workload. It is nil if the object does not exist, or if its kind
// is not read. Of apiVersion, only the group matters.
func (s *Objects) Object(apiVersion, kind, namespace, name string) metav1.Object {
	of := s.listing(schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()) // other groups also have a Job or a StatefulSet
	if of == nil {
		return nil
	}
	found, _, _ := of.into.GetByKey(cache.NewObjectName(namespace, name).String()) // a cache returns no error
	object, _ := found.(metav1.Object)
	return object
}
