package extender

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// role is a Role that a test controls.
type role struct {
	reason atomic.Pointer[error]
	leader string
}

func (r *role) Leads() error {
	if why := r.reason.Load(); why != nil {
		return *why
	}
	return nil
}

func (r *role) Leader() string { return r.leader }

func (r *role) setReason(err error) { r.reason.Store(&err) }

// serves starts a server for w and returns its address. The server stops at the end of the test.
func (w *world) serves(role Role) string {
	server := httptest.NewServer(NewHandler(w.Extender, role))
	w.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// post sends a body and returns the answer.
func post(t testing.TB, address, path string, body io.Reader) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

func (w *world) args(pod *v1.Pod) io.Reader {
	return bytes.NewReader(asJSON(w, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &w.names}))
}

func TestServing(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 2")
	address := w.serves(&role{})
	status, answer := post(t, address, "/filter", w.args(podOf("web", 0)))
	var filtered extenderv1.ExtenderFilterResult
	if err := json.Unmarshal([]byte(answer), &filtered); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	if diff := cmp.Diff(extenderv1.ExtenderFilterResult{NodeNames: &onDemand}, filtered); diff != "" {
		t.Errorf("/filter (-want +got):\n%s", diff)
	}
	status, answer = post(t, address, "/prioritize", w.args(podOf("web", 0)))
	var scores extenderv1.HostPriorityList
	if err := json.Unmarshal([]byte(answer), &scores); err != nil || status != http.StatusOK || len(scores) != 5 || scores[0].Score != 9 || scores[4].Score != 5 {
		t.Errorf("/prioritize: status %d, %v: %s", status, err, answer)
	}
	status, answer = post(t, address, "/preempt", bytes.NewReader(asJSON(t, extenderv1.ExtenderPreemptionArgs{
		Pod: podOf("web", 0), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
			"on-demand-0": {Pods: []*extenderv1.MetaPod{{UID: "api-0-uid"}}, NumPDBViolations: 1}, "unknown": {},
		},
	})))
	const want = `{"NodeNameToMetaVictims":{"on-demand-0":{"Pods":[{"UID":"api-0-uid"}],"NumPDBViolations":1}}}`
	if status != http.StatusOK || answer != want {
		t.Errorf("/preempt: status %d: %s, want %s", status, answer, want)
	}
}

// preemption returns a request about a pod. victims is the beginning of its JSON object.
func preemption(victims string) string {
	return victims + `,"Pod":{"metadata":{"name":"p","uid":"u"}}}`
}

func TestStatuses(t *testing.T) {
	w := newCluster(t)
	address := w.serves(&role{})
	for name, test := range map[string]struct {
		path    string
		body    io.Reader
		want    int
		message string
	}{
		"broken JSON": {"/filter", strings.NewReader(`{"Pod":`), http.StatusBadRequest, "arguments of filter"},
		"two lists of names": {"/filter", strings.NewReader(`{"Pod":{"metadata":{"name":"p","uid":"u"}},"NodeNames":["a"],"NodeNames":["b"]}`), http.StatusBadRequest,
			`duplicate object member name "NodeNames"`},
		"broken preemption": {"/preempt", strings.NewReader(`{"Pod":`), http.StatusBadRequest, "arguments of preempt"},
		"no pod":            {"/preempt", strings.NewReader(`{}`), http.StatusBadRequest, "Pod: expected"},
		"victims as pods":   {"/preempt", strings.NewReader(preemption(`{"NodeNameToVictims":{"a":{}}`)), http.StatusBadRequest, `NodeNameToMetaVictims: expected the names of nodes`},
		"no victims":        {"/preempt", strings.NewReader(preemption(`{"NodeNameToMetaVictims":{"a":null}`)), http.StatusBadRequest, `NodeNameToMetaVictims["a"]`},
		"no victim":         {"/preempt", strings.NewReader(preemption(`{"NodeNameToMetaVictims":{"a":{"Pods":[null]}}`)), http.StatusBadRequest, `NodeNameToMetaVictims["a"]`},
		"another verb":      {"/bind", strings.NewReader(`{}`), http.StatusNotFound, ""},
		"too long": {"/filter", strings.NewReader(`{"NodeNames":["` + strings.Repeat("a", MaxBody) + `"]}`), http.StatusRequestEntityTooLarge,
			"at most 16777216 bytes"},
		"too long, of unknown length": {"/filter", io.MultiReader(strings.NewReader(`{"NodeNames":["`+strings.Repeat("a", MaxBody)), strings.NewReader(`"]}`)),
			http.StatusRequestEntityTooLarge, "at most 16777216 bytes"},
		"no JSON": {"/filter", bytes.NewReader(make([]byte, MaxBody+1)), http.StatusBadRequest, "arguments of filter"},
		"100,000 names": {"/filter", strings.NewReader(`{"Pod":{"metadata":{"name":"p","uid":"u"}},"NodeNames":[` +
			strings.Repeat(`"ip-10-100-100-100.eu-central-1.compute.internal",`, 99_999) + `"\u0061"]}`), http.StatusOK, `"a"]}`},
		"scores without a pod": {"/prioritize", strings.NewReader(`{"NodeNames":[]}`), http.StatusBadRequest, "Pod: expected"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, answer := post(t, address, test.path, test.body); status != test.want || !strings.Contains(answer, test.message) {
				t.Errorf("status %d, want %d: %s", status, test.want, answer)
			}
		})
	}
	response, err := http.Get("http://" + address + "/filter")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: status %d, want %d", response.StatusCode, http.StatusMethodNotAllowed)
	}
}

