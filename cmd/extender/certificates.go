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

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
)

// verifyInterval is the interval between verifications of an open connection's client certificate.
// Connections stay open while certificates expire and authorities are removed. There may be
// hundreds of requests per second, so not every request is verified.
const verifyInterval = time.Second

// certificates has the files by which replicas and schedulers authenticate each other. The files
// are read again when they change.
type certificates struct {
	serving  *dynamiccertificates.DynamicCertKeyPairContent
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
	serving, servingErr := dynamiccertificates.NewDynamicServingContentFromFiles("serving", certFile, keyFile)
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
	own, err := c.own()
	if err == nil {
		err = c.verifyReplica(chainOf(own), x509.ExtKeyUsageServerAuth)
	}
	if err == nil {
		err = c.verifyReplica(chainOf(own), x509.ExtKeyUsageClientAuth)
	}
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file %s: expected one for a DNS name that --client-ca-file %s signed for server auth and client auth: "+
			"%w", certFile, clientCAFile, err)
	}
	return c, nil
}

// chainOf returns a certificate and the authorities after it in its file.
func chainOf(own *tls.Certificate) []*x509.Certificate {
	chain := make([]*x509.Certificate, 0, len(own.Certificate))
	for _, raw := range own.Certificate {
		if certificate, err := x509.ParseCertificate(raw); err == nil { // a certificate that cannot be parsed is not used as an authority
			chain = append(chain, certificate)
		}
	}
	return chain
}

// run reads the files again when they change, until ctx is done.
func (c *certificates) run(ctx context.Context) {
	go c.clientCA.Run(ctx, 1)
	c.serving.Run(ctx, 1)
}

// own returns the serving certificate, which has a DNS name.
func (c *certificates) own() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(c.serving.CurrentCertKeyContent())
	if err == nil && len(pair.Leaf.DNSNames) == 0 {
		err = errors.New("the serving certificate has no DNS name")
	}
	return &pair, err
}

// verifyReplica returns an error unless a certificate belongs to a replica: the client authority
// must have signed it for usage and for the DNS name of the own certificate.
func (c *certificates) verifyReplica(chain []*x509.Certificate, usage x509.ExtKeyUsage) error {
	own, err := c.own()
	if err != nil {
		return err
	}
	_, err = c.verify(chain, usage, own.Leaf.DNSNames[0])
	return err
}

// verify returns the expiry of a certificate that the client authority signed for usage and for the
// DNS name; "" permits any name. It returns an error if the certificate is not valid now.
func (c *certificates) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, name string) (until time.Time, err error) {
	options, ok := c.clientCA.VerifyOptions()
	if !ok {
		return time.Time{}, errors.New("the client authority is missing")
	}
	options.KeyUsages, options.DNSName, options.CurrentTime = []x509.ExtKeyUsage{usage}, name, c.now()
	options.Intermediates = x509.NewCertPool()
	for _, intermediate := range chain[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	chains, err := chain[0].Verify(options)
	for _, signed := range chains {
		first := slices.MinFunc(signed, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(until) {
			until = first.NotAfter
		}
	}
	return until, err
}

// server returns the TLS configuration for schedulers and standby replicas.
func (c *certificates) server() *tls.Config {
	// Only HTTP/1.1: bodies are large and sequential, so the windows and frames of HTTP/2 would
	// cost time without a benefit.
	const protocol = "http/1.1"
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{protocol},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			own, err := c.own()
			if err != nil {
				return nil, err
			}
			options, ok := c.clientCA.VerifyOptions()
			if !ok {
				return nil, errors.New("the client authority is missing")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}, Certificates: []tls.Certificate{*own}, Time: c.now,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: options.Roots,
				VerifyConnection: func(state tls.ConnectionState) error {
					return c.permits(state.PeerCertificates[0], own.Leaf)
				},
			}, nil
		},
	}
}

// connection is the state of a client's connection. With HTTP/1.1 its requests are sequential.
type connection struct{ verified time.Time }

type connectionKey struct{}

// withConnection implements http.Server.ConnContext for requireClient.
func withConnection(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

// requireClient passes requests to handler only while their client is permitted. A client that was
// permitted when the connection began may have lost this permission. It gets status 401 and has to
// connect again.
func (c *certificates) requireClient(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection := r.Context().Value(connectionKey{}).(*connection)
		if now := c.now(); now.Sub(connection.verified) >= verifyInterval {
			if err := c.verifyClient(r.TLS.PeerCertificates); err != nil {
				klog.FromContext(r.Context()).V(2).Info("Rejected client of an open connection", "from", r.RemoteAddr, "err", err.Error())
				w.Header().Set("Connection", "close")
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
			connection.verified = now
		}
		handler.ServeHTTP(w, r)
	})
}

// verifyClient returns an error unless the client with these certificates is permitted by the
// current files.
func (c *certificates) verifyClient(chain []*x509.Certificate) error {
	own, err := c.own()
	if err != nil {
		return err
	}
	until, err := c.verify(chain, x509.ExtKeyUsageClientAuth, "")
	if err != nil {
		return err
	}
	if err := c.permits(chain[0], own.Leaf); err != nil {
		return err
	}
	if chain[0].VerifyHostname(own.Leaf.DNSNames[0]) != nil {
		c.lastClient.Store(&clientCheck{at: c.now(), until: until})
	}
	return nil
}

// permits returns an error unless a client that the client authority verified is permitted.
// Permitted clients are other replicas, whose certificates are for the own DNS name, and clients.
// Other clients could make and move approvals, and so place pods beyond their budget.
func (c *certificates) permits(client, own *x509.Certificate) error {
	names := append([]string{client.Subject.CommonName}, client.DNSNames...)
	if slices.ContainsFunc(names, func(name string) bool {
		return name != "" && (slices.Contains(c.clients, name) || name == own.DNSNames[0])
	}) {
		return nil
	}
	return fmt.Errorf("client certificate for %q: expected one for any of %q (--allowed-client-names)", names, append([]string{own.DNSNames[0]}, c.clients...))
}

// client returns the TLS configuration for requests to the leader. The replica connects to the IP
// address of the leader's pod, which is not in the certificate. So it verifies the DNS name that
// all replicas share.
func (c *certificates) client() *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.own() },
		// VerifyConnection verifies instead: the authorities may change, and the certificate is not
		// for the address.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return c.verifyReplica(state.PeerCertificates, x509.ExtKeyUsageServerAuth)
		},
	}
}
