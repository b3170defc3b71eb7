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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// client asks as kube-scheduler does, over a connection of its own. It writes and reads that itself: with the client of net/http three
// goroutines have a part in each request, and how long they wait for the cores is no time of the server.
type client struct {
	conn   *tls.Conn
	reader *bufio.Reader
	// pods are what to ask about, and names those of all nodes, as JSON.
	pods  [][]byte
	names []byte
	// request is the memory of requests. answers are the last ones, by verb, and took is how long each took.
	request []byte
	answers map[string]*bytes.Buffer
	took    map[string][]time.Duration
}

// newClient returns a client that is connected to the server at address.
func (b *bench) newClient(address string, pods [][]byte) (*client, error) {
	conn, err := tls.Dial("tcp", address, b.tls)
	if err != nil {
		return nil, err
	}
	return &client{
		conn: conn, reader: bufio.NewReader(conn), pods: pods, names: b.names,
		answers: map[string]*bytes.Buffer{verbs[0]: {}, verbs[1]: {}}, took: map[string][]time.Duration{},
	}, nil
}

// trust returns how a client of an extender with these files trusts it, and shows its own certificate.
func trust(files lab.Certificates) (*tls.Config, error) {
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
	return &tls.Config{RootCAs: roots, ServerName: lab.ExtenderName, Certificates: []tls.Certificate{pair}}, nil
}

// ask asks about the pods, one after the other.
func (c *client) ask() error {
	for _, pod := range c.pods {
		answer, err := c.post("filter", pod, c.names)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, []byte(`{"NodeNames":["`)) || !bytes.HasSuffix(answer, []byte(`"]}`)) {
			return fmt.Errorf("/filter answered %.200s", answer)
		}
		names := bytes.TrimSuffix(bytes.TrimPrefix(answer, []byte(`{"NodeNames":`)), []byte("}"))
		if answer, err = c.post("prioritize", pod, names); err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, []byte(`[{"Host":`)) {
			return fmt.Errorf("/prioritize answered %.200s", answer)
		}
	}
	return nil
}

// post asks about a pod and nodes, and returns the answer, which is good until the next.
func (c *client) post(verb string, pod, names []byte) ([]byte, error) {
	const before, between, after = `{"Pod":`, `,"Nodes":null,"NodeNames":`, `}`
	c.request = fmt.Appendf(c.request[:0], "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		verb, lab.ExtenderName, len(before)+len(pod)+len(between)+len(names)+len(after))
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
	answer := c.answers[verb]
	answer.Reset()
	if _, err := answer.ReadFrom(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/%s answered with status %d: %.200s", verb, response.StatusCode, answer.Bytes())
	}
	c.took[verb] = append(c.took[verb], time.Since(began))
	return answer.Bytes(), nil
}