// A standby replica redirects requests about pods of the profile to the leader.
func TestStandby(t *testing.T) {
	errStandby := errors.New("this replica is on standby")
	w := newCluster(t)
	w.build("deployment web 2")
	follows := &role{leader: "10.0.0.7:8445"}
	follows.setReason(errStandby)
	handler := NewHandler(w.Extender, follows)
	for path, args := range map[string]io.Reader{
		"/filter": w.args(podOf("web", 0)), "/prioritize": w.args(podOf("web", 0)),
		"/preempt": strings.NewReader(`{"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{"schedulerName":"spot-aware-scheduler"}},"NodeNameToMetaVictims":{"a":{}}}`),
	} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, args))
		header := answer.Result().Header
		if want := "https://10.0.0.7:8445" + path; answer.Code != http.StatusTemporaryRedirect || header.Get("Location") != want || header.Get("Connection") != "close" {
			t.Errorf("%s: status %d, %v, want a redirect to %s that closes the connection", path, answer.Code, header, want)
		}
	}
	if w.Approved() != 0 {
		t.Error("the standby replica approved a pod")
	}
	// Every replica passes pods to which the policy does not apply.
	other := podOf("web", 1)
	other.Spec.SchedulerName = v1.DefaultSchedulerName
	address := w.serves(follows)
	if status, answer := post(t, address, "/filter", w.args(other)); status != http.StatusOK || !strings.Contains(answer, `"spot-2"`) {
		t.Errorf("status %d: %s", status, answer)
	}
	follows.leader = ""
	wantError(t, address, w.args(podOf("web", 0)), errStandby.Error())
	if status, answer := post(t, address, "/prioritize", w.args(podOf("web", 0))); status != http.StatusServiceUnavailable || !strings.Contains(answer, errStandby.Error()) {
		t.Errorf("/prioritize: status %d: %s", status, answer)
	}
}

// wantError fails the test unless /filter answers with an error that kube-scheduler can read and
// that contains message.
func wantError(t *testing.T, address string, args io.Reader, message string) {
	t.Helper()
	if status, answer := post(t, address, "/filter", args); status != http.StatusOK || !strings.HasPrefix(answer, `{"Error":`) || !strings.Contains(answer, message) {
		t.Errorf("status %d: %s; want 200 and the error %q", status, answer, message)
	}
}

// Each answer contains only the nodes of its own request.
func TestConcurrentRequests(t *testing.T) {
	address := newCluster(t).serves(&role{})
	var asking sync.WaitGroup
	for client := range 8 {
		asking.Go(func() {
			for n := range 50 {
				nodes := []string{"on-demand-0"}
				for i := range 10 * (n%7 + 1) {
					nodes = append(nodes, fmt.Sprintf("node-%d-%d-%d", client, n, i))
				}
				pod := podOf("web", client)
				pod.OwnerReferences = nil // no owner that the extender would have to know
				status, answer := post(t, address, "/prioritize", bytes.NewReader(asJSON(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes})))
				var scores extenderv1.HostPriorityList
				if err := json.Unmarshal([]byte(answer), &scores); err != nil || status != http.StatusOK {
					t.Errorf("status %d, %v: %s", status, err, answer)
					return
				}
				got := make([]string, len(scores))
				for i, score := range scores {
					got[i] = score.Host
				}
				if diff := cmp.Diff(nodes, got); diff != "" {
					t.Errorf("nodes (-want +got):\n%s", diff)
					return
				}
			}
		})
	}
	asking.Wait()
}

// A decision is not answered if the lease expired meanwhile.
func TestLeaseRunsOutWhileDeciding(t *testing.T) {
	w := newCluster(t)
	w.build("deployment web 2")
	late := &lateRole{}
	address := w.serves(late)
	wantError(t, address, w.args(podOf("web", 0)), "too late")
}

// lateRole leads at the first call only.
type lateRole struct{ asked atomic.Int32 }

func (l *lateRole) Leads() error {
	if l.asked.Add(1) > 1 {
		return errors.New("too late")
	}
	return nil
}

func (*lateRole) Leader() string { return "" }

// BenchmarkRequests measures requests about a pod with 5,000 nodes, without the network. It reports
// CPU time too, because other processes of the machine change the elapsed time.
func BenchmarkRequests(b *testing.B) {
	w := newLargeWorld(b)
	handler := NewHandler(w.Extender, &role{})
	pod := podOf("web", 0)
	for _, name := range []string{"app", "proxy"} { // so that the pod has a typical length
		c := v1.Container{Name: name, Image: "registry.example/team/" + name + ":v1.2.3"}
		for i := range 12 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SOME_SETTING_%d", i), Value: "a value of some length, as they are"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	left := w.filter(pod)
	// Random order: each of kube-scheduler's workers finds some of the nodes.
	for _, names := range [][]string{w.names, left} {
		rand.New(rand.NewPCG(0, 0)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	for _, c := range []struct {
		verb  string
		nodes []string
	}{{"filter", w.names}, {"prioritize", left}} {
		b.Run(c.verb, func(b *testing.B) {
			body := asJSON(b, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &c.nodes})
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				w.forget(pod.UID) // otherwise later answers for this pod would differ
				answer := &countingWriter{header: http.Header{}}
				handler.ServeHTTP(answer, &http.Request{
					Method: http.MethodPost, URL: &url.URL{Path: "/" + c.verb}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
				})
				if answer.status != 0 || answer.bytes < 2_000 {
					b.Fatalf("status %d, %d bytes", answer.status, answer.bytes)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime returns the CPU time of this process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// countingWriter counts the bytes of an answer. Its status is 0 if the handler sets none.
type countingWriter struct {
	header        http.Header
	status, bytes int
}

func (w *countingWriter) Header() http.Header         { return w.header }
func (w *countingWriter) WriteHeader(status int)      { w.status = status }
func (w *countingWriter) Write(p []byte) (int, error) { w.bytes += len(p); return len(p), nil }
