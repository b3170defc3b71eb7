package safety

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Removal describes a request that removes or releases a pod, or that taints a node.
type Removal struct {
	Cause Cause
	// Pod is the UID of the pod; "" for a taint. All requests for a pod belong to one move, which
	// has this UID in the log, in events and in the ledger.
	Pod       types.UID
	Namespace string
	// Workload is the kind and the name of the workload that loses the pod, such as
	// "Deployment/web"; "" if it is unknown. Pods of unknown workloads of a namespace count as one
	// workload.
	Workload string
	// Starts reports whether the request begins a move: it releases a pod, or removes a pod that
	// was not released. Limits and schedules apply only to starts.
	Starts bool
}

type removalKey struct{}

// WithRemoval returns a context whose requests perform r.
func WithRemoval(ctx context.Context, r Removal) context.Context {
	return context.WithValue(ctx, removalKey{}, r)
}

// Enforce returns a transport that asks g before each request that changes an object and has a
// Removal in its context. A request that removes pods without a Removal fails.
func (g *Gate) Enforce(next http.RoundTripper) http.RoundTripper {
	return Transport(func(request *http.Request) (*http.Response, error) {
		r, marked := request.Context().Value(removalKey{}).(Removal)
		removes := RemovesPods(request)
		var err error
		switch {
		case request.Method == http.MethodGet:
		case marked:
			err = g.Allow(request.Context(), r)
		case removes:
			err = errors.New("bug: request to remove a pod without a cause")
		}
		if err != nil {
			return Refuse(request, err)
		}
		response, err := next.RoundTrip(request)
		if removes && response != nil && response.StatusCode < http.StatusMultipleChoices {
			removals.WithLabelValues(string(r.Cause)).Inc()
		}
		return response, err
	})
}

// Transport is a function as an http.RoundTripper.
type Transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// Refuse returns err for a request that is not sent. It closes the body, as required of every
// RoundTripper.
func Refuse(request *http.Request, err error) (*http.Response, error) {
	if request.Body != nil {
		_ = request.Body.Close() // it was not read
	}
	return nil, err
}

// RemovesPods reports whether a request evicts a pod or deletes pods.
func RemovesPods(request *http.Request) bool {
	_, path, _ := strings.Cut(request.URL.Path, "/api/v1/namespaces/") // a proxy may add a prefix
	parts := strings.Split(path, "/")                                  // NAMESPACE/pods/NAME/eviction
	if len(parts) < 2 || parts[1] != "pods" {
		return false
	}
	return request.Method == http.MethodDelete || len(parts) == 4 && parts[3] == "eviction"
}
