package extender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	v1 "k8s.io/api/core/v1"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
)

// MaxBody is the maximum size of a request in bytes. The names of 100,000 nodes take 3 to 7 MB.
const MaxBody = 16 << 20

// Role reports which replica is the leader.
type Role interface {
	// Leads returns nil while this replica may decide, and otherwise the reason why it may not.
	Leads() error
	// Leader returns the address of the leader as host:port; "" if it is unknown or if this replica
	// is the leader.
	Leader() string
}

// The verbs of the protocol. Only the answer of filterVerb has an error field.
const (
	filterVerb     = "filter"
	prioritizeVerb = "prioritize"
	preemptVerb    = "preempt"
)

// The outcomes of a request, which are values of a metric label.
const (
	answered   = "answered"
	redirected = "redirected"
	refused    = "refused"
	failed     = "failed"
)

// NewHandler returns a handler for POST /filter, /prioritize and /preempt. While role reports that
// another replica leads, it redirects requests to that replica.
func NewHandler(extender *Extender, role Role) http.Handler {
	mux := http.NewServeMux()
	for verb, answer := range map[string]answer{
		filterVerb: extender.answerFilter, prioritizeVerb: extender.answerPrioritize, preemptVerb: extender.answerPreempt,
	} {
		mux.HandleFunc("POST /"+verb, func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			outcome := extender.serve(w, r, verb, role, answer)
			requestDuration.WithLabelValues(verb, outcome).Observe(time.Since(began).Seconds())
		})
	}
	return mux
}

// answer returns the answer to a request, or an error if no decision is possible now.
type answer func(context.Context, *request) (any, error)

// serve answers one request. Every replica answers about pods to which the policy does not apply.
// Only the leader answers about other pods.
func (e *Extender) serve(w http.ResponseWriter, r *http.Request, verb string, role Role, answer answer) (outcome string) {
	request, err := read(http.MaxBytesReader(w, r.Body, MaxBody), verb)
	if err != nil {
		return refuse(w, r, err)
	}
	leads := func() error {
		if !e.appliesTo(request.Pod) {
			return nil
		}
		return role.Leads()
	}
	if err := leads(); err != nil {
		if leader := role.Leader(); leader != "" {
			// kube-scheduler follows the redirect, repeats the request, and verifies the leader's
			// certificate for the same name. The connection ends, so the next one may reach the
			// leader directly.
			w.Header().Set("Connection", "close")
			http.Redirect(w, r, "https://"+leader+r.URL.Path, http.StatusTemporaryRedirect)
			return redirected
		}
		return fail(w, r, verb, err)
	}
	result, err := answer(r.Context(), request)
	if err == nil {
		err = leads() // if the lease expired during the decision, another replica may have decided too
	}
	if err != nil {
		return fail(w, r, verb, err)
	}
	write(w, result)
	return answered
}

func write(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, answer) // if it fails, the client has disconnected and will retry
}

func refuse(w http.ResponseWriter, r *http.Request, err error) (outcome string) {
	status := http.StatusBadRequest
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		status, err = http.StatusRequestEntityTooLarge, fmt.Errorf("expected a body of at most %d bytes", tooLarge.Limit)
	}
	klog.FromContext(r.Context()).V(2).Info("Request failed", "path", r.URL.Path, "client", r.RemoteAddr, "status", status, "err", err.Error())
	w.Header().Set("Connection", "close") // the client may still be sending the body
	http.Error(w, err.Error(), status)
	return refused
}

