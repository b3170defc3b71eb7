package extender

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// forwardedHeader marks a request from another replica. Such a request is not forwarded again, so
// that two replicas that take each other for the leader do not forward it in a loop.
const forwardedHeader = "Spot-Extender-Forwarded"

// maxAnswer limits the answer of another replica, in bytes: the names of the request, and a reason
// for each node.
const maxAnswer = 2 * MaxBody

var (
	errNoLeader  = errors.New("the leader is unknown")
	errForwarded = errors.New("the request was already forwarded")
)

// Forwarder forwards requests to another replica.
type Forwarder struct {
	client *http.Client
	scheme string
}

// NewForwarder returns a Forwarder that uses HTTPS with config, or plain HTTP if config is nil.
func NewForwarder(config *tls.Config) *Forwarder {
	scheme := "https"
	if config == nil {
		scheme = "http"
	}
	return &Forwarder{scheme: scheme, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig:     config,
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		TLSHandshakeTimeout: time.Second,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     time.Minute,
	}}}
}

// answer is the answer of the other replica.
type answer struct {
	status      int
	contentType string
	body        []byte
}

func (a *answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", a.contentType)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // if it fails, the client has disconnected and will retry
}

// send sends a request, whose body has been read, to the replica at address.
func (f *Forwarder) send(ctx context.Context, address string, r *http.Request, body []byte) (*answer, error) {
	switch {
	case r.Header.Get(forwardedHeader) != "":
		return nil, errForwarded
	case address == "":
		return nil, errNoLeader
	}
	to := url.URL{Scheme: f.scheme, Host: address, Path: r.URL.Path}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(forwardedHeader, "1")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("forwarding to the leader: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		// The client certificate of this connection has expired or is no longer trusted. The leader
		// closes the connection, and the next one uses the current certificate.
		return nil, errors.New("the leader rejected the client certificate of this connection")
	}
	a := &answer{status: response.StatusCode, contentType: response.Header.Get("Content-Type")}
	if a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err != nil {
		return nil, fmt.Errorf("reading the answer of the leader: %w", err)
	}
	if len(a.body) > maxAnswer {
		return nil, fmt.Errorf("the answer of the leader is longer than %d bytes", maxAnswer)
	}
	return a, nil
}
