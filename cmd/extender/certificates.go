package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// certificates are the files by which replicas and schedulers know each other. They are read again when they change.
type certificates struct {
	serving  *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *dynamiccertificates.DynamicFileCAContent
	// clients are the names of the clients that may ask, beside other replicas.
	clients []string
}

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
	c := &certificates{serving, clientCA, clients}
	own, err := c.own()
	if err == nil {
		err = c.verify([]*x509.Certificate{own.Leaf}, x509.ExtKeyUsageServerAuth)
	}
	if err == nil {
		err = c.verify([]*x509.Certificate{own.Leaf}, x509.ExtKeyUsageClientAuth)
	}
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file %s: expected one for a DNS name that --client-ca-file %s signed for server auth and client auth: "+
			"%w", certFile, clientCAFile, err)
	}
	return c, nil
}

// run reads the files again when they change, until ctx is done.
func (c *certificates) run(ctx context.Context) {
	go c.clientCA.Run(ctx, 1)
	c.serving.Run(ctx, 1)
}

// own returns the certificate to serve with.
func (c *certificates) own() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(c.serving.CurrentCertKeyContent())
	return &pair, err
}

// verify returns why a certificate is not one of a replica: signed by the client authority for that usage, for the name of our own.
func (c *certificates) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage) error {
	own, err := c.own()
	if err != nil {
		return err
	}
	if len(own.Leaf.DNSNames) == 0 {
		return errors.New("it has no DNS name")
	}
	options, ok := c.clientCA.VerifyOptions()
	if !ok {
		return errors.New("there is no client authority")
	}
	options.KeyUsages, options.DNSName = []x509.ExtKeyUsage{usage}, own.Leaf.DNSNames[0]
	options.Intermediates = x509.NewCertPool()
	for _, intermediate := range chain[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	_, err = chain[0].Verify(options)
	return err
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
			if len(own.Leaf.DNSNames) == 0 {
				return nil, errors.New("the certificate to serve with has no DNS name")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}, Certificates: []tls.Certificate{*own},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: options.Roots,
				VerifyConnection: func(state tls.ConnectionState) error {
					return c.mayAsk(state.PeerCertificates[0], own.Leaf)
				},
			}, nil
		},
	}
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
			return c.verify(state.PeerCertificates, x509.ExtKeyUsageServerAuth)
		},
	}
}
