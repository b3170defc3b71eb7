package live

import (
	"bufio"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Proxy forwards requests to the API server, and can delay the events of watches. It changes
// nothing else, except that watches that may be delayed get their events as JSON.
type Proxy struct {
	server *httptest.Server
	delays map[string]func(name string) bool

	mu   sync.Mutex
	open chan struct{} // closed while no events are delayed
}

// NewProxy starts a proxy that stops when the test ends. delays contains, by the path of the watch,
// the names of the objects whose events it can delay. The name of a bookmark is "".
func (s *Scenario) NewProxy(delays map[string]func(name string) bool) *Proxy {
	s.Helper()
	config := s.Plane.Config()
	target, err := url.Parse(config.Host)
	s.Must(err)
	// Each client sends its own credentials.
	transport, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	s.Must(err)
	p := &Proxy{delays: delays, open: make(chan struct{})}
	close(p.open)
	watched := func(r *http.Request) func(string) bool {
		if r.URL.Query().Get("watch") == "true" {
			return delays[r.URL.Path]
		}
		return nil
	}
	p.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if watched(r.In) != nil {
				r.Out.Header.Set("Accept", "application/json")
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if delayed := watched(r.Request); delayed != nil && r.StatusCode == http.StatusOK {
				r.Body = p.delay(r.Body, delayed)
			}
			return nil
		},
	})
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // programs lose their connections when the test ends
	p.server.StartTLS()
	s.Cleanup(func() {
		p.Release()
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// Kubeconfig writes a copy of a kubeconfig with this proxy instead of the API server, and returns
// the file.
func (p *Proxy) Kubeconfig(s *Scenario, of string) string {
	s.Helper()
	config, err := clientcmd.LoadFromFile(of)
	s.Must(err)
	for _, cluster := range config.Clusters {
		cluster.Server = p.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	}
	file := filepath.Join(s.TempDir(), "kubeconfig")
	s.Must(clientcmd.WriteToFile(*config, file))
	return file
}

// Hold starts to delay events.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

// Release delivers the delayed events, and all later events at once. It may be called twice.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// isOpen returns a channel that is closed while no events are delayed.
func (p *Proxy) isOpen() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// delay returns the body of a watch whose events are delayed while the proxy holds them. Each line
// of a body is an event.
func (p *Proxy) delay(body io.ReadCloser, delayed func(name string) bool) io.ReadCloser {
	events := make(chan []byte)
	out, in := io.Pipe()
	go func() {
		defer close(events)
		for reader := bufio.NewReader(body); ; {
			event, err := reader.ReadBytes('\n')
			if err != nil {
				return
			}
			events <- event
		}
	}()
	go func() {
		defer in.Close()
		for held := []byte(nil); ; {
			released := p.isOpen()
			if len(held) == 0 {
				released = nil
			}
			select {
			case <-released:
				_, _ = in.Write(held) // fails if the client has gone; then events ends
				held = nil
			case event, ok := <-events:
				if !ok {
					return
				}
				select {
				case <-p.isOpen():
					_, _ = in.Write(append(held, event...))
					held = nil
				default:
					if delayed(nameOf(event)) {
						held = append(held, event...)
					} else {
						_, _ = in.Write(event)
					}
				}
			}
		}
	}()
	return struct {
		io.Reader
		io.Closer
	}{out, closers{body, out}}
}

// nameOf returns the name of the object of an event.
func nameOf(event []byte) string {
	var read struct {
		Object struct {
			Metadata struct{ Name string }
		}
	}
	_ = json.Unmarshal(event, &read) // the name of an unknown event is ""
	return read.Object.Metadata.Name
}

// closers closes all of its elements.
type closers []io.Closer

func (all closers) Close() (err error) {
	for _, c := range all {
		err = c.Close()
	}
	return err
}
