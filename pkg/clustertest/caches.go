package clustertest

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// Fill adds objects to the caches of informers that are not started, or replaces them. It trims
// them as the informers of the programs do.
func Fill(t TB, factory informers.SharedInformerFactory, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		trimmed, err := transform.Trim(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := CacheOf(t, factory, object).Update(trimmed); err != nil {
			t.Fatal(err)
		}
	}
}

// CacheOf returns the informer cache for objects of the type of object.
func CacheOf(t TB, factory informers.SharedInformerFactory, object runtime.Object) cache.Indexer {
	t.Helper()
	core, apps := factory.Core().V1(), factory.Apps().V1()
	var informer cache.SharedIndexInformer
	switch object.(type) {
	case *v1.Node:
		informer = core.Nodes().Informer()
	case *v1.Pod:
		informer = core.Pods().Informer()
	case *v1.Namespace:
		informer = core.Namespaces().Informer()
	case *v1.Service:
		informer = core.Services().Informer()
	case *v1.PersistentVolume:
		informer = core.PersistentVolumes().Informer()
	case *v1.PersistentVolumeClaim:
		informer = core.PersistentVolumeClaims().Informer()
	case *v1.ReplicationController:
		informer = core.ReplicationControllers().Informer()
	case *appsv1.ReplicaSet:
		informer = apps.ReplicaSets().Informer()
	case *appsv1.Deployment:
		informer = apps.Deployments().Informer()
	case *appsv1.StatefulSet:
		informer = apps.StatefulSets().Informer()
	case *appsv1.DaemonSet:
		informer = apps.DaemonSets().Informer()
	case *batchv1.Job:
		informer = factory.Batch().V1().Jobs().Informer()
	case *policyv1.PodDisruptionBudget:
		informer = factory.Policy().V1().PodDisruptionBudgets().Informer()
	default:
		t.Fatalf("no cache for %T", object)
	}
	return informer.GetIndexer()
}
