package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// dialTimeout is the maximum time to connect to the leader.
const dialTimeout = time.Second

// certificates has the files by which replicas and schedulers authenticate each other. The files
// are read again when they change.
type certificates struct {
	serving  *certwatcher.CertWatcher
	clientCA *dynamiccertificates.DynamicFileCAContent
	// clients lists the names of the permitted clients, except the other replicas.
	clients []string
	now     func() time.Time
	// lastClient is the last permitted client that is not a replica; nil before the first.
	lastClient atomic.Pointer[clientCheck]
}

// clientCheck is the verification of a client at a time. until is the expiry of its certificate.
type clientCheck struct{ at, until time.Time }

// newCertificates reads the files. An error names the flag that is wrong.
func newCertificates(certFile, keyFile, clientCAFile string, clients []string) (*certificates, error) {
	serving, servingErr := certwatcher.New(certFile, keyFile)
	if servingErr != nil {
		servingErr = fmt.Errorf("--tls-cert-file %s, --tls-private-key-file %s: %w", certFile, keyFile, servingErr)
	}
	clientCA, caErr := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", clientCAFile)
	if caErr != nil {
		caErr = fmt.Errorf("--client-ca-file %s: %w", clientCAFile, caErr)
	}
	if err := errors.Join(servingErr, caErr); err != nil {
		return nil, err
	}
	c := &certificates{serving: serving, clientCA: clientCA, clients: clients, now: time.Now}
	if _, err := c.servingExpiry(); err != nil {
		return nil, fmt.Errorf("--tls-cert-file %s: expected one for a DNS name that --client-ca-file %s signed for server auth and "+
			"client auth: "+
			"%w", certFile, clientCAFile, err)
	}
	return c, nil
}

// own returns the serving certificate and its DNS name, which all replicas share; "" if it has
// none.
func (c *certificates) own() (certificate *tls.Certificate, name string) {
	certificate, _ = c.serving.GetCertificate(nil) // never fails
	if names := certificate.Leaf.DNSNames; len(names) > 0 {
		name = names[0]
	}
	return certificate, name
}

// verifyOptions returns how to verify client certificates.
func (c *certificates) verifyOptions() (x509.VerifyOptions, bool) {
	options, _ := c.clientCA.VerifyOptions()
	if options.Roots == nil { // not possible: newCertificates has read the file. It would mean the authorities of the system
		options.Roots = x509.NewCertPool()
	}
	options.CurrentTime = c.now()
	return options, true
}

// servingExpiry returns the expiry of the serving certificate. It returns an error unless other
// replicas accept it, as server and as client.
func (c *certificates) servingExpiry() (until time.Time, err error) {
	certificate, name := c.own()
	if name == "" {
		return time.Time{}, errors.New("the serving certificate has no DNS name")
	}
	options, _ := c.verifyOptions()
	options.Intermediates = x509.NewCertPool()
	for _, der := range certificate.Certificate[1:] {
		if intermediate, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(intermediate)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		options.KeyUsages = []x509.ExtKeyUsage{usage} // of several, one would be enough
		chains, err := certificate.Leaf.Verify(options)
		if err != nil {
			return time.Time{}, err
		}
		until = expiry(chains...)
	}
	return until, nil
}

// expiry returns when the last of the chains expires. A chain expires with its first certificate.
func expiry(chains ...[]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(until) {
			until = first.NotAfter
		}
	}
	return until
}

// server returns the TLS configuration for schedulers and standby replicas.
func (c *certificates) server() *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		authority, _ := c.verifyOptions()
		return &tls.Config{
			MinVersion: tls.VersionTLS12,
			// Only HTTP/1.1: bodies are large and sequential, so the windows and frames of HTTP/2
			// would cost time without a benefit.
			NextProtos:     []string{"http/1.1"},
			Time:           c.now,
			GetCertificate: c.serving.GetCertificate,
			ClientAuth:     tls.RequireAndVerifyClientCert,
			ClientCAs:      authority.Roots,
		}, nil
	}}
}

// requireClient passes requests to handler only while their client is permitted. The certificate of
// an open connection may have expired, or lost its authority. Other clients get status 401.
func (c *certificates) requireClient(handler http.Handler) http.Handler {
	client := requestx509.NewDynamic(c.verifyOptions, requestx509.UserConversionFunc(c.user))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok, err := client.AuthenticateRequest(r); !ok {
			klog.FromContext(r.Context()).V(2).Info("Rejected client", "client", r.RemoteAddr, "err", err)
			w.Header().Set("Connection", "close")
			http.Error(w, fmt.Sprintf("client certificate: %v", err), http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// user accepts a verified client if it is permitted, and records the expiry of its certificate.
func (c *certificates) user(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	if err := c.permits(chain[0]); err != nil {
		return nil, false, err
	}
	if _, name := c.own(); chain[0].VerifyHostname(name) != nil {
		c.lastClient.Store(&clientCheck{at: c.now(), until: expiry(chain)})
	}
	return &authenticator.Response{}, true, nil
}

// permits returns an error unless a client that the client authority verified is permitted.
// Permitted clients are other replicas, whose certificates are for the own DNS name, and clients.
// Other clients could make and move approvals, and so place pods beyond their budget.
func (c *certificates) permits(client *x509.Certificate) error {
	_, own := c.own()
	permitted := append([]string{own}, c.clients...)
	names := append([]string{client.Subject.CommonName}, client.DNSNames...)
	if slices.ContainsFunc(names, func(name string) bool { return name != "" && slices.Contains(permitted, name) }) {
		return nil
	}
	return fmt.Errorf("client certificate for %q: expected one for any of %q (--allowed-client-names)", names, permitted)
}

// dial connects to the leader. The address is the IP address of the leader's pod, which is not in
// its certificate. So dial verifies the DNS name that all replicas share.
func (c *certificates) dial(ctx context.Context, network, address string) (net.Conn, error) {
	authority, _ := c.verifyOptions()
	certificate, name := c.own()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: name, RootCAs: authority.Roots, Certificates: []tls.Certificate{*certificate},
	}}
	return dialer.DialContext(ctx, network, address)
}
