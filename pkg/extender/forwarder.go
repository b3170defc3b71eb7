package extender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"time"
)

// forwardedHeader marks a request from another replica. Such a request is not forwarded again, so
// that two replicas that take each other for the leader do not forward it in a loop.
const forwardedHeader = "Spot-Extender-Forwarded"

var (
	errNoLeader  = errors.New("the leader is unknown")
	errForwarded = errors.New("the request was already forwarded")
	// errRejected means that the client certificate of a connection has expired or is no longer
	// trusted. The leader closes the connection, and the next one uses the current certificate.
	errRejected = errors.New("the leader rejected the client certificate of this connection")
)

// DialTLS connects to another replica over TLS.
type DialTLS func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport returns the transport to other replicas. It uses plain HTTP if dialTLS is nil.
func newTransport(dialTLS DialTLS) (transport *http.Transport, scheme string) {
	scheme = "https"
	if dialTLS == nil {
		scheme = "http"
	}
	return &http.Transport{DialTLSContext: dialTLS, MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute}, scheme
}

// forwardToLeader forwards a request, whose body has been read, and passes on the answer. After an
// error it has written nothing to w.
func (h *handler) forwardToLeader(w http.ResponseWriter, r *http.Request, body []byte) (err error) {
	address := h.role.Leader()
	switch {
	case r.Header.Get(forwardedHeader) != "":
		return errForwarded
	case address == "":
		return errNoLeader
	}
	proxy := httputil.ReverseProxy{
		Transport: h.transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = h.scheme, address, ""
			r.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
			r.Out.Body, _ = r.Out.GetBody()
			r.Out.Header.Set(forwardedHeader, "1")
		},
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode == http.StatusUnauthorized {
				return errRejected
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, failure error) {
			err = fmt.Errorf("forwarding to the leader: %w", failure)
		},
	}
	proxy.ServeHTTP(w, r)
	return err
}
