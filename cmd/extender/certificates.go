package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// certificates has the files by which the extender and schedulers authenticate each other. The
// files are read again when they change.
type certificates struct {
	serving  *certwatcher.CertWatcher
	clientCA *dynamiccertificates.DynamicFileCAContent
	// clients lists the names of the permitted clients.
	clients []string
}

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
	return &certificates{serving: serving, clientCA: clientCA, clients: clients}, errors.Join(servingErr, caErr)
}

func (c *certificates) tls() *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		authority, ok := c.clientCA.VerifyOptions()
		if !ok {
			return nil, errors.New("the client authority is not known") // without it, the system's authorities would count
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS12,
			// Only HTTP/1.1: bodies are large and sequential, so the windows and frames of HTTP/2
			// would cost time without a benefit.
			NextProtos:     []string{"http/1.1"},
			GetCertificate: c.serving.GetCertificate,
			ClientAuth:     tls.RequireAndVerifyClientCert,
			ClientCAs:      authority.Roots,
		}, nil
	}}
}

// requireClient passes requests to handler only while their client is permitted. The certificate of
// an open connection may have expired, or lost its authority. Other clients get status 401.
func (c *certificates) requireClient(handler http.Handler) http.Handler {
	client := requestx509.NewDynamic(c.clientCA.VerifyOptions, requestx509.UserConversionFunc(c.user))
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

// user accepts a client that the client authority verified if it is permitted. Other clients could
// make approvals, and so place pods beyond their budget.
func (c *certificates) user(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	names := append([]string{chain[0].Subject.CommonName}, chain[0].DNSNames...)
	if slices.ContainsFunc(names, func(name string) bool { return name != "" && slices.Contains(c.clients, name) }) {
		return &authenticator.Response{}, true, nil
	}
	return nil, false, fmt.Errorf("client certificate for %q: expected one for any of %q (--allowed-client-names)", names, c.clients)
}
