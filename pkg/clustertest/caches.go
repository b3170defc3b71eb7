package clustertest

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
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
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	informer, err := factory.ForResource(resource)
	if err != nil {
		t.Fatal(err)
	}
	return informer.Informer().GetIndexer()
}
