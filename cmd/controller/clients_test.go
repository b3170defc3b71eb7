package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

var eviction = &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}

var removal = safety.Removal{Cause: safety.Drain, Pod: "uid", Namespace: "ns"}

// server is an API server that refuses every request for now, as it does if a PodDisruptionBudget
// forbids an eviction.
func server(t *testing.T) (*rest.Config, func() []string) {
	t.Helper()
	var methods []string
	s := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		methods = append(methods, request.Method)
		response.Header().Set("Retry-After", "10")
		response.Header().Set("Content-Type", "application/json")
		response.WriteHeader(http.StatusTooManyRequests)
		_, _ = response.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,` +
			`"details":{"retryAfterSeconds":10}}`))
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}, func() []string { return methods }
}

// A refusal is returned at once, with its Retry-After.
func TestRefusedAtOnce(t *testing.T) {
	config, methods := server(t)
	client, err := newWriter(config, 1000, permission{mayWrite: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = client.PolicyV1().Evictions("ns").Evict(safety.WithRemoval(t.Context(), removal), eviction)
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if took := time.Since(began); took > 5*time.Second || !apierrors.IsTooManyRequests(err) || !ok || seconds != 10 {
		t.Errorf("after %s: %v (in %d s), want TooManyRequests (in 10 s) at once", took, err, seconds)
	}
	if got := methods(); !slices.Equal(got, []string{"POST"}) {
		t.Errorf("requests %v, want one", got)
	}
}

// A leader with a stale lease and a dry run change nothing.
func TestGuard(t *testing.T) {
	for name, test := range map[string]struct {
		may  error
		want []string
	}{
		"leads":             {nil, []string{"GET", "PATCH", "DELETE", "POST"}},
		"has a stale lease": {errStaleLease, []string{"GET"}},
		"is a dry run":      {loop.ErrDryRun, []string{"GET"}},
	} {
		t.Run(name, func(t *testing.T) {
			config, methods := server(t)
			client, err := newWriter(config, 1000, permission{mayWrite: func() error { return test.may }})
			if err != nil {
				t.Fatal(err)
			}
			pods := client.CoreV1().Pods("ns")
			_, _ = pods.Get(t.Context(), "p", metav1.GetOptions{})
			_, patch := pods.Patch(t.Context(), "p", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			removing := safety.WithRemoval(t.Context(), removal)
			remove := pods.Delete(removing, "p", metav1.DeleteOptions{})
			evict := client.PolicyV1().Evictions("ns").Evict(removing, eviction)
			if got := methods(); !slices.Equal(got, test.want) {
				t.Errorf("requests %v, want %v", got, test.want)
			}
			for _, err := range []error{patch, remove, evict} {
				if test.may != nil && !errors.Is(err, test.may) {
					t.Errorf("%v, want %v", err, test.may)
				}
			}
		})
	}
}
