package extender

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestInvalidRequests checks that the extender rejects unauthorized clients and invalid requests.
// They must not leave connections, goroutines or memory behind.
func TestInvalidRequests(t *testing.T) {
	live.NewScenario(t, controlPlane, client, slices.Concat(live.OnDemand(1, 4), live.Spot(1, 4))...)
	e := startExtender(t)
	ours, err := controlPlane.ExtenderCertificates()
	live.Must(t, err)
	theirs, err := extendertest.MakeCertificates(t.TempDir())
	live.Must(t, err)
	good := newClient(t, schedulerTLS(t))
	awaitLeader(t, good, e.Address, "od-1")
	before := goroutines(t, e)

	for name, config := range map[string]*tls.Config{
		"no client certificate":                   clientTLS(t, ours.CA, "", ""),
		"client certificate of another authority": clientTLS(t, ours.CA, theirs.ClientCert, theirs.ClientKey),
		"server certificate of another authority": clientTLS(t, theirs.CA, ours.ClientCert, ours.ClientKey),
	} {
		t.Run(name, func(t *testing.T) {
			status, answer, err := post(newClient(t, config), e.Address, "filter", bytes.NewReader(filterRequest(t, "p", "od-1")))
			if err == nil {
				t.Errorf("answered with status %d: %s", status, answer)
			} else if !strings.Contains(err.Error(), "certificate") {
				t.Errorf("error %v, want an error about a certificate", err)
			}
		})
	}
	t.Run("plain HTTP", func(t *testing.T) {
		response, err := http.Post("http://"+e.Address+"/filter", "application/json", strings.NewReader("{}"))
		if err == nil {
			response.Body.Close()
			if response.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d", response.StatusCode)
			}
		}
	})

	for name, test := range map[string]struct {
		body io.Reader
		want int
		text string
	}{
		"100 MB":             {strings.NewReader(`{"NodeNames":["` + strings.Repeat("a", 100<<20)), http.StatusRequestEntityTooLarge, "at most 16777216 bytes"},
		"100 MB, in chunks":  {io.MultiReader(strings.NewReader(`{"NodeNames":["`), io.LimitReader(endless{}, 100<<20)), http.StatusRequestEntityTooLarge, "at most 16777216 bytes"},
		"broken JSON":        {strings.NewReader(`{"Pod":{"metadata":`), http.StatusBadRequest, "expected the JSON of the arguments of filter"},
		"unknown nodes":      {bytes.NewReader(filterRequest(t, "p", "no-such-node")), http.StatusOK, "node is not known to the extender yet"},
		"unknown nodes, too": {bytes.NewReader(filterRequest(t, "p", "no-such-node", "od-1")), http.StatusOK, `"NodeNames":["od-1"]`},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			status, answer, err := post(good, e.Address, "filter", test.body)
			// If the extender rejects a request before it has read it, it may close the connection
			// while the client still writes.
			if broken := errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET); broken && test.want != http.StatusBadRequest && test.want != http.StatusOK {
				return
			}
			if err != nil || status != test.want || !strings.Contains(string(answer), test.text) {
				t.Errorf("status %d, %v, want %d with %q: %s", status, err, test.want, test.text, answer)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("answered after %s", took)
			}
		})
	}

	t.Run("slow clients", func(t *testing.T) {
		var slow sync.WaitGroup
		for _, begin := range []string{"", "POST /filter HTTP/1.1\r\nHo", "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"} {
			slow.Go(func() {
				began := time.Now()
				conn, err := tls.Dial("tcp", e.Address, schedulerTLS(t))
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				if _, err := io.WriteString(conn, begin); err != nil {
					t.Error(err)
				}
				if err := conn.SetReadDeadline(began.Add(30 * time.Second)); err != nil {
					t.Error(err)
				}
				// The extender must close the connection after any response.
				_, err = io.Copy(io.Discard, bufio.NewReader(conn))
				if took := time.Since(began); errors.Is(err, os.ErrDeadlineExceeded) || took > 25*time.Second {
					t.Errorf("after %q the connection was open for %s, %v", begin, took, err)
				} else {
					t.Logf("after %q the connection was closed after %s", begin, took.Round(time.Second))
				}
			})
		}
		// Other clients must not wait for the slow clients.
		for range 20 {
			if nodes, err := feasible(post(good, e.Address, "filter", bytes.NewReader(filterRequest(t, "p", "od-1", "spot-1")))); err != nil || !slices.Equal(nodes, []string{"od-1"}) {
				t.Errorf("%v, %v, want od-1", nodes, err)
			}
		}
		slow.Wait()
	})

	live.Must(t, live.Until(t.Context(), live.Soon, func() error {
		if after := goroutines(t, e); after > before+10 {
			return fmt.Errorf("%v goroutines, %v before", after, before)
		}
		return nil
	}))
	if usage, err := live.Metric(t.Context(), e.Process, "process_resident_memory_bytes", nil); err != nil || usage > 512<<20 {
		t.Errorf("resident memory: %.0f MiB, %v", usage/(1<<20), err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func goroutines(t *testing.T, e *lab.Extender) float64 {
	t.Helper()
	n, err := live.Metric(t.Context(), e.Process, "go_goroutines", nil)
	live.Must(t, err)
	return n
}

// TestTerminatedUnderLoad sends SIGTERM while 16 clients send requests. The extender must answer
// accepted requests completely, decide no new requests, and release its lease.
func TestTerminatedUnderLoad(t *testing.T) {
	live.NewScenario(t, controlPlane, client, live.OnDemand(50, 4)...)
	e := startExtender(t)
	client16 := newClient(t, schedulerTLS(t))
	awaitLeader(t, client16, e.Address, "od-1")
	var names []string
	for _, node := range live.OnDemand(50, 4) {
		names = append(names, node.Name)
	}
	var answers, refused, broken atomic.Int64
	var clients sync.WaitGroup
	ended := make(chan struct{})
	for i := range 16 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				default:
				}
				nodes, err := feasible(post(client16, e.Address, "filter", bytes.NewReader(filterRequest(t, fmt.Sprintf("p-%d-%d", i, n), names...))))
				switch {
				case err == nil && len(nodes) == len(names):
					answers.Add(1)
				case errors.Is(err, syscall.ECONNREFUSED), err != nil && strings.Contains(err.Error(), "this replica leads, but waits"):
					refused.Add(1)
					time.Sleep(time.Millisecond)
				case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || closedIdle(err):
					// The connection was idle or not accepted yet, so the extender read nothing of
					// the request. A truncated response would be an unexpected EOF, which is a
					// failure.
					broken.Add(1)
				default:
					t.Errorf("%d nodes, %v", len(nodes), err)
				}
			}
		})
	}
	live.Must(t, live.Until(t.Context(), live.Soon, func() error {
		if n := answers.Load(); n < 500 {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	}))
	began := time.Now()
	live.Must(t, e.Stop())
	took := time.Since(began)
	close(ended)
	clients.Wait()
	t.Logf("%d answers, %d refused, %d broken; the extender exited after %s", answers.Load(), refused.Load(), broken.Load(), took)
	if exit := (*lab.ExitError)(nil); !errors.As(e.Err(), &exit) || exit.Code != 0 {
		t.Errorf("exited with %v", e.Err())
	}
	if took > 10*time.Second {
		t.Errorf("the extender exited after %s", took)
	}
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "spot-extender", metav1.GetOptions{})
	live.Must(t, err)
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the lease is held by %q", *holder)
	}
}

// closedIdle recognizes net/http's error for a connection that the server closed while it was idle.
// The error is not exported, so it compares the text.
func closedIdle(err error) bool {
	return err != nil && strings.Contains(err.Error(), "server closed idle connection")
}
