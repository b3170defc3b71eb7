package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
)

// served is a server for schedulers. The test sets its clock and certificates.
type served struct {
	*testing.T
	files        extendertest.Certificates
	certificates *certificates
	offset       atomic.Int64 // offset of its clock in nanoseconds
	address      string
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{T: t}
	var err error
	if s.files, err = extendertest.MakeCertificates(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if s.certificates, err = newCertificates(s.files.Cert, s.files.Key, s.files.CA, []string{"kube-scheduler"}); err != nil {
		t.Fatal(err)
	}
	s.certificates.now = func() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) }
	server := newServer(s.certificates.requireClient(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	go func() { _ = server.Serve(tls.NewListener(listener, s.certificates.server())) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// client returns a scheduler that accepts any server certificate.
func (s *served) client() *http.Client {
	s.Helper()
	pair, err := tls.LoadX509KeyPair(s.files.ClientCert, s.files.ClientKey)
	if err != nil {
		s.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// request returns the status of the answer, or the error.
func (s *served) request(c *http.Client) (status int, why string) {
	s.Helper()
	response, err := c.Post("https://"+s.address, "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0, err.Error()
	}
	response.Body.Close()
	return response.StatusCode, ""
}

// A certificate that is no longer valid ends open connections and is rejected on new ones.
func TestInvalidCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		happen func(*testing.T, *served)
		want   string
	}{
		"expired": {func(_ *testing.T, s *served) { s.offset.Store(int64(48 * time.Hour)) }, "expired"},
		"authority removed": {func(t *testing.T, s *served) {
			other, err := os.ReadFile(newFiles(t).ca)
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
			s := serve(t)
			before := s.client()
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
			for _, c := range []*http.Client{before, s.client()} {
				if status, why := s.request(c); status != 0 || !strings.Contains(why, test.want) {
					t.Errorf("status %d, %s, on a new connection, want an error with %q", status, why, test.want)
				}
			}
		})
	}
}

// The client authority verifies more clients than are permitted.
func TestForbiddenClient(t *testing.T) {
	s := serve(t)
	s.certificates.clients = []string{"another"}
	if status, why := s.request(s.client()); status != http.StatusUnauthorized {
		t.Errorf("scheduler: status %d, %s, want 401", status, why)
	}
	replica := &http.Client{Transport: &http.Transport{DialTLSContext: s.certificates.dial, DisableKeepAlives: true}}
	if status, why := s.request(replica); status != http.StatusOK {
		t.Errorf("replica: status %d, %s, want 200", status, why)
	}
}

// An intermediate authority may sign the serving certificate. Then the file has both certificates,
// and the client authority is only the root.
func TestCertificateOfAnIntermediateAuthority(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, kind string, blocks ...[]byte) {
		var text []byte
		for _, der := range blocks {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
		}
		if err := os.WriteFile(file(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var serial int64
	sign := func(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, parentKey = template, key
		}
		serial++
		template.SerialNumber, template.BasicConstraintsValid = big.NewInt(serial), true
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Duration(8-serial)*24*time.Hour)
		raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		return signed, key
	}
	authority := func(name string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	}
	root, rootKey := sign(authority("root"), nil, nil)
	middle, middleKey := sign(authority("intermediate"), root, rootKey)
	// issue writes a serving certificate for these usages.
	issue := func(usages ...x509.ExtKeyUsage) *x509.Certificate {
		own, key := sign(&x509.Certificate{DNSNames: []string{extendertest.ServerName}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: usages}, middle, middleKey)
		keyDER, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write("tls.key", "EC PRIVATE KEY", keyDER)
		write("tls.crt", "CERTIFICATE", own.Raw, middle.Raw)
		return own
	}
	write("ca.crt", "CERTIFICATE", root.Raw)
	// With a certificate for server auth only, a standby replica could not forward requests to the
	// leader.
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		issue(usage)
		if _, err := newCertificates(file("tls.crt"), file("tls.key"), file("ca.crt"), nil); err == nil ||
			!strings.Contains(err.Error(), "incompatible key usage") {
			t.Errorf("usage %v only: %v, want an error about the usage", usage, err)
		}
	}
	own := issue(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	c, err := newCertificates(file("tls.crt"), file("tls.key"), file("ca.crt"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]time.Time{"serving": own.NotAfter}, c.expiryTimes()); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
	write("tls.crt", "CERTIFICATE", own.Raw)
	if _, err := newCertificates(file("tls.crt"), file("tls.key"), file("ca.crt"), nil); err == nil {
		t.Error("accepted without the intermediate authority")
	}
}

// The expiries are reported before and after certificates expire.
func TestExpiries(t *testing.T) {
	s := serve(t)
	ends := func(file string) time.Time {
		pair, err := tls.LoadX509KeyPair(file, strings.TrimSuffix(file, ".crt")+".key")
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.NotAfter
	}
	want := map[string]time.Time{"serving": ends(s.files.Cert)}
	if diff := cmp.Diff(want, s.certificates.expiryTimes()); diff != "" {
		t.Errorf("before any request (-want +got):\n%s", diff)
	}
	own, _ := s.certificates.own()
	if _, ok, err := s.certificates.user([]*x509.Certificate{own.Leaf}); !ok {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, s.certificates.expiryTimes()); diff != "" {
		t.Errorf("after a request of another replica (-want +got):\n%s", diff)
	}
	if status, why := s.request(s.client()); status != http.StatusOK {
		t.Fatalf("status %d, %s", status, why)
	}
	want["client"] = ends(s.files.ClientCert)
	if diff := cmp.Diff(want, s.certificates.expiryTimes()); diff != "" {
		t.Errorf("after a request of a scheduler (-want +got):\n%s", diff)
	}
	s.offset.Store(int64(48 * time.Hour))
	if diff := cmp.Diff(map[string]time.Time{"serving": time.Unix(0, 0)}, s.certificates.expiryTimes()); diff != "" {
		t.Errorf("two days later (-want +got):\n%s", diff)
	}
	err := testutil.CustomCollectAndCompare(&expiries{certificates: s.certificates}, strings.NewReader(`
		# HELP spot_aware_scheduler_extender_certificate_expiry_timestamp_seconds [ALPHA] Expiry of a certificate or of the authority that signed it, whichever is first, in seconds since 1970. By certificate: 'serving', which replicas also present to each other (0 if it is not valid now), or 'client', of the last scheduler that sent a request in the past 24 hours.
		# TYPE spot_aware_scheduler_extender_certificate_expiry_timestamp_seconds gauge
		spot_aware_scheduler_extender_certificate_expiry_timestamp_seconds{certificate="serving"} 0
	`))
	if err != nil {
		t.Error(err)
	}
}

// A replica connects only to a leader whose certificate its authority signed for their DNS name.
func TestDial(t *testing.T) {
	s := serve(t)
	c := &http.Client{Transport: &http.Transport{DialTLSContext: s.certificates.dial, DisableKeepAlives: true}}
	if status, why := s.request(c); status != http.StatusOK {
		t.Errorf("own authority: status %d, %s, want 200", status, why)
	}
	scheduler := s.files
	scheduler.Cert, scheduler.Key = scheduler.ClientCert, scheduler.ClientKey
	other, err := extendertest.MakeCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]extendertest.Certificates{"scheduler's certificate": scheduler, "another authority": other} {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		s.address = listener.Addr().String()
		go func() { _ = http.Serve(listener, http.NotFoundHandler()) }()
		if status, why := s.request(c); status != 0 {
			t.Errorf("%s: status %d, %s, want an error", name, status, why)
		}
		listener.Close()
	}
}
