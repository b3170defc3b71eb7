package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// certificates are the files by which replicas and schedulers know each other. They are read again when they change.
type certificates struct {
	serving  *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *dynamiccertificates.DynamicFileCAContent
}

// newCertificates reads the files. The error says which flag is to blame.
func newCertificates(certFile, keyFile, clientCAFile string) (*certificates, error) {
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
	c := &certificates{serving, clientCA}
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
			return &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}, Certificates: []tls.Certificate{*own},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: options.Roots,
			}, nil
		},
	}
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
