// Package survey reads a cluster once, for a command that answers a question and ends: plain lists, all at a time, into the caches that a
// cluster.Reader takes its Snapshot of. It asks for no watch, so the rights to list are enough; what it may not list is a Gap, not an error,
// as long as there is something to tell without it.
package survey

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"golang.org/x/sync/errgroup"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Scope says what is to be read.
type Scope struct {
	// Namespace is the one whose pods and owners of pods are read; "" for all.
	Namespace string
	// AllPods: the pods of all namespaces are read, also where the owners of one are enough: they take up room.
	AllPods bool
	// Volumes: claims and volumes are read, which say where a pod can run.
	Volumes bool
	// Idle: workloads that are scaled to 0 are among Wanted.
	Idle bool
}

// Gap is something that could not be read.
type Gap struct {
	// Err is the API server's: it names the user, the verb and the resource.
	Err error
	// Means is what is not known because of it.
	Means string
}

func (g Gap) String() string { return fmt.Sprintf("%v: %s", g.Err, g.Means) }

// Survey is what was read. Its methods must not be called concurrently.
type Survey struct {
	// Scope is what was to be read.
	Scope Scope
	// Gaps are what was not; Nodes and what makes NoOwners true are among them.
	Gaps []Gap
	// Nodes is the gap where nodes could not be listed, so that nothing is known of any; else nil.
	Nodes *Gap
	// NoOwners: some kind of owner could not be listed, so that some pods seem to belong to nothing.
	NoOwners bool
	// Priorities is the gap where PriorityClasses could not be listed, else nil. It is not among Gaps: only rules by priority ask for them,
	// and only of workloads without pods.
	Priorities *Gap

	factory informers.SharedInformerFactory
	labels  map[workload]labels.Set // what podLabels returns; nil before
}

// kind is one kind of object that is read.
type kind struct {
	list func(ctx context.Context, client rest.Interface, resource, namespace string, options metav1.ListOptions, into cache.Store) error
	// client and resource are where it is read.
	client   rest.Interface
	resource string
	into     cache.SharedIndexInformer
	// namespace is the one of which it is read, "" for all; fallback, if not nil, is that of which it is read when that is denied.
	namespace string
	fallback  *string
	options   metav1.ListOptions
	// means is what is not known without it, partly what is not known if only fallback could be read.
	means, partly string
	// missed is told the Gap.
	missed func(Gap)
	// needed: there is nothing to tell without it.
	needed bool
}