// fail answers a request about which no decision is possible now. The scheduler retries the pod.
func fail(w http.ResponseWriter, r *http.Request, verb string, err error) (outcome string) {
	klog.FromContext(r.Context()).V(2).Info("Request failed", "path", r.URL.Path, "client", r.RemoteAddr, "err", err.Error())
	if verb == filterVerb {
		// kube-scheduler reads only the status of an answer other than 200: the pod's condition
		// would lack the reason, and the connection would be closed. An answer with an error is not
		// an approval.
		write(w, filterResult{Error: err.Error()})
	} else {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
	return failed
}

// request contains the fields of an extenderv1.ExtenderArgs and an ExtenderPreemptionArgs that the
// extender uses: a pod, and the nodes that fit the pod or would fit it after a preemption.
type request struct {
	Pod                   *v1.Pod
	NodeNames             *[]string
	NodeNameToMetaVictims map[string]*extenderv1.MetaVictims
}

// read decodes a request. An error names the field, and the expected value.
func read(body io.Reader, verb string) (*request, error) {
	r := &request{}
	if err := json.UnmarshalRead(body, r); err != nil {
		return nil, fmt.Errorf("expected the JSON of the arguments of %s: %w", verb, err)
	}
	switch {
	case r.Pod == nil:
		return nil, errors.New("args.Pod: expected the pod to schedule, got none")
	case r.Pod.Name == "" || r.Pod.UID == "":
		return nil, errors.New("args.Pod: expected one with metadata.name and metadata.uid")
	case verb != preemptVerb && r.NodeNames == nil:
		return nil, errors.New("args.NodeNames: expected the names of nodes (nodeCacheCapable: true), got none")
	case verb == preemptVerb && r.NodeNameToMetaVictims == nil:
		return nil, errors.New("args.NodeNameToMetaVictims: expected the names of nodes (nodeCacheCapable: true), got none")
	}
	for name, victims := range r.NodeNameToMetaVictims {
		if victims == nil || slices.Contains(victims.Pods, nil) {
			return nil, fmt.Errorf("args.NodeNameToMetaVictims[%q]: expected an object whose Pods are objects, got null", name)
		}
	}
	return r, nil
}

// filterResult contains the fields of an extenderv1.ExtenderFilterResult that the extender uses.
// All refusals are unresolvable: to remove other pods from a node changes neither the budget nor
// whether the node is about to be reclaimed, so preemption has nothing to look for there.
type filterResult struct {
	NodeNames                  *[]string         `json:",omitzero"`
	FailedAndUnresolvableNodes map[string]string `json:",omitzero"`
	Error                      string            `json:",omitzero"`
}

func (e *Extender) answerFilter(ctx context.Context, r *request) (any, error) {
	admitted, refused, err := e.filter(ctx, r.Pod, *r.NodeNames)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Decision failed", "pod", klog.KObj(r.Pod), "err", err.Error())
		return filterResult{Error: err.Error()}, nil
	}
	return filterResult{NodeNames: &admitted, FailedAndUnresolvableNodes: refused}, nil
}

func (e *Extender) answerPrioritize(_ context.Context, r *request) (any, error) {
	return e.scores(r.Pod, *r.NodeNames)
}

// answerPreempt returns the preemption candidates that the policy permits for the pod. The
// scheduler's preemption simulation does not ask extenders. Without this verb it would evict pods
// from nodes that the pod may not use.
func (e *Extender) answerPreempt(_ context.Context, r *request) (any, error) {
	err := e.admitPreemption(r.Pod, r.NodeNameToMetaVictims)
	return extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: r.NodeNameToMetaVictims}, err
}

// requestDuration is one of the metrics that only the extender has.
var requestDuration = metrics.NewHistogramVec("extender_request_duration_seconds",
	"Time from a request's headers to the end of its answer, by verb ('filter', 'prioritize', 'preempt') and outcome: 'answered', "+
		"'redirected' (to the leader), 'refused' (bad request) or 'failed' (no decision was possible; kube-scheduler retries).",
	// 50 us to 1.6 s: a request with 5,000 nodes takes less than a millisecond.
	basemetrics.ExponentialBuckets(50e-6, 2, 16), "verb", "outcome")

// RegisterMetrics registers the metrics with the registry of the Kubernetes components. It must be
// called once, with the result of Watch.
func (e *Extender) RegisterMetrics(synced func() bool) {
	legacyregistry.MustRegister(requestDuration)
	legacyregistry.RawMustRegister(metrics.NewGaugeFunc("extender_approved_pods",
		"Pods that an answer approved and that are not known to be bound yet. They count as if they were bound. "+
			"If the value only grows, the watch has stalled.",
		map[string]string{"profile": e.profile}, func() float64 { return float64(e.Approved()) }))
	e.gauges.Synced = synced
	profilemetrics.Register(&e.gauges)
	for _, verb := range []string{filterVerb, prioritizeVerb, preemptVerb} {
		for _, outcome := range []string{answered, redirected, refused, failed} {
			requestDuration.WithLabelValues(verb, outcome)
		}
	}
}
