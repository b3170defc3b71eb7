package main

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestSelects(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, team := range map[string]string{"shop": "a", "mail": "b"} {
		if err := indexer.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}); err != nil {
			t.Fatal(err)
		}
	}
	namespaces := corelisters.NewNamespaceLister(indexer)
	if selects(namespaces, nil) != nil {
		t.Error("without a selector something is asked of each namespace")
	}
	for selector, want := range map[string]map[string]bool{
		"team=a":  {"shop": true, "mail": false, "unknown": false},
		"team!=a": {"shop": false, "mail": true, "unknown": false},
	} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range want {
			if got := selects(namespaces, parsed)(name); got != want {
				t.Errorf("%s selects %s: %t, want %t", selector, name, got, want)
			}
		}
	}
}
