package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// pages is a metadata client that only lists pods, page by page.
type pages struct {
	metadata.ResourceInterface
	pages   []*metav1.PartialObjectMetadataList
	failAt  int // the page that fails; 0 means none
	options []metav1.ListOptions
}

func (p *pages) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	p.options = append(p.options, options)
	if p.failAt == len(p.options) {
		return nil, errors.New("the continue token has expired")
	}
	return p.pages[len(p.options)-1], nil
}

func TestList(t *testing.T) {
	page := func(next string, names ...string) *metav1.PartialObjectMetadataList {
		page := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: next}}
		for _, name := range names {
			page.Items = append(page.Items, metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("uid-" + name)},
			})
		}
		return page
	}
	server := &pages{pages: []*metav1.PartialObjectMetadataList{page("next", "a", "b"), page("", "c")}}
	got := map[types.UID]types.NamespacedName{}
	if err := list(t.Context(), server, BoundPods, got); err != nil {
		t.Fatal(err)
	}
	want := map[types.UID]types.NamespacedName{
		"uid-a": {Namespace: "n", Name: "a"}, "uid-b": {Namespace: "n", Name: "b"}, "uid-c": {Namespace: "n", Name: "c"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	// With a resource version, in particular "0", the API server could return a state from its
	// cache.
	selector := "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	wantOptions := []metav1.ListOptions{{FieldSelector: selector, Limit: PageSize}, {FieldSelector: selector, Limit: PageSize, Continue: "next"}}
	if diff := cmp.Diff(wantOptions, server.options); diff != "" {
		t.Errorf("list options (-want +got):\n%s", diff)
	}

	server.options, server.failAt = nil, 2
	if list(t.Context(), server, BoundPods, got) == nil {
		t.Error("want the error of the second page")
	}
}

// The pods of all selectors must be in the cache.
func TestSelectors(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := map[string]string{BoundPods: "bound", NominatedPods: "nominated"}[r.URL.Query().Get("fieldSelector")]
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"namespace":"n","name":%q,"uid":%q}}]}`, name, name)
	}))
	defer server.Close()
	takeover, err := NewTakeover(&rest.Config{Host: server.URL}, nil, BoundPods, NominatedPods)
	if err != nil {
		t.Fatal(err)
	}
	got, err := takeover.List(t.Context())
	want := map[types.UID]types.NamespacedName{"bound": {Namespace: "n", Name: "bound"}, "nominated": {Namespace: "n", Name: "nominated"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("pods (-want +got):\n%s\n%v", diff, err)
	}
}