// Take reads the cluster. The error is the API server's: it cannot be reached, knows nobody of that name, or denies the pods.
func Take(ctx context.Context, client kubernetes.Interface, scope Scope) (*Survey, error) {
	s := &Survey{Scope: scope, factory: informers.NewSharedInformerFactory(client, 0)} // never started: it only makes the caches
	// This adds the indexes, which are then filled while the API server is at work instead of in the end. They are the same for every policy.
	if _, err := s.Owners(nil); err != nil {
		return nil, err
	}
	kinds := s.kinds(client, scope)
	gaps := make([]*Gap, len(kinds))
	group, ctx := errgroup.WithContext(ctx)
	for i := range kinds {
		group.Go(func() (err error) {
			gaps[i], err = kinds[i].read(ctx)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, gap := range gaps {
		if gap != nil {
			kinds[i].missed(*gap)
		}
	}
	return s, nil
}

func (s *Survey) kinds(client kubernetes.Interface, scope Scope) []kind {
	core, apps, batch := client.CoreV1().RESTClient(), client.AppsV1().RESTClient(), client.BatchV1().RESTClient()
	missed := func(gap Gap) { s.Gaps = append(s.Gaps, gap) }
	inCore, inApps, inBatch := s.factory.Core().V1(), s.factory.Apps().V1(), s.factory.Batch().V1()
	pods := kind{
		list: list[v1.Pod], client: core, resource: "pods", into: inCore.Pods().Informer(), namespace: scope.Namespace, needed: true, missed: missed,
		// Pods that have ended count nowhere, and a cluster with Jobs has many.
		options: metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"},
	}
	if scope.AllPods && scope.Namespace != "" {
		pods.namespace, pods.fallback = "", &scope.Namespace
		pods.partly = "pods of other namespaces are not seen, so nodes seem to have more room than they have"
	}
	// The largest first: all are asked for at once.
	all := []kind{
		pods,
		{list: list[appsv1.ReplicaSet], client: apps, resource: "replicasets", into: inApps.ReplicaSets().Informer()},
		{list: list[appsv1.Deployment], client: apps, resource: "deployments", into: inApps.Deployments().Informer()},
		{list: list[appsv1.StatefulSet], client: apps, resource: "statefulsets", into: inApps.StatefulSets().Informer()},
		{list: list[v1.ReplicationController], client: core, resource: "replicationcontrollers", into: inCore.ReplicationControllers().Informer()},
		{list: list[batchv1.Job], client: batch, resource: "jobs", into: inBatch.Jobs().Informer()},
	}
	for i := range all[1:] {
		owner := &all[1+i]
		owner.namespace, owner.means = scope.Namespace, "what pods of "+owner.resource+" belong to is not known"
		owner.missed = func(gap Gap) {
			s.NoOwners = true
			missed(gap)
		}
	}
	all = append(all, kind{
		list: list[v1.Node], client: core, resource: "nodes", into: inCore.Nodes().Informer(),
		means: "which pods stand on spot is not known",
		missed: func(gap Gap) {
			s.Nodes = &gap
			missed(gap)
		},
	}, kind{
		list: list[schedulingv1.PriorityClass], client: client.SchedulingV1().RESTClient(), resource: "priorityclasses",
		into:   s.factory.Scheduling().V1().PriorityClasses().Informer(),
		means:  "which rules by priority hold for workloads without pods is not known",
		missed: func(gap Gap) { s.Priorities = &gap },
	})
	if scope.Volumes {
		const means = "where a pod's volumes can be reached is not known"
		all = append(all,
			kind{list: list[v1.PersistentVolumeClaim], client: core, resource: "persistentvolumeclaims",
				into: inCore.PersistentVolumeClaims().Informer(), namespace: scope.Namespace, means: means, missed: missed},
			kind{list: list[v1.PersistentVolume], client: core, resource: "persistentvolumes", into: inCore.PersistentVolumes().Informer(), means: means, missed: missed})
	}
	return all
}

// read reads the objects of a kind. The gap is nil if all could be read.
func (k *kind) read(ctx context.Context) (*Gap, error) {
	err := k.list(ctx, k.client, k.resource, k.namespace, k.options, k.into.GetStore())
	var gap *Gap
	if apierrors.IsForbidden(err) && k.fallback != nil {
		gap = &Gap{err, k.partly}
		err = k.list(ctx, k.client, k.resource, *k.fallback, k.options, k.into.GetStore())
	}
	if apierrors.IsForbidden(err) && !k.needed {
		return &Gap{err, k.means}, nil
	}
	if err != nil {
		return nil, err
	}
	return gap, nil
}

// Snapshot returns the cluster as a policy reads it, for the pods that name profile as their scheduler. signals are all there are.
func (s *Survey) Snapshot(policy *decision.Policy, signals []kube.Signal, profile string, now time.Time) (*cluster.Snapshot, error) {
	reader, err := cluster.NewReader(s.factory, policy, signals, profile, 0)
	if err != nil {
		return nil, err
	}
	return reader.Snapshot(now)
}

// Owners returns what looks up the workloads behind pods.
func (s *Survey) Owners(policy *decision.Policy) (*kube.Owners, error) {
	return kube.NewOwners(s.factory, policy)
}

// Labels returns the labels of a workload's own object, or of one of a kind that is not read here those that all its pods have; none if
// there is no such workload. Of apiVersion the group counts.
func (s *Survey) Labels(apiVersion, kind, namespace, name string) labels.Set {
	var object metav1.Object
	var err error
	of := workload{schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind(), namespace, name}
	switch of.kind.String() { // others have a Job or a StatefulSet, too
	case "Deployment.apps":
		object, err = s.factory.Apps().V1().Deployments().Lister().Deployments(namespace).Get(name)
	case "ReplicaSet.apps":
		object, err = s.factory.Apps().V1().ReplicaSets().Lister().ReplicaSets(namespace).Get(name)
	case "StatefulSet.apps":
		object, err = s.factory.Apps().V1().StatefulSets().Lister().StatefulSets(namespace).Get(name)
	case "ReplicationController":
		object, err = s.factory.Core().V1().ReplicationControllers().Lister().ReplicationControllers(namespace).Get(name)
	case "Job.batch":
		object, err = s.factory.Batch().V1().Jobs().Lister().Jobs(namespace).Get(name)
	case "Pod":
		object, err = s.factory.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	default:
		return s.podLabels()[of]
	}
	if err != nil {
		return nil
	}
	return object.GetLabels()
}

// workload names one.
type workload struct {
	kind            schema.GroupKind
	namespace, name string
}

// podLabels returns the labels that all pods of a workload have, of those whose kind is not read here.
func (s *Survey) podLabels() map[workload]labels.Set {
	if s.labels != nil {
		return s.labels
	}
	s.labels = map[workload]labels.Set{}
	for _, object := range s.factory.Core().V1().Pods().Informer().GetStore().List() {
		pod, ok := object.(*v1.Pod)
		if !ok || !kube.CountedByPods(pod) {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(pod)
		of := workload{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), pod.Namespace, ref.Name}
		if common, ok := s.labels[of]; ok {
			maps.DeleteFunc(common, func(key, value string) bool {
				other, ok := pod.Labels[key]
				return !ok || other != value
			})
		} else {
			s.labels[of] = maps.Clone(pod.Labels)
		}
	}
	return s.labels
}

// Denied reports whether an error of Take is that of a user who may not list pods.
func Denied(err error) bool { return apierrors.IsForbidden(err) }
