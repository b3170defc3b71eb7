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

// verifyAgainAfter is how long a connection's client is trusted before its certificate is verified again: one that is in use stays open,
// and meanwhile certificates expire and authorities are taken away. Not with every request, of which there may be hundreds in a second.
const verifyAgainAfter = time.Second

// certificates are the files by which replicas and schedulers know each other. They are read again when they change.
type certificates struct {
	serving  *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *dynamiccertificates.DynamicFileCAContent
	// clients are the names of the clients that may ask, beside other replicas.
	clients []string
	now     func() time.Time
	// asked is of the last client that may ask and is no replica; nil before the first.
	asked atomic.Pointer[asker]
}

// asker is a client that asked: at is when it was verified, until is when its certificate ends.
type asker struct{ at, until time.Time }

// newCertificates reads the files. The error says which flag is to blame.
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

// chainOf returns a certificate that was read, and the authorities after it in its file.
func chainOf(own *tls.Certificate) []*x509.Certificate {
	chain := make([]*x509.Certificate, 0, len(own.Certificate))
	for _, raw := range own.Certificate {
		if certificate, err := x509.ParseCertificate(raw); err == nil { // else nobody takes it for an authority
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

// own returns the certificate to serve with, which has a DNS name.
func (c *certificates) own() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(c.serving.CurrentCertKeyContent())
	if err == nil && len(pair.Leaf.DNSNames) == 0 {
		err = errors.New("the certificate to serve with has no DNS name")
	}
	return &pair, err
}

// verifyReplica returns why a certificate is not one of a replica: signed by the client authority for that usage, for the name of our own.
func (c *certificates) verifyReplica(chain []*x509.Certificate, usage x509.ExtKeyUsage) error {
	own, err := c.own()
	if err != nil {
		return err
	}
	_, err = c.verify(chain, usage, own.Leaf.DNSNames[0])
	return err
}

// verify returns until when a certificate is one that the client authority signed for that usage and DNS name, any for "". The error says
// why it is not now.
func (c *certificates) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, name string) (until time.Time, err error) {
	options, ok := c.clientCA.VerifyOptions()
	if !ok {
		return time.Time{}, errors.New("there is no client authority")
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

// server is how schedulers, and replicas that stand by, are served.
func (c *certificates) server() *tls.Config {
	// Only HTTP/1.1: bodies are large and come one after the other, for which the windows and frames of HTTP/2 cost time and gain nothing.
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
				return nil, errors.New("there is no client authority")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}, Certificates: []tls.Certificate{*own}, Time: c.now,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: options.Roots,
				VerifyConnection: func(state tls.ConnectionState) error {
					return c.mayAsk(state.PeerCertificates[0], own.Leaf)
				},
			}, nil
		},
	}
}

// connection is of one client. Its requests come one after the other, as HTTP/1.1 has it.
type connection struct{ verified time.Time }

type connectionKey struct{}

// connected is for http.Server.ConnContext, as answerKnown needs it.
func connected(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

// answerKnown has handler answer only those who may still ask: whoever could when the connection began need not be one of them any more.
// Others get 401, and have to connect again.
func (c *certificates) answerKnown(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection := r.Context().Value(connectionKey{}).(*connection)
		if now := c.now(); now.Sub(connection.verified) >= verifyAgainAfter {
			if err := c.stillMayAsk(r.TLS.PeerCertificates); err != nil {
				klog.FromContext(r.Context()).V(2).Info("Not answered any more", "from", r.RemoteAddr, "why", err.Error())
				w.Header().Set("Connection", "close")
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
			connection.verified = now
		}
		handler.ServeHTTP(w, r)
	})
}

// stillMayAsk returns why the client with these certificates may not ask, by the files as they are now.
func (c *certificates) stillMayAsk(chain []*x509.Certificate) error {
	own, err := c.own()
	if err != nil {
		return err
	}
	until, err := c.verify(chain, x509.ExtKeyUsageClientAuth, "")
	if err != nil {
		return err
	}
	if err := c.mayAsk(chain[0], own.Leaf); err != nil {
		return err
	}
	if chain[0].VerifyHostname(own.Leaf.DNSNames[0]) != nil {
		c.asked.Store(&asker{at: c.now(), until: until})
	}
	return nil
}

// mayAsk returns why a client is not one that may ask, although the client authority signed its certificate: another replica, whose
// certificate is for our own name, or one of clients. Others could move and make approvals, and so have pods placed over their budget.
func (c *certificates) mayAsk(client, own *x509.Certificate) error {
	names := append([]string{client.Subject.CommonName}, client.DNSNames...)
	if slices.ContainsFunc(names, func(name string) bool {
		return name != "" && (slices.Contains(c.clients, name) || name == own.DNSNames[0])
	}) {
		return nil
	}
	return fmt.Errorf("client certificate for %q: expected one for any of %q (--allowed-client-names)", names, append([]string{own.DNSNames[0]}, c.clients...))
}

// client is how this replica asks the one that leads. It is reached at the address of its pod, for which it has no certificate: it is known
// by the name that all replicas share.
func (c *certificates) client() *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.own() },
		InsecureSkipVerify:   true, // VerifyConnection does what is skipped, with authorities that may change and a name that is not the address
		VerifyConnection: func(state tls.ConnectionState) error {
			return c.verifyReplica(state.PeerCertificates, x509.ExtKeyUsageServerAuth)
		},
	}
}
