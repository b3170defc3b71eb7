package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

const (
	// MaxBody is the maximum size of a request in bytes. 100,000 nodes take 3 MB with
	// nodeCacheCapable; without it, one node takes about 10 kB.
	MaxBody = 64 << 20
	// bodiesAtOnce limits the memory that all requests use together. Further requests wait in order
	// of arrival.
	bodiesAtOnce = 2 * MaxBody
	// decideTimeout is the maximum time for a request after its body was read, and the maximum time
	// that a request waits to be read.
	decideTimeout = 5 * time.Second
)

// Role reports which replica is the leader.
type Role interface {
	// Leads returns nil while this replica may decide, and otherwise the reason why it may not.
	Leads() error
	// Leader returns the address of the leader as host:port; "" if it is unknown or if this replica
	// is the leader.
	Leader() string
}

// filterVerb is the only verb whose answer has an error field.
const filterVerb = "filter"

// handler serves the verbs of an extender.
type handler struct {
	extender *Extender
	role     Role
	// transport and scheme are for requests to the leader.
	transport *http.Transport
	scheme    string
	memory    *semaphore.Weighted
}

// verb makes the decision about the request in body and returns the answer, which is encoded as
// JSON. It returns an error if no decision is possible or the request is invalid.
type verb func(ctx context.Context, body []byte) (answer any, err error)

// NewHandler returns a handler for POST /filter, /prioritize and /preempt. While role reports that
// this replica does not lead, it forwards requests to the leader over connections of dialTLS; nil
// means plain HTTP.
func NewHandler(extender *Extender, role Role, dialTLS DialTLS) http.Handler {
	h := &handler{extender: extender, role: role, memory: semaphore.NewWeighted(bodiesAtOnce)}
	h.transport, h.scheme = newTransport(dialTLS)
	mux := http.NewServeMux()
	for name, do := range map[string]verb{filterVerb: h.filter, "prioritize": h.prioritize, "preempt": h.preempt} {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			outcome := h.serve(w, r, do)
			requestDuration.WithLabelValues(name, outcome).Observe(time.Since(began).Seconds())
		})
	}
	return mux
}

// The outcomes of a request, which are values of a metric label.
const (
	answered  = "answered"
	forwarded = "forwarded"
	refused   = "refused"
	failed    = "failed"
)

// badRequest is an error of the client.
type badRequest struct {
	status int
	error
}

// notLeading is the reason why this replica does not decide.
type notLeading struct{ error }

// ifLeading calls decide if this replica leads, or if the policy does not apply to pod: every
// replica passes such pods.
func (h *handler) ifLeading(pod *v1.Pod, decide func() (any, error)) (any, error) {
	if !h.extender.appliesTo(pod) {
		return decide()
	}
	if err := h.role.Leads(); err != nil {
		return nil, notLeading{err}
	}
	answer, err := decide()
	if err != nil {
		return nil, err
	}
	// If the lease expired during the decision, another replica may have decided too.
	return answer, h.role.Leads()
}

// serve answers one request.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, do verb) (outcome string) {
	body, release, err := h.read(w, r)
	if err != nil {
		return h.fail(w, r, err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), decideTimeout)
	defer cancel()
	result, err := do(ctx, body)
	if standby := (notLeading{}); errors.As(err, &standby) {
		if err := h.forwardToLeader(w, r.WithContext(ctx), body); err != nil {
			return h.fail(w, r, fmt.Errorf("%w; %w", standby.error, err))
		}
		return forwarded
	}
	if err != nil {
		return h.fail(w, r, err)
	}
	answer, err := json.Marshal(result)
	if err != nil {
		return h.fail(w, r, fmt.Errorf("encoding the answer: %w", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer))) // avoids chunked encoding
	_, _ = w.Write(answer)                                      // if it fails, the client has disconnected and will retry
	return answered
}

