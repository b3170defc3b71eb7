package lister_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// podsFrom returns a client of an API server that answers lists of pods as serve does and all other
// lists with an empty one. It does not serve NodePools.
func podsFrom(t *testing.T, serve func(http.ResponseWriter, *http.Request)) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/pods"):
			serve(w, r)
		case strings.HasSuffix(r.URL.Path, "/nodepools"):
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, "{}")
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestPages: all pages of a list are read.
func TestPages(t *testing.T) {
	const pages = 3
	client := podsFrom(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") == "" {
			t.Errorf("asked for all pods at once: %s", r.URL)
		}
		page := len(r.URL.Query().Get("continue"))
		list := &v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", page), Namespace: "shop"}}}}
		if page < pages-1 {
			list.Continue = strings.Repeat("x", page+1)
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	})
	listed, err := lister.List(t.Context(), client, lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := listed.Snapshot(policy, nil, workload.Scope{Profile: "spot-aware-scheduler"}, now)
	if err != nil || len(snapshot.Pods) != pages {
		t.Errorf("%v, %d pods, want %d", err, len(snapshot.Pods), pages)
	}
}

// TestUnreadableList: an answer that is no list of pods, or ends early, is an error that names the
// resource.
func TestUnreadableList(t *testing.T) {
	for _, body := range []string{"", "pods", `{"items": [{"metadata"`, `{"items": [{"spec": 5}]}`} {
		client := podsFrom(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		if _, err := lister.List(t.Context(), client, lister.Scope{}); err == nil || !strings.Contains(err.Error(), "list of pods") {
			t.Errorf("%q: %v, want an error about the list of pods", body, err)
		}
	}
}
