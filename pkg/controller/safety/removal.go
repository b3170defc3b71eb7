package safety

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
)

// Removal describes a request that removes or releases a pod, or that taints a node.
type Removal struct {
	// ID identifies the request in the log, in events and in the ledger.
	ID    string
	Cause Cause
	// Namespace and Pod are the names of the pod; "" for a taint.
	Namespace, Pod string
	// Workload is the kind and the name of the workload that loses the pod, such as
	// "Deployment/web"; "" if it is unknown. Pods of unknown workloads of a namespace count as one
	// workload.
	Workload string
	// Starts reports whether the request begins a move: it releases a pod, or removes a pod that
	// was not released. Limits and schedules apply only to starts.
	Starts bool
}

// NewID returns a new identifier of a Removal. Two of a million are equal with a probability of
// about 1 %.
func NewID() string { return rand.String(10) }

type removalKey struct{}

// WithRemoval returns a context whose requests perform r.
func WithRemoval(ctx context.Context, r Removal) context.Context {
	return context.WithValue(ctx, removalKey{}, r)
}

// FromContext returns the Removal of a context; false if it has none.
func FromContext(ctx context.Context) (Removal, bool) {
	r, ok := ctx.Value(removalKey{}).(Removal)
	return r, ok
}

// Switches are what users can switch at run time.
type Switches interface {
	// Paused reports whether requests with the cause are paused, and the message for users.
	Paused(Cause) (message string, paused bool)
	// Breaker returns whether a user forces the breaker to be open; nil if the breaker decides.
	Breaker() (forced *bool)
}

// errNoRemoval is returned for a request that removes pods without a Removal in its context.
var errNoRemoval = errors.New("bug: request to remove a pod without a cause")

// PausedError is returned for a request that a user has paused.
type PausedError struct {
	Cause   Cause
	Message string
}

// Error implements error.
func (e *PausedError) Error() string { return fmt.Sprintf("paused (%s): %s", e.Cause, e.Message) }

// Enforce returns a transport that asks g before each request that changes an object and has a
// Removal in its context. A request that removes pods without a Removal fails.
func (g *Gate) Enforce(next http.RoundTripper) http.RoundTripper {
	return Transport(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet {
			return next.RoundTrip(request)
		}
		r, marked := FromContext(request.Context())
		removes := RemovesPods(request)
		if !marked && !removes {
			return next.RoundTrip(request)
		}
		err := errNoRemoval
		if marked {
			err = g.Allow(request.Context(), r)
		}
		if err != nil {
			return Refuse(request, err)
		}
		response, err := next.RoundTrip(request)
		g.answered(r, removes, response)
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
