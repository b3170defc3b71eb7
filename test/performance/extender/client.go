package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
)

// client sends requests like kube-scheduler, over its own connection. It reads and writes that
// connection itself. With the client of net/http, three goroutines would take part in each request,
// and the time that they wait for a core is not the server's.
type client struct {
	conn   *tls.Conn
	reader *bufio.Reader
	// pods are the pods of the requests. names are the names of all nodes. Both are JSON.
	pods  [][]byte
	names []byte
	// request is the buffer for requests. responses are the last responses, and durations the
	// response times, by verb.
	request   []byte
	responses map[string]*bytes.Buffer
	durations map[string][]time.Duration
}

// newClient returns a client that is connected to the server at address.
func (b *bench) newClient(address string, pods [][]byte) (*client, error) {
	conn, err := tls.Dial("tcp", address, b.tls)
	if err != nil {
		return nil, err
	}
	return &client{
		conn: conn, reader: bufio.NewReader(conn), pods: pods, names: b.names,
		responses: map[string]*bytes.Buffer{verbs[0]: {}, verbs[1]: {}}, durations: map[string][]time.Duration{},
	}, nil
}

// clientTLS returns the TLS configuration of a client of an extender with these certificates.
func clientTLS(files extendertest.Certificates) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(files.ClientCert, files.ClientKey)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots, ServerName: extendertest.ServerName, Certificates: []tls.Certificate{pair}}, nil
}

// sendAll sends the requests for all pods, one after the other.
func (c *client) sendAll() error {
	for _, pod := range c.pods {
		answer, err := c.post("filter", pod, c.names)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, []byte(`{"NodeNames":["`)) || !bytes.HasSuffix(answer, []byte(`"]}`)) {
			return fmt.Errorf("/filter: unexpected response %.200s", answer)
		}
		names := bytes.TrimSuffix(bytes.TrimPrefix(answer, []byte(`{"NodeNames":`)), []byte("}"))
		if answer, err = c.post("prioritize", pod, names); err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, []byte(`[{"Host":`)) {
			return fmt.Errorf("/prioritize: unexpected response %.200s", answer)
		}
	}
	return nil
}

// post sends a request about a pod and nodes. The returned response is valid until the next call.
func (c *client) post(verb string, pod, names []byte) ([]byte, error) {
	const before, between, after = `{"Pod":`, `,"Nodes":null,"NodeNames":`, `}`
	c.request = fmt.Appendf(c.request[:0], "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		verb, extendertest.ServerName, len(before)+len(pod)+len(between)+len(names)+len(after))
	c.request = append(append(append(append(append(c.request, before...), pod...), between...), names...), after...)
	began := time.Now()
	if err := c.conn.SetDeadline(began.Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer := c.responses[verb]
	answer.Reset()
	if _, err := answer.ReadFrom(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/%s: status %d: %.200s", verb, response.StatusCode, answer.Bytes())
	}
	c.durations[verb] = append(c.durations[verb], time.Since(began))
	return bytes.TrimSpace(answer.Bytes()), nil
}
