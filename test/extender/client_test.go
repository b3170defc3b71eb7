package extender

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// startExtender starts an extender that stops when the test ends.
func startExtender(t *testing.T) *lab.Extender {
	t.Helper()
	return startExtenderWith(t, lab.ExtenderOptions{})
}

// startExtenderWith is startExtender with these options.
func startExtenderWith(t *testing.T, options lab.ExtenderOptions) *lab.Extender {
	t.Helper()
	options.Flags = []string{"-v=2"}
	e, err := controlPlane.StartExtender(t.Context(), options)
	live.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("end of the extender's log:\n" + live.Tail(e.Log, 40))
		}
		if err := e.Kill(); err != nil {
			t.Error(err)
		}
		if err := live.Denied(e.Process); err != nil {
			t.Error(err)
		}
	})
	return e
}

// startStock starts a stock kube-scheduler that uses the extender at an address. It stops when the
// test ends. If edit is not nil, it modifies the extender in config/extender.yaml.
func startStock(t *testing.T, address string, edit func(extender map[string]any)) {
	t.Helper()
	options, err := controlPlane.ExtendedScheduler(address)
	live.Must(t, err)
	if shipped := options.Edit; edit != nil {
		options.Edit = func(config map[string]any) {
			shipped(config)
			edit(config["extenders"].([]any)[0].(map[string]any))
		}
	}
	options.Flags = []string{"-v=2", "--pod-max-in-unschedulable-pods-duration=1h"}
	stock, err := controlPlane.StartScheduler(t.Context(), options)
	live.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("end of the scheduler's log:\n" + live.Tail(stock.Log, 30))
		}
		if err := stock.Kill(); err != nil {
			t.Error(err)
		}
	})
}

// clientTLS returns the TLS configuration of a client that trusts the CA ca. The client presents
// the certificate, unless certFile is empty.
func clientTLS(t testing.TB, ca, certFile, keyFile string) *tls.Config {
	t.Helper()
	data, err := os.ReadFile(ca)
	live.Must(t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		t.Fatalf("%s has no certificate", ca)
	}
	config := &tls.Config{RootCAs: roots, ServerName: extendertest.ServerName}
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		live.Must(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// schedulerTLS returns the TLS configuration of kube-scheduler.
func schedulerTLS(t testing.TB) *tls.Config {
	t.Helper()
	c, err := controlPlane.ExtenderCertificates()
	live.Must(t, err)
	return clientTLS(t, c.CA, c.ClientCert, c.ClientKey)
}

// newClient returns a client that is closed when the test ends.
func newClient(t testing.TB, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// post sends a body to an extender and returns the whole response.
func post(c *http.Client, address, verb string, body io.Reader) (status int, answer []byte, err error) {
	response, err := c.Post("https://"+address+"/"+verb, "application/json", body)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// filterRequest returns a filter request for a pod of the profile without a controller, and these
// nodes.
func filterRequest(t testing.TB, pod string, nodes ...string) []byte {
	t.Helper()
	body, err := json.Marshal(extenderv1.ExtenderArgs{NodeNames: &nodes, Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod, UID: types.UID("uid-of-" + pod)},
		Spec:       v1.PodSpec{SchedulerName: "spot-aware-scheduler"},
	}})
	live.Must(t, err)
	return body
}

// feasible returns the nodes in the response to filterRequest.
func feasible(status int, answer []byte, err error) ([]string, error) {
	var result extenderv1.ExtenderFilterResult
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("status %d: %s", status, answer)
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return nil, fmt.Errorf("%w: %s", err, answer)
	}
	if result.Error != "" || result.NodeNames == nil {
		return nil, fmt.Errorf("response %s", answer)
	}
	return *result.NodeNames, nil
}

// awaitLeader waits until an extender decides.
func awaitLeader(t testing.TB, c *http.Client, address, node string) {
	t.Helper()
	live.Must(t, live.Until(t.Context(), time.Minute, func() error {
		_, err := feasible(post(c, address, "filter", bytes.NewReader(filterRequest(t, "first", node))))
		return err
	}))
}
