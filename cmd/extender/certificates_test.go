package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
)

// served is a server for schedulers. The test replaces its certificates.
type served struct {
	*testing.T
	files        extendertest.Certificates
	certificates *certificates
	address      string
}

// serve starts a server with these certificates, which answers with handler.
func serve(t *testing.T, files extendertest.Certificates, handler http.HandlerFunc) *served {
	t.Helper()
	s := &served{T: t, files: files}
	var err error
	if s.certificates, err = newCertificates(files.Cert, files.Key, files.CA, []string{"kube-scheduler"}); err != nil {
		t.Fatal(err)
	}
	server := newServer(s.certificates.requireClient(handler))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	go func() { _ = server.Serve(tls.NewListener(listener, s.certificates.tls())) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

func makeCertificates(t *testing.T, validity time.Duration) extendertest.Certificates {
	t.Helper()
	files, err := extendertest.MakeCertificatesUntil(t.TempDir(), time.Now().Add(validity))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func ok(http.ResponseWriter, *http.Request) {}

// client returns a scheduler with the certificate and the authority of the server.
func (s *served) client() *http.Client {
	s.Helper()
	pair, err := tls.LoadX509KeyPair(s.files.ClientCert, s.files.ClientKey)
	if err != nil {
		s.Fatal(err)
	}
	authority, err := os.ReadFile(s.files.CA)
	if err != nil {
		s.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: extendertest.ServerName, Certificates: []tls.Certificate{pair},
	}}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// request returns the status and the body of the answer, or the error.
func (s *served) request(c *http.Client) (status int, answer string) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "https://"+s.address+"/filter", bytes.NewReader([]byte("{}")))
	if err != nil {
		s.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// A certificate that is no longer valid ends open connections and is rejected on new ones.
func TestInvalidCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		validity time.Duration
		happen   func(*testing.T, *served)
		want     string
	}{
		"expired": {3 * time.Second, func(*testing.T, *served) { time.Sleep(3 * time.Second) }, "expired"},
		"authority removed": {time.Hour, func(t *testing.T, s *served) {
			other, err := os.ReadFile(makeCertificates(t, time.Hour).CA)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.files.CA, other, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := s.certificates.clientCA.RunOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, "unknown certificate authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, makeCertificates(t, test.validity), ok)
			before, other := s.client(), s.client()
			for range 2 {
				if status, why := s.request(before); status != http.StatusOK {
					t.Fatalf("status %d, %s, want 200 while the certificate is valid", status, why)
				}
			}
			test.happen(t, s)
			if status, why := s.request(before); status != http.StatusUnauthorized {
				t.Errorf("status %d, %s, on the open connection, want 401", status, why)
			}
			// The connection is closed, and new connections are rejected.
			for _, c := range []*http.Client{before, other} {
				if status, why := s.request(c); status != 0 || !strings.Contains(why, test.want) {
					t.Errorf("status %d, %s, on a new connection, want an error with %q", status, why, test.want)
				}
			}
		})
	}
}

// Only clients with a certificate of the client authority are served.
func TestUnknownClients(t *testing.T) {
	s := serve(t, makeCertificates(t, time.Hour), ok)
	anonymous, foreign := s.client(), s.client()
	anonymous.Transport.(*http.Transport).TLSClientConfig.Certificates = nil
	other := makeCertificates(t, time.Hour)
	pair, err := tls.LoadX509KeyPair(other.ClientCert, other.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	foreign.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	for name, client := range map[string]*http.Client{"no certificate": anonymous, "of another authority": foreign} {
		if status, why := s.request(client); status != 0 || !strings.Contains(why, "certificate") {
			t.Errorf("%s: status %d, %s, want an error about the certificate", name, status, why)
		}
	}
}

// The client authority verifies more clients than are permitted.
func TestForbiddenClient(t *testing.T) {
	s := serve(t, makeCertificates(t, time.Hour), ok)
	s.certificates.clients = []string{"another"}
	if status, why := s.request(s.client()); status != http.StatusUnauthorized || !strings.Contains(why, "--allowed-client-names") {
		t.Errorf("status %d, %s, want 401", status, why)
	}
}

// Of the clients that the client authority verifies, only schedulers are permitted.
func TestPermittedClients(t *testing.T) {
	c := &certificates{clients: []string{"kube-scheduler"}}
	named := func(common string, dns ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: common}, DNSNames: dns}
	}
	for name, test := range map[string]struct {
		client *x509.Certificate
		want   bool
	}{
		"scheduler":             {named("kube-scheduler"), true},
		"scheduler, a DNS name": {named("", "kube-scheduler"), true},
		"extender":              {named(extendertest.ServerName, extendertest.ServerName), false},
		"kubelet":               {named("system:node:a", "a"), false},
		"no name":               {named(""), false},
	} {
		if _, ok, err := c.user([]*x509.Certificate{test.client}); ok != test.want || ok != (err == nil) {
			t.Errorf("%s: %v, want permitted: %t", name, err, test.want)
		}
	}
}

// A client of net/http, like kube-scheduler's, follows the redirect of a standby replica to the
// leader: it repeats the request there, and expects a certificate for the same name.
func TestRedirectedClient(t *testing.T) {
	files := makeCertificates(t, time.Hour)
	leader := serve(t, files, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write([]byte(r.Method + " " + r.URL.Path + " " + string(body)))
	})
	impostor := serve(t, makeCertificates(t, time.Hour), ok)
	address := leader.address
	standby := serve(t, files, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+address+r.URL.Path, http.StatusTemporaryRedirect)
	})
	if status, answer := standby.request(standby.client()); status != http.StatusOK || answer != "POST /filter {}" {
		t.Errorf("status %d: %s", status, answer)
	}
	address = impostor.address
	if status, why := standby.request(standby.client()); status != 0 || !strings.Contains(why, "unknown authority") {
		t.Errorf("redirected to a server of another authority: status %d, %s, want an error", status, why)
	}
}
