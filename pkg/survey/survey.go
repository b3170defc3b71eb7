// Package survey reads a cluster once, for a command that answers a question and ends: plain lists, all at a time, into the caches that a
// cluster.Reader takes its Snapshot of. It asks for no watch, so the rights to list are enough; what it may not list is a Gap, not an error,
// as long as there is something to tell without it.
package survey

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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
	// Gaps are what was not; NoNodes and NoOwners are among them.
	Gaps []Gap
	// NoNodes: nothing is known of any node. NoOwners: some kind of owner could not be listed, so that some pods seem to belong to nothing.
	NoNodes, NoOwners bool

	factory informers.SharedInformerFactory
}

// kind is one kind of object that is read.
type kind struct {
	list func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error)
	into cache.SharedIndexInformer
	// namespace is where it is read, "" everywhere; fallback, if not nil, is where it is read when that is denied.
	namespace string
	fallback  *string
	options   metav1.ListOptions
	// means is what is not known without it, partly what is not known if only fallback could be read.
	means, partly string
	// gap, if not nil, becomes true without it.
	gap *bool
	// needed: there is nothing to tell without it.
	needed bool
}

// Take reads the cluster. The error is the API server's: it cannot be reached, knows nobody of that name, or denies the pods.
func Take(ctx context.Context, client kubernetes.Interface, scope Scope) (*Survey, error) {
	s := &Survey{factory: informers.NewSharedInformerFactory(client, 0)} // never started: it only makes the caches
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
		if gap == nil {
			continue
		}
		s.Gaps = append(s.Gaps, *gap)
		if flag := kinds[i].gap; flag != nil && gap.Means == kinds[i].means {
			*flag = true
		}
	}
	return s, nil
}

func (s *Survey) kinds(client kubernetes.Interface, scope Scope) []kind {
	core, apps, batch := client.CoreV1(), client.AppsV1(), client.BatchV1()
	inCore, inApps := s.factory.Core().V1(), s.factory.Apps().V1()
	owners := func(name string) string { return "what pods of " + name + " belong to is not known" }
	pods := kind{
		list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return core.Pods(namespace).List(ctx, options)
		},
		into: inCore.Pods().Informer(), namespace: scope.Namespace, needed: true,
		// Pods that have ended count nowhere, and a cluster with Jobs has many.
		options: metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"},
	}
	if scope.AllPods && scope.Namespace != "" {
		pods.namespace, pods.fallback = "", &scope.Namespace
		pods.partly = "pods of other namespaces are not seen, so nodes seem to have more room than they have"
	}
	all := []kind{
		pods,
		{list: func(ctx context.Context, _ string, options metav1.ListOptions) (runtime.Object, error) {
			return core.Nodes().List(ctx, options)
		},
			into: inCore.Nodes().Informer(), gap: &s.NoNodes, means: "which pods stand on spot is not known"},
		{list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return apps.ReplicaSets(namespace).List(ctx, options)
		}, into: inApps.ReplicaSets().Informer(), namespace: scope.Namespace, gap: &s.NoOwners, means: owners("ReplicaSets and Deployments")},
		{list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return apps.Deployments(namespace).List(ctx, options)
		}, into: inApps.Deployments().Informer(), namespace: scope.Namespace, gap: &s.NoOwners, means: owners("Deployments")},
		{list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return apps.StatefulSets(namespace).List(ctx, options)
		}, into: inApps.StatefulSets().Informer(), namespace: scope.Namespace, gap: &s.NoOwners, means: owners("StatefulSets")},
		{list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return core.ReplicationControllers(namespace).List(ctx, options)
		}, into: inCore.ReplicationControllers().Informer(), namespace: scope.Namespace, gap: &s.NoOwners, means: owners("ReplicationControllers")},
		{list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return batch.Jobs(namespace).List(ctx, options)
		}, into: s.factory.Batch().V1().Jobs().Informer(), namespace: scope.Namespace, gap: &s.NoOwners, means: owners("Jobs")},
	}
	if scope.Volumes {
		const means = "where a pod's volumes can be reached is not known"
		all = append(all,
			kind{list: func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumeClaims(namespace).List(ctx, options)
			}, into: inCore.PersistentVolumeClaims().Informer(), namespace: scope.Namespace, means: means},
			kind{list: func(ctx context.Context, _ string, options metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumes().List(ctx, options)
			}, into: inCore.PersistentVolumes().Informer(), means: means})
	}
	return all
}

// read reads the objects of a kind. The gap is nil if all could be read.
func (k *kind) read(ctx context.Context) (*Gap, error) {
	// Version 0 is what the API server has in memory: it asks etcd for nothing. That may be seconds old.
	k.options.ResourceVersion = "0"
	list, err := k.list(ctx, k.namespace, k.options)
	var gap *Gap
	if apierrors.IsForbidden(err) && k.fallback != nil {
		gap = &Gap{err, k.partly}
		list, err = k.list(ctx, *k.fallback, k.options)
	}
	if apierrors.IsForbidden(err) && !k.needed {
		return &Gap{err, k.means}, nil
	}
	if err != nil {
		return nil, err
	}
	var objects []any
	if err := meta.EachListItem(list, func(object runtime.Object) error {
		strip(object)
		objects = append(objects, object)
		return nil
	}); err != nil {
		return nil, err
	}
	return gap, k.into.GetIndexer().Replace(objects, "")
}

// strip takes off what nobody reads here and is big.
func strip(object runtime.Object) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
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

// Denied reports whether an error of Take is that of a user who may not list pods.
func Denied(err error) bool { return apierrors.IsForbidden(err) }
