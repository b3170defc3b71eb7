// Package listertest provides an in-memory API server for tests. It contains objects, and responds
// to get and list requests in protobuf.
package listertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Server is an API server with objects of Kubernetes' built-in kinds, and NodePools. It supports
// label selectors, and the field selector metadata.name. It ignores other field selectors.
type Server struct {
	// URL is the address of the server until the end of the test, without TLS or credentials. It is
	// invalid if the server does not listen.
	URL string
	// Deny contains the resources that the user may not list or get: "pods" in all namespaces,
	// "pods/shop" in that namespace, "pods/*" only for a list over all namespaces, "log" and
	// "proxy" for these parts of pods.
	Deny []string
	// Text is the log and the metrics of all pods.
	Text string

	t       testing.TB
	objects []runtime.Object
}

// New returns a server with these objects that does not listen; use Client. It fails the test at
// every request that is not a read.
func New(t testing.TB, objects ...runtime.Object) *Server {
	return &Server{URL: "http://nowhere.invalid", t: t, objects: objects}
}

// Start is like New, but the server listens.
func Start(t testing.TB, objects ...runtime.Object) *Server {
	t.Helper()
	s := New(t, objects...)
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Client returns a client that reaches the server without the network, so it also works in a bubble
// of testing/synctest.
func (s *Server) Client() kubernetes.Interface {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, Transport: transport{s}, ContentConfig: rest.ContentConfig{
		ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON}})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

type transport struct{ *Server }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	t.serve(recorder, request)
	return recorder.Result(), nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Query().Has("watch") {
		s.t.Errorf("%s %s: want only reads", r.Method, r.URL)
	}
	if r.URL.Path == "/version" {
		_, _ = w.Write([]byte(`{"gitVersion": "v1.99.0-test"}`))
		return
	}
	// /api/v1/namespaces/NAMESPACE/pods/NAME, the same with /log or /proxy/metrics, or
	// /apis/apps/v1/deployments. No client requests a namespace itself.
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{Version: parts[1]}
	parts = parts[2:]
	if strings.HasPrefix(r.URL.Path, "/apis/") {
		gv, parts = schema.GroupVersion{Group: gv.Version, Version: parts[0]}, parts[1:]
	}
	namespace := ""
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource = parts[2]
	}
	if s.denies(resource, namespace) {
		message := fmt.Errorf("user cannot list resource %q in API group %q", resource, gv.Group)
		s.respond(w, http.StatusForbidden, new(apierrors.NewForbidden(gv.WithResource(resource).GroupResource(), "", message).Status()))
		return
	}
	if len(parts) > 2 {
		_, _ = w.Write([]byte(s.Text))
		return
	}
	named, byName := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	var found []runtime.Object
	for _, object := range s.objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			s.t.Error(err)
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
		accessor, _ := meta.Accessor(object)
		if plural == gv.WithResource(resource) && (namespace == "" || accessor.GetNamespace() == namespace) &&
			(len(parts) == 1 || accessor.GetName() == parts[1]) && (!byName || accessor.GetName() == named) &&
			matches(accessor, r.URL.Query().Get("labelSelector")) {
			found = append(found, object)
		}
	}
	if len(parts) > 1 {
		if len(found) == 0 {
			s.respond(w, http.StatusNotFound, new(apierrors.NewNotFound(gv.WithResource(resource).GroupResource(), parts[1]).Status()))
			return
		}
		s.respond(w, http.StatusOK, found[0])
		return
	}
	s.list(w, r, gv, resource, found)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, resource string, found []runtime.Object) {
	if gv.Group == providers.NodePools.Group {
		s.listNodePools(w, gv.WithResource(resource).GroupResource(), found)
		return
	}
	for kind := range scheme.Scheme.KnownTypes(gv) {
		item, isList := strings.CutSuffix(kind, "List")
		if plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(item)); !isList || plural.Resource != resource {
			continue
		}
		list, err := scheme.Scheme.New(gv.WithKind(kind))
		if err != nil {
			s.t.Error(err)
		}
		if err := meta.SetList(list, found); err != nil {
			s.t.Error(err)
		}
		s.respond(w, http.StatusOK, list)
		return
	}
	s.t.Errorf("%s: no such resource", r.URL)
}

// listNodePools responds as an API server without NodePools if there are none.
func (s *Server) listNodePools(w http.ResponseWriter, resource schema.GroupResource, found []runtime.Object) {
	if len(found) == 0 {
		s.respond(w, http.StatusNotFound, new(apierrors.NewNotFound(resource, "").Status()))
		return
	}
	version := providers.NodePools.GroupVersion().String()
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": version, "kind": "NodePoolList"}}
	for _, pool := range found {
		list.Items = append(list.Items, *pool.(*unstructured.Unstructured))
	}
	data, err := list.MarshalJSON()
	if err != nil {
		s.t.Error(err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_, _ = w.Write(data)
}

func (s *Server) respond(w http.ResponseWriter, status int, object runtime.Object) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer,
		schema.GroupVersions(scheme.Scheme.PrioritizedVersionsAllGroups())), object)
	if err != nil {
		s.t.Error(err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

func (s *Server) denies(resource, namespace string) bool {
	return slices.ContainsFunc(s.Deny, func(denied string) bool {
		return denied == resource || denied == resource+"/"+namespace && namespace != "" || denied == resource+"/*" && namespace == ""
	})
}

func matches(object metav1.Object, selector string) bool {
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(labels.Set(object.GetLabels()))
}
