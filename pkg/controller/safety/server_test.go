package safety_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// server is an API server with one ConfigMap, the ledger, and any number of pods. It answers the
// requests of processes without a network, so that it works in a synctest bubble.
type server struct {
	mu     sync.Mutex
	ledger *v1.ConfigMap // nil: it does not exist
	// writer is the offset of the clock of the process that wrote the ledger last.
	writer  time.Duration
	version int
	// faults are the answers to the next writes of the ledger.
	faults []fault
	// moves are the requests for pods that were performed, and writes the writes of the ledger.
	moves  []performed
	writes []write
	// removed are the entries that other clients have removed from the ledger.
	removed map[string]bool
	// resets are the times at which a process read or created a ledger that lacks moves
	// (safety.Gate).
	resets []time.Time
}

type write struct {
	process *process
	began   time.Time
	ahead   time.Duration // of the clock, then
}

type performed struct {
	safety.Removal
	// began is when a process began to send the request.
	began, at time.Time
}

// fault is how a request fails.
type fault int

const (
	works fault = iota
	refused
	lostBefore // not performed, and not answered
	lostAfter  // performed, and not answered
	slow
	faults
)

var errLost = errors.New("connection lost")

// process is a controller process.
type process struct {
	*server
	client kubernetes.Interface
	gate   *safety.Gate
	// born is when the process started, and offset by how much its wall clock is ahead.
	born   time.Time
	offset atomic.Int64
	dead   bool
	known  map[string]bool // the entries that it has read or written
}

// Now returns the wall clock of the process.
func (p *process) Now() time.Time { return time.Now().Add(p.ahead()) }

// Since returns the age of the process, by its monotonic clock.
func (p *process) Since(time.Time) time.Duration { return time.Since(p.born) }

func (p *process) ahead() time.Duration { return time.Duration(p.offset.Load()) }

func (s *server) start(t testing.TB, limits controller.Limits, offset time.Duration) *process {
	p := &process{server: s, born: time.Now(), known: map[string]bool{}}
	p.offset.Store(int64(offset))
	config := &rest.Config{Transport: p, QPS: -1, Timeout: 10 * time.Second}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	ledgers, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p.gate = safety.NewGate(safety.Options{Limits: limits, Clock: p, Ledgers: ledgers.CoreV1().ConfigMaps("kube-system")})
	config = rest.CopyConfig(config)
	config.Wrap(p.gate.Enforce)
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return p
}

// request sends the request of a removal.
func (p *process) request(verb string, r safety.Removal, f fault) error {
	ctx := context.WithValue(safety.WithRemoval(context.Background(), r), sentKey{}, sent{r, f, time.Now()})
	pods := p.client.CoreV1().Pods(r.Namespace)
	switch verb {
	case "evict":
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: string(r.Pod)}})
	case "delete":
		return pods.Delete(ctx, string(r.Pod), metav1.DeleteOptions{})
	}
	_, err := pods.Patch(ctx, string(r.Pod), types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	return err
}

type sentKey struct{}

// sent is a removal, how its request is answered, and when a process began to send it. The context
// of a write of the ledger may have it too.
type sent struct {
	safety.Removal
	fault
	at time.Time
}

// RoundTrip answers a request of the process.
func (p *process) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		body, _ = io.ReadAll(request.Body)
		_ = request.Body.Close()
	}
	began, ahead := time.Now(), p.ahead()
	time.Sleep(10 * time.Millisecond)
	p.mu.Lock()
	of, _ := request.Context().Value(sentKey{}).(sent)
	f := of.fault
	ledger := strings.Contains(request.URL.Path, "/configmaps")
	if ledger {
		f = works
	}
	if ledger && request.Method != http.MethodGet && len(p.faults) > 0 {
		f, p.faults = p.faults[0], p.faults[1:]
	}
	p.mu.Unlock()
	if f == slow {
		time.Sleep(4 * time.Second)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || f == lostBefore || request.Context().Err() != nil {
		return nil, errLost
	}
	code, answer := http.StatusTooManyRequests, any(nil)
	switch {
	case f == refused:
	case ledger:
		code, answer = p.answerLedger(request.Method, body, write{p, began, ahead})
	default:
		p.moves = append(p.moves, performed{of.Removal, of.at, time.Now()})
		code, answer = http.StatusOK, &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	}
	if f == lostAfter {
		return nil, errLost
	}
	if answer == nil {
		answer = statusOf(code)
	}
	data, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)), Request: request,
	}, err
}

func statusOf(code int) *metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusNotFound: metav1.StatusReasonNotFound,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	}
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code]}
}

func (p *process) answerLedger(method string, body []byte, w write) (code int, answer any) {
	if method == http.MethodGet {
		if p.ledger != nil && p.ahead() > p.writer || p.lacks() {
			p.resets = append(p.resets, time.Now())
		}
		if p.ledger == nil {
			return http.StatusNotFound, nil
		}
		p.learn()
		return http.StatusOK, p.ledger
	}
	written := &v1.ConfigMap{}
	if err := json.Unmarshal(body, written); err != nil {
		return http.StatusBadRequest, nil
	}
	exists := p.ledger != nil
	if method == http.MethodPost && exists || exists && written.ResourceVersion != p.ledger.ResourceVersion {
		return http.StatusConflict, nil
	}
	if method == http.MethodPut && !exists {
		return http.StatusNotFound, nil
	}
	size := 0
	for key, value := range written.Data {
		size += len(key) + len(value)
	}
	if size >= 1<<20 {
		return http.StatusRequestEntityTooLarge, nil
	}
	if method == http.MethodPost && p.lacks() {
		p.resets = append(p.resets, time.Now())
	}
	p.store(written)
	p.writes, p.writer = append(p.writes, w), min(w.ahead, p.ahead())
	p.learn()
	return http.StatusOK, p.ledger
}

// store stores a ledger in a new version; nil deletes it.
func (s *server) store(ledger *v1.ConfigMap) {
	s.version++
	if s.ledger = ledger; ledger != nil {
		ledger.Name, ledger.ResourceVersion = safety.Ledger, fmt.Sprint(s.version)
		ledger.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	}
	for entry := range s.entries() {
		delete(s.removed, entry)
	}
}

// entries returns the entries of the ledger: UIDs of pods with the times of their moves. An entry
// with an older time is another one: it expires earlier.
func (s *server) entries() map[string]bool {
	entries := map[string]bool{}
	if s.ledger != nil {
		for pod, text := range s.ledger.Data {
			var value struct{ Time, Cause string }
			if json.Unmarshal([]byte(text), &value) == nil && value.Cause != "" {
				entries[pod+" "+value.Time] = true
			}
		}
	}
	return entries
}

// tamper changes the ledger as another client.
func (s *server) tamper(change func(data map[string]string) map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger == nil {
		return
	}
	before := s.entries()
	if data := change(maps.Clone(s.ledger.Data)); data != nil {
		s.store(&v1.ConfigMap{Data: data})
	} else {
		s.store(nil)
	}
	after := s.entries()
	for entry := range before {
		if !after[entry] {
			s.removed[entry] = true
		}
	}
}

// learn records the entries that the process has read or written.
func (p *process) learn() {
	maps.Copy(p.known, p.entries())
}

// lacks reports whether another client has removed moves from the ledger that the process does not
// know.
func (p *process) lacks() bool {
	for entry := range p.removed {
		if !p.known[entry] {
			return true
		}
	}
	return false
}

func nameOf(kind string, n int) string { return fmt.Sprint(kind, n) }

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // in thousands of histories writes fail
	os.Exit(m.Run())
}
