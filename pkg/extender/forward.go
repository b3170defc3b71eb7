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

// forwardedHeader marks a request that another replica sent on. It is not sent on again, so that two replicas that each take the other one
// for the leader do not send it back and forth.
const forwardedHeader = "Spot-Extender-Forwarded"

// maxAnswer is how long the answer of another replica may be: all of a request, and a reason for every node.
const maxAnswer = 2 * MaxBody

var (
	errNoLeader  = errors.New("no replica is known to lead")
	errForwarded = errors.New("the request was forwarded already")
)

// Forwarder sends requests on to another replica.
type Forwarder struct {
	client *http.Client
	scheme string
}

// NewForwarder returns a Forwarder that speaks HTTPS with config, or plain HTTP without one.
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

// answer is what the other replica answered.
type answer struct {
	status      int
	contentType string
	body        []byte
}

func (a *answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", a.contentType)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // who asked is gone if it fails, and asks again
}

// send sends a request, whose body has been read, to the replica at an address.
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
		return nil, fmt.Errorf("asking the replica that leads: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		// To this connection, whose certificate is good no more. It ends, and the next one has the certificate of now.
		return nil, errors.New("the replica that leads does not know this one any more by an earlier certificate")
	}
	a := &answer{status: response.StatusCode, contentType: response.Header.Get("Content-Type")}
	if a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err != nil {
		return nil, fmt.Errorf("reading the answer of the replica that leads: %w", err)
	}
	if len(a.body) > maxAnswer {
		return nil, fmt.Errorf("the answer of the replica that leads is longer than %d bytes", maxAnswer)
	}
	return a, nil
}
