package extender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const (
	// MaxBody is how long a request may be, in bytes. With nodeCacheCapable 100,000 nodes take 3 MB; without, a node takes about 10 kB.
	MaxBody = 64 << 20
	// bodiesAtOnce bounds what all requests together hold in memory; further ones wait, in the order in which they came.
	bodiesAtOnce = 2 * MaxBody
	// pooledAtMost is how large the memory of a request may be to be used again.
	pooledAtMost = 4 << 20
	// decideWithin is how long a request may take, from its body's end on, and how long one may wait to be read.
	decideWithin = 5 * time.Second
)

// Role says which of the replicas decides.
type Role interface {
	// Leads returns nil while this replica may decide, and otherwise why not.
	Leads() error
	// Leader returns where the replica that leads is reached, as host:port; "" if that is not known or this one.
	Leader() string
}

// filterVerb is the verb whose answer can say what is wrong.
const filterVerb = "filter"

// handler serves the verbs of an extender.
type handler struct {
	extender *Extender
	role     Role
	forward  *Forwarder
	memory   *semaphore.Weighted
	pool     sync.Pool // of *exchange
}

// exchange is the memory of one request.
type exchange struct {
	body       bytes.Buffer
	candidates candidates
	out        []byte
	// lent: net/http may still read body after it has returned from sending it.
	lent bool
}

// verb decides about a request. The error says why nothing can be decided, or what is wrong with the request.
type verb func(ctx context.Context, x *exchange) error

// NewHandler returns what serves POST /filter, /prioritize and /preempt, for extender while role says that this replica leads, and through
// forward otherwise.
func NewHandler(extender *Extender, role Role, forward *Forwarder) http.Handler {
	h := &handler{
		extender: extender, role: role, forward: forward, memory: semaphore.NewWeighted(bodiesAtOnce),
		pool: sync.Pool{New: func() any { return &exchange{} }},
	}
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

// The outcomes of a request: the label of a metric.
const (
	answered  = "answered"
	forwarded = "forwarded"
	refused   = "refused"
	failed    = "failed"
)

// badRequest is an error of who asks.
type badRequest struct {
	status int
	error
}

func (b badRequest) Unwrap() error { return b.error }

// notLeading is why this replica does not decide.
type notLeading struct{ error }

func (n notLeading) Unwrap() error { return n.error }

// decides calls decide if this replica leads, or nothing is to be decided about pod: such pods are let pass whatever goes on.
func (h *handler) decides(pod *v1.Pod, decide func() error) error {
	if !h.extender.concerns(pod) {
		return decide()
	}
	if err := h.role.Leads(); err != nil {
		return notLeading{err}
	}
	if err := decide(); err != nil {
		return err
	}
	// What was decided under a lease that has run out meanwhile may have been decided by another replica, too.
	return h.role.Leads()
}

// serve answers one request.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, do verb) (outcome string) {
	x, release, err := h.read(w, r)
	if err != nil {
		return h.fail(w, r, err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), decideWithin)
	defer cancel()
	err = do(ctx, x)
	if not := (notLeading{}); errors.As(err, &not) {
		x.lent = true
		answer, ferr := h.forward.send(ctx, h.role.Leader(), r, x.body.Bytes())
		if ferr != nil {
			return h.fail(w, r, fmt.Errorf("%w; %w", not.error, ferr))
		}
		answer.write(w)
		return forwarded
	}
	if err != nil {
		return h.fail(w, r, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(x.out))) // or it would be cut in chunks
	_, _ = w.Write(x.out)                                      // who asked is gone if it fails, and asks again
	return answered
}

// read reads the body of a request. What it returns may be used until release is called.
func (h *handler) read(w http.ResponseWriter, r *http.Request) (x *exchange, release func(), err error) {
	size := r.ContentLength
	if size > MaxBody {
		return nil, nil, tooLong()
	}
	if size < 0 {
		// It would have to count as the longest, however short it is: two of them would have all others wait.
		return nil, nil, badRequest{http.StatusLengthRequired, errors.New("expected a Content-Length")}
	}
	if !h.memory.TryAcquire(size) { // nearly never: a timeout and its timer need not be made for every request
		ctx, cancel := context.WithTimeout(r.Context(), decideWithin)
		defer cancel()
		if err := h.memory.Acquire(ctx, size); err != nil {
			return nil, nil, fmt.Errorf("waiting for memory: %w", err)
		}
	}
	x = h.pool.Get().(*exchange)
	release = func() {
		h.memory.Release(size)
		if !x.lent && x.body.Cap() <= pooledAtMost && cap(x.out) <= pooledAtMost {
			x.body.Reset()
			x.candidates.names.reset(nil) // or an older, shorter body would be kept
			h.pool.Put(x)
		}
	}
	x.body.Grow(int(size) + bytes.MinRead) // at once: growing as it comes takes up to three times as much
	if _, err := x.body.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBody)); err != nil {
		release()
		if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
			err = tooLong()
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			err = badRequest{http.StatusRequestTimeout, fmt.Errorf("the body took too long: %w", err)}
		} else {
			err = badRequest{http.StatusBadRequest, fmt.Errorf("reading the body: %w", err)}
		}
		return nil, nil, err
	}
	return x, release, nil
}

func tooLong() error {
	return badRequest{http.StatusRequestEntityTooLarge, fmt.Errorf("expected a body of at most %d bytes", MaxBody)}
}

// fail answers with an error.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) (outcome string) {
	status, outcome := http.StatusServiceUnavailable, failed
	if bad := (badRequest{}); errors.As(err, &bad) {
		status, outcome = bad.status, refused
		w.Header().Set("Connection", "close") // part of the body may still be on its way
	}
	klog.FromContext(r.Context()).V(2).Info("Not answered", "path", r.URL.Path, "from", r.RemoteAddr, "status", status, "why", err.Error())
	if outcome == failed && r.URL.Path == "/"+filterVerb {
		// kube-scheduler reads no further than the status of anything but 200: the pod's condition would not say why, and the connection
		// would be closed. An answer with an error is no approval either.
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(appendError(nil, err))
		return outcome
	}
	http.Error(w, err.Error(), status)
	return outcome
}

// parse reads the request from the body.
func (x *exchange) parse() (*request, error) {
	request, err := readRequest(x.body.Bytes(), &x.candidates.names)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errTooMany) {
			status = http.StatusRequestEntityTooLarge
		}
		return nil, badRequest{status, err}
	}
	return request, nil
}

func (h *handler) filter(ctx context.Context, x *exchange) error {
	request, err := x.parse()
	if err != nil {
		return err
	}
	return h.decides(request.pod, func() error {
		filtered, err := h.extender.Filter(ctx, request.pod, &x.candidates)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Not decided", "pod", klog.KObj(request.pod), "why", err.Error())
			x.out = appendError(x.out[:0], err)
			return nil
		}
		x.out = request.appendFiltered(x.out[:0], &filtered)
		return nil
	})
}

func (h *handler) prioritize(ctx context.Context, x *exchange) error {
	request, err := x.parse()
	if err != nil {
		return err
	}
	return h.decides(request.pod, func() error {
		scores, err := h.extender.Scores(ctx, request.pod, &x.candidates)
		if err != nil {
			return err
		}
		x.out = request.appendScores(x.out[:0], scores)
		return nil
	})
}