// read reads the body of a request. The caller calls release when it no longer needs the body.
func (h *handler) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	size := r.ContentLength
	if size > MaxBody {
		return nil, nil, badRequest{http.StatusRequestEntityTooLarge, fmt.Errorf("expected a body of at most %d bytes", MaxBody)}
	}
	if size < 0 {
		// A body of unknown length would have to count with MaxBody. Two such bodies would block
		// all other requests.
		return nil, nil, badRequest{http.StatusLengthRequired, errors.New("expected a Content-Length")}
	}
	ctx, cancel := context.WithTimeout(r.Context(), decideTimeout)
	defer cancel()
	if err := h.memory.Acquire(ctx, size); err != nil {
		return nil, nil, fmt.Errorf("waiting for memory: %w", err)
	}
	release = func() { h.memory.Release(size) }
	body = make([]byte, size) // growing step by step would need up to three times as much memory
	if _, err := io.ReadFull(r.Body, body); err != nil {
		release()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = badRequest{http.StatusRequestTimeout, fmt.Errorf("timed out reading the body: %w", err)}
		} else {
			err = badRequest{http.StatusBadRequest, fmt.Errorf("reading the body: %w", err)}
		}
		return nil, nil, err
	}
	return body, release, nil
}

// fail answers with an error.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) (outcome string) {
	status, outcome := http.StatusServiceUnavailable, failed
	if bad := (badRequest{}); errors.As(err, &bad) {
		status, outcome = bad.status, refused
		w.Header().Set("Connection", "close") // the client may still be sending the body
	}
	klog.FromContext(r.Context()).V(2).Info("Request failed", "path", r.URL.Path, "client", r.RemoteAddr, "status", status, "err", err.Error())
	if outcome == failed && r.URL.Path == "/"+filterVerb {
		// kube-scheduler reads only the status of an answer other than 200: the pod's condition
		// would lack the reason, and the connection would be closed. An answer with an error is not
		// an approval.
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(filterResult{Error: err.Error()})
		return outcome
	}
	http.Error(w, err.Error(), status)
	return outcome
}

// answer decodes the body of a filter or prioritize request, and calls decide as ifLeading does.
func (h *handler) answer(body []byte, decide func(*request) (any, error)) (any, error) {
	request, err := readRequest(body)
	switch {
	case errors.Is(err, errTooMany):
		return nil, badRequest{http.StatusRequestEntityTooLarge, err}
	case err != nil:
		return nil, badRequest{http.StatusBadRequest, err}
	}
	return h.ifLeading(request.pod, func() (any, error) { return decide(request) })
}

func (h *handler) filter(ctx context.Context, body []byte) (any, error) {
	return h.answer(body, func(request *request) (any, error) {
		result, err := h.extender.filter(ctx, request.pod, request.candidates)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Decision failed", "pod", klog.KObj(request.pod), "err", err.Error())
			return filterResult{Error: err.Error()}, nil
		}
		return request.filtered(&result), nil
	})
}

func (h *handler) prioritize(_ context.Context, body []byte) (any, error) {
	return h.answer(body, func(request *request) (any, error) {
		scores, err := h.extender.scores(request.pod, request.candidates)
		return request.priorities(scores), err
	})
}

// preempt returns the preemption candidates that the policy permits for the pod. The scheduler's
// preemption simulation does not ask extenders. Without this verb it would evict pods from nodes
// that the pod may not use.
func (h *handler) preempt(_ context.Context, body []byte) (any, error) {
	pod, permitted, err := readPreemption(body)
	if err != nil {
		return nil, badRequest{http.StatusBadRequest, err}
	}
	return h.ifLeading(pod, func() (any, error) {
		open, err := h.extender.preemptionNodes(pod, slices.Collect(maps.Keys(permitted)))
		maps.DeleteFunc(permitted, func(name string, _ *extenderv1.MetaVictims) bool { return !open[name] })
		return extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: permitted}, err
	})
}
